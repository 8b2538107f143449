import type { Point, Series } from './flux-parse.ts'

const SVG = 'http://www.w3.org/2000/svg'
const HEIGHT = 260
const MARGIN = { top: 14, right: 14, bottom: 28, left: 52 }
const MIN_WIDTH = 240
const MAX_DOTS = 60

interface Chart {
  /** Draws a series; one without points empties the chart. */
  draw(series: Series): void
}

/**
 * A line chart in an `<svg>` that follows the width of its box. The pointer or the slider chooses a value.
 *
 * @param svg where to draw, with `role="img"`; its label tells the series in one sentence
 * @param slider chooses a value by keyboard or touch
 * @param readout gets the chosen value, or a summary
 */
export function createChart(svg: SVGSVGElement, slider: HTMLInputElement, readout: HTMLElement): Chart {
  let choose: (index: number | null) => void = () => {}
  let series: Series = { name: null, unit: null, points: [] }
  let drawn = 0

  const draw = (next: Series): void => {
    series = next
    drawn = svg.clientWidth
    const width = Math.max(MIN_WIDTH, drawn)
    svg.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`)
    svg.replaceChildren()
    const summary = summarize(series)
    svg.setAttribute('aria-label', summary)
    readout.textContent = summary
    const last = Math.max(0, series.points.length - 1)
    slider.max = String(last)
    slider.value = String(last)
    slider.ariaValueText = summary
    if (series.points.length > 0)
      choose = paint({ svg, series, width, tell: (point) => tell(point, summary) })
  }

  const tell = (point: Point | null, summary: string): void => {
    readout.textContent =
      point === null ? summary : `${formatValue(point.value, series.unit)} at ${formatInstant(point.time)}`
  }

  slider.addEventListener('input', () => {
    choose(Number(slider.value))
    slider.ariaValueText = readout.textContent
  })
  slider.addEventListener('blur', () => choose(null))
  new ResizeObserver(() => {
    if (svg.clientWidth !== drawn) draw(series)
  }).observe(svg)

  return { draw }
}

/** Draws it all. Returns how to mark a point, or none. */
function paint({
  svg,
  series,
  width,
  tell,
}: {
  svg: SVGSVGElement
  series: Series
  width: number
  tell: (point: Point | null) => void
}): (index: number | null) => void {
  const { points } = series
  const first = points[0]!.time
  const last = points.at(-1)!.time
  const ticks = valueTicks(points)
  const [low, high] = [ticks[0]!, ticks.at(-1)!]
  const inner = width - MARGIN.left - MARGIN.right
  const bottom = HEIGHT - MARGIN.bottom
  const x = (time: number): number =>
    MARGIN.left + (last === first ? inner / 2 : ((time - first) / (last - first)) * inner)
  const y = (value: number): number => bottom - ((value - low) / (high - low)) * (bottom - MARGIN.top)

  const formatTickValue = tickFormat(ticks)
  for (const tick of ticks) {
    add(svg, 'line', { class: 'grid', x1: MARGIN.left, x2: width - MARGIN.right, y1: y(tick), y2: y(tick) })
    const at = { x: MARGIN.left - 8, y: y(tick) + 4 }
    add(svg, 'text', { class: 'tick', ...at, 'text-anchor': 'end' }).textContent = formatTickValue(tick)
  }
  for (const time of timeTicks(first, last, inner)) {
    const at = x(time)
    add(svg, 'line', { class: 'grid', x1: at, x2: at, y1: bottom, y2: bottom + 4 })
    // A label at an edge is moved in, so that it is not cut off.
    const label = Math.min(Math.max(at, MARGIN.left), width - MARGIN.right - 24)
    const text = add(svg, 'text', { class: 'tick', x: label, y: HEIGHT - 8, 'text-anchor': 'middle' })
    text.textContent = formatTick(time, last - first)
  }

  const line = points.map((point) => `${x(point.time).toFixed(1)},${y(point.value).toFixed(1)}`)
  add(svg, 'polygon', {
    class: 'area',
    points: [`${x(first)},${bottom}`, ...line, `${x(last)},${bottom}`].join(' '),
  })
  add(svg, 'polyline', { class: 'line', points: line.join(' ') })
  if (points.length <= MAX_DOTS) {
    for (const { time, value } of points)
      add(svg, 'circle', { class: 'dot', cx: x(time), cy: y(value), r: 2.5 })
  }

  const cursor = add(svg, 'line', { class: 'cursor', y1: MARGIN.top, y2: bottom, visibility: 'hidden' })
  const mark = add(svg, 'circle', { class: 'mark', r: 5, visibility: 'hidden' })
  const show = (point: Point | null): void => {
    for (const shape of [cursor, mark])
      shape.setAttribute('visibility', point === null ? 'hidden' : 'visible')
    if (point !== null) {
      set(cursor, { x1: x(point.time), x2: x(point.time) })
      set(mark, { cx: x(point.time), cy: y(point.value) })
    }
    tell(point)
  }
  svg.onpointermove = (event) => {
    const at = ((event.clientX - svg.getBoundingClientRect().left) / svg.clientWidth) * width
    show(
      points.reduce((best, point) =>
        Math.abs(x(point.time) - at) < Math.abs(x(best.time) - at) ? point : best,
      ),
    )
  }
  svg.onpointerleave = () => show(null)
  return (index) => show(index === null ? null : points[index]!)
}

function add(parent: Element, name: string, attributes: Record<string, string | number>): SVGElement {
  const made = document.createElementNS(SVG, name) as SVGElement
  set(made, attributes)
  parent.append(made)
  return made
}

function set(target: Element, attributes: Record<string, string | number>): void {
  for (const [name, value] of Object.entries(attributes)) target.setAttribute(name, String(value))
}

/** Four or so round values that enclose all points. */
function valueTicks(points: Point[]): number[] {
  let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]
  for (const { value } of points) {
    low = Math.min(low, value)
    high = Math.max(high, value)
  }
  if (low === high) {
    const room = Math.abs(low) / 10 || 1
    low -= room
    high += room
  }
  const rough = (high - low) / 4
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough)!
  const from = Math.floor(low / step)
  const to = Math.ceil(high / step)
  return Array.from({ length: to - from + 1 }, (_, i) => (from + i) * step)
}

const STEPS_MS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400,
].map((seconds) => seconds * 1_000)

/** Round times by the reader's clock, as many as there is room for. */
function timeTicks(first: number, last: number, room: number): number[] {
  if (first === last) return [first]
  const rough = (last - first) / Math.max(2, Math.floor(room / 110))
  const day = STEPS_MS.at(-1)!
  const step = STEPS_MS.find((candidate) => candidate >= rough) ?? Math.ceil(rough / day) * day
  const zone = new Date(first).getTimezoneOffset() * 60_000
  const from = Math.ceil((first - zone) / step) * step + zone
  return Array.from({ length: Math.floor((last - from) / step) + 1 }, (_, i) => from + i * step)
}

function formatTick(time: number, span: number): string {
  const day = 86_400_000
  const options: Intl.DateTimeFormatOptions =
    span > 2 * day
      ? { day: 'numeric', month: 'short' }
      : span < 600_000
        ? { hour: '2-digit', minute: '2-digit', second: '2-digit' }
        : { hour: '2-digit', minute: '2-digit' }
  return new Intl.DateTimeFormat(undefined, options).format(time)
}

function formatInstant(time: number): string {
  return new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' }).format(time)
}

/** All ticks with as many decimals as their step needs. */
function tickFormat(ticks: number[]): (value: number) => string {
  const step = ticks[1]! - ticks[0]!
  const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step) - 1e-9)))
  const decimals = Number(step.toFixed(digits)) === step ? digits : digits + 1
  const notation = Math.abs(ticks.at(-1)!) >= 100_000 ? 'compact' : 'standard'
  const format = new Intl.NumberFormat(undefined, {
    notation,
    minimumFractionDigits: decimals,
    maximumFractionDigits: decimals,
  })
  return (value) => format.format(value)
}

function formatValue(value: number, unit: string | null): string {
  const number = new Intl.NumberFormat(undefined, { maximumFractionDigits: 6 }).format(value)
  // ISO 80000 calls the unit of a bare number 1.
  return unit === null || unit === '1' ? number : `${number} ${unit}`
}

function summarize({ name, unit, points }: Series): string {
  if (points.length === 0) return 'No time-stamped values.'
  const values = points.map((point) => point.value)
  const low = formatValue(
    values.reduce((a, b) => Math.min(a, b)),
    unit,
  )
  const high = formatValue(
    values.reduce((a, b) => Math.max(a, b)),
    unit,
  )
  const count = points.length === 1 ? '1 value' : `${points.length} values`
  return `${name === null ? '' : `${name}: `}${count}, from ${low} to ${high}, last ${formatValue(values.at(-1)!, unit)}.`
}
