import type { Point, Series } from './flux-parse.ts'

const SVG = 'http://www.w3.org/2000/svg'
const HEIGHT = 260
const MARGIN = { top: 14, right: 14, bottom: 28, left: 52 }
const MIN_WIDTH = 240
const MAX_DOTS = 60

export interface Chart {
  /** Draws a series; one without points empties the chart. */
  draw(series: Series): void
}

/**
 * A line chart in an `<svg>` that follows the width of its box; a text shows the value under the pointer.
 *
 * @param svg where to draw, with `role="img"`; its label tells the series in one sentence
 * @param readout gets the value under the pointer, or a summary
 */
export function createChart(svg: SVGSVGElement, readout: HTMLElement): Chart {
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
    if (series.points.length > 0) paint(svg, series, width, (point) => tell(point, summary))
  }

  const tell = (point: Point | null, summary: string): void => {
    readout.textContent =
      point === null ? summary : `${formatValue(point.value, series.unit)} at ${formatInstant(point.time)}`
  }

  new ResizeObserver(() => {
    if (svg.clientWidth !== drawn) draw(series)
  }).observe(svg)

  return { draw }
}

function paint(svg: SVGSVGElement, series: Series, width: number, tell: (point: Point | null) => void): void {
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

  for (const tick of ticks) {
    add(svg, 'line', { class: 'grid', x1: MARGIN.left, x2: width - MARGIN.right, y1: y(tick), y2: y(tick) })
    add(
      svg,
      'text',
      { class: 'tick', x: MARGIN.left - 8, y: y(tick) + 4, 'text-anchor': 'end' },
      compact(tick),
    )
  }
  for (const [time, anchor] of timeTicks(first, last, inner)) {
    const text = formatTick(time, last - first)
    add(svg, 'text', { class: 'tick', x: x(time), y: HEIGHT - 8, 'text-anchor': anchor }, text)
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
}

function add(
  parent: Element,
  name: string,
  attributes: Record<string, string | number>,
  text = '',
): SVGElement {
  const made = document.createElementNS(SVG, name) as SVGElement
  set(made, attributes)
  made.textContent = text
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

function timeTicks(first: number, last: number, room: number): [number, string][] {
  if (first === last) return [[first, 'middle']]
  const count = Math.max(2, Math.min(6, Math.floor(room / 110)))
  return Array.from({ length: count }, (_, i) => {
    const anchor = i === 0 ? 'start' : i === count - 1 ? 'end' : 'middle'
    return [first + ((last - first) * i) / (count - 1), anchor]
  })
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

function compact(value: number): string {
  return new Intl.NumberFormat(undefined, { notation: 'compact', maximumFractionDigits: 3 }).format(value)
}

function formatValue(value: number, unit: string | null): string {
  const number = new Intl.NumberFormat(undefined, { maximumFractionDigits: 6 }).format(value)
  return unit === null ? number : `${number} ${unit}`
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
