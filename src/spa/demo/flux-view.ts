import { type Answer, call, type Outcome } from './api.ts'
import { createChart } from './chart.ts'
import { byId, checkedValue } from './dom.ts'
import { type FluxFormat, parseFlux } from './flux-parse.ts'
import { showProblem } from './problem-view.ts'
import { type FluxRequest, fluxPath } from './requests.ts'

const EVERY_MS = 5000
const SHOWN_CHARACTERS = 20_000

export interface FluxView {
  /** Removes the user's data from the page and stops reading. */
  clear(): void
}

/**
 * The form that reads a Flux, shows the answer as it came and draws its values.
 *
 * @param onLoginRequired called when the server says that nobody is signed in
 */
export function startFluxView(onLoginRequired: () => void): FluxView {
  const form = byId('flux-form', HTMLFormElement)
  const button = byId('flux-read', HTMLButtonElement)
  const every = byId('flux-auto', HTMLInputElement)
  const problemBox = byId('flux-problem', HTMLElement)
  const status = byId('flux-status', HTMLElement)
  const result = byId('flux-result', HTMLElement)
  const body = byId('flux-body', HTMLElement)
  const note = byId('flux-chart-note', HTMLElement)
  const figure = byId('flux-figure', HTMLElement)
  const chart = createChart(byId('flux-chart', SVGSVGElement), byId('flux-readout', HTMLElement))
  let reading = false
  let askedAgain = false
  let timer: ReturnType<typeof setTimeout> | undefined

  const readForm = (): FluxRequest => ({
    wac: byId('flux-wac', HTMLInputElement).value.trim(),
    fluxId: byId('flux-id', HTMLInputElement).value.trim(),
    format: checkedValue(form, 'format') as FluxFormat,
  })

  const showSeries = (format: FluxFormat, text: string): void => {
    try {
      const series = parseFlux(format, text)
      figure.hidden = series.points.length === 0
      note.hidden = series.points.length > 0
      note.textContent = 'The answer holds no time-stamped numbers, so there is nothing to draw.'
      chart.draw(series)
    } catch (error) {
      figure.hidden = true
      note.hidden = false
      note.textContent = `The answer cannot be drawn. ${error instanceof Error ? error.message : ''}`
    }
  }

  const show = (request: FluxRequest, outcome: Outcome): void => {
    showProblem(problemBox, outcome)
    status.textContent = outcome === null ? 'No answer' : describe(outcome)
    result.hidden = outcome === null || outcome.problem !== null
    if (outcome === null) return
    if (outcome.problem === null) {
      body.textContent = clip(outcome.text)
      showSeries(request.format, outcome.text)
    } else if (outcome.problem.code === 'login_required') {
      every.checked = false
      onLoginRequired()
    }
  }

  const read = async (): Promise<void> => {
    clearTimeout(timer)
    if (reading) askedAgain = true
    if (reading || !form.reportValidity()) return
    reading = true
    askedAgain = false
    button.setAttribute('aria-busy', 'true')
    const request = readForm()
    byId('flux-request', HTMLElement).textContent = `GET ${fluxPath(request)}`
    show(request, await call({ method: 'GET', path: fluxPath(request) }))
    button.removeAttribute('aria-busy')
    reading = false
    if (askedAgain) void read()
    else if (every.checked) timer = setTimeout(() => void read(), EVERY_MS)
  }

  form.addEventListener('submit', (event) => {
    event.preventDefault()
    void read()
  })
  every.addEventListener('change', () => {
    clearTimeout(timer)
    if (every.checked) void read()
  })
  for (const choice of form.querySelectorAll('input[name="format"]')) {
    choice.addEventListener('change', () => {
      if (!result.hidden) void read()
    })
  }

  return {
    clear() {
      clearTimeout(timer)
      every.checked = false
      result.hidden = true
      body.textContent = ''
      chart.draw({ name: null, unit: null, points: [] })
    },
  }
}

function describe({ status, type, text, duration }: Answer): string {
  const size = new TextEncoder().encode(text).length
  return [`${status}`, type, `${size.toLocaleString()} bytes`, `${Math.round(duration)} ms`]
    .filter((part) => part !== '')
    .join(' · ')
}

function clip(text: string): string {
  if (text.length <= SHOWN_CHARACTERS) return text
  return `${text.slice(0, SHOWN_CHARACTERS)}\n… and ${text.length - SHOWN_CHARACTERS} more characters`
}
