import { createChart } from './chart.ts'
import { quote } from './copy-as.ts'
import { showCopies } from './copy-buttons.ts'
import { byId, checkedValue, element, makeScrollable } from './dom.ts'
import { examplesOf, splitExact } from './exact.ts'
import { type Exchange, exchange, isPassing } from './exchange.ts'
import { type FluxFormat, parseFlux } from './flux-parse.ts'
import { setNotice } from './notice.ts'
import { showProblem } from './problem-view.ts'
import { type Call, type FluxRequest, fluxPath, type Send } from './requests.ts'

const EVERY_MS = 5000
/** The wait after a failure that will pass and names no wait of its own. */
const RETRY_SECONDS = 4
const SHOWN_CHARACTERS = 20_000

export interface FluxView {
  /** Reads what the form says, and shows the answer. Joins a read in progress. The server checks the form's values. */
  read(): Promise<Exchange>
  /** Removes the user's data from the page and stops reading. */
  clear(): void
}

/**
 * The form that reads a Flux, shows the answer as it came and draws its values.
 *
 * @param onSend called with each request
 */
export function startFluxView(onSend: Send): FluxView {
  const form = byId('flux-form', HTMLFormElement)
  const button = byId('flux-read', HTMLButtonElement)
  const every = byId('flux-auto', HTMLInputElement)
  const problemBox = byId('flux-problem', HTMLElement)
  const status = byId('flux-status', HTMLElement)
  const result = byId('flux-result', HTMLElement)
  const body = byId('flux-body', HTMLElement)
  const note = byId('flux-chart-note', HTMLElement)
  const figure = byId('flux-figure', HTMLElement)
  const old = byId('flux-old', HTMLElement)
  const chart = createChart(
    byId('flux-chart', SVGSVGElement),
    byId('flux-cursor', HTMLInputElement),
    byId('flux-readout', HTMLElement),
  )
  makeScrollable(body, 'The answer of the Flux')
  let reading: Promise<Exchange> | null = null
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
      note.textContent = 'The answer has no numbers with times, so there is nothing to draw.'
      chart.draw(series)
    } catch (error) {
      figure.hidden = true
      note.hidden = false
      note.textContent = `The answer cannot be drawn. ${error instanceof Error ? error.message : ''}`
    }
  }

  const showBody = (text: string): void => {
    const parts = splitExact(text.slice(0, SHOWN_CHARACTERS))
    body.replaceChildren(
      ...parts.map(({ text, parsed }) => (parsed === undefined ? text : element('mark', '', text))),
    )
    if (text.length > SHOWN_CHARACTERS) {
      body.append(`\n… and ${text.length - SHOWN_CHARACTERS} more characters`)
    }
    const examples = examplesOf(parts)
    byId('flux-exact', HTMLElement).hidden = examples.length === 0
    byId('flux-exact-rows', HTMLElement).replaceChildren(
      ...examples.map(({ text, parsed }) =>
        element(
          'tr',
          '',
          element('td', '', element('code', 'exact-came', text)),
          element('td', '', element('code', 'exact-parsed', parsed)),
        ),
      ),
    )
  }

  /** Shows the outcome. A failure leaves the last good answer in its place, marked as old. */
  const show = (request: FluxRequest, outcome: Exchange): void => {
    const { error } = outcome
    status.textContent = error === null ? describe(outcome) : ''
    result.dataset.old = String(error !== null)
    old.hidden = error === null
    if (error === null) {
      result.hidden = false
      old.textContent = `Old: the answer of ${new Date().toLocaleTimeString()}. The newest read failed.`
      showBody(outcome.text)
      showSeries(request.format, outcome.text)
    }
    const isOutage = error !== null && isPassing(error)
    const wait = error?.retryAfter ?? RETRY_SECONDS
    if (isOutage) timer = setTimeout(() => void read(), wait * 1_000)
    setNotice(
      'outage',
      isOutage && error.status > 0
        ? {
            tone: 'warn',
            title: 'You are still signed in.',
            text: error.message,
            retryAt: performance.now() + wait * 1_000,
          }
        : null,
    )
    // The notice at the top of the page already says why a session ended.
    showProblem(problemBox, error)
    if (error !== null && !isOutage) every.checked = false
    if (error === null && every.checked) timer = setTimeout(() => void read(), EVERY_MS)
  }

  const send = async (): Promise<Exchange> => {
    clearTimeout(timer)
    const request = readForm()
    const call: Call = { method: 'GET', path: fluxPath(request) }
    button.setAttribute('aria-busy', 'true')
    byId('flux-request', HTMLElement).textContent = `GET ${call.path}`
    const outcome = await exchange(call, onSend(call))
    button.removeAttribute('aria-busy')
    reading = null
    show(request, outcome)
    return outcome
  }

  const read = (): Promise<Exchange> => {
    reading ??= send()
    return reading
  }

  form.addEventListener('submit', (event) => {
    event.preventDefault()
    void read()
  })
  every.addEventListener('change', () => {
    clearTimeout(timer)
    setNotice('outage', null)
    if (every.checked) void read()
  })
  for (const choice of form.querySelectorAll('input[name="format"]')) {
    choice.addEventListener('change', () => {
      if (!result.hidden) void (reading ?? Promise.resolve()).then(read)
    })
  }
  showCopies(byId('flux-copy', HTMLElement), () => {
    const { fluxId, wac, format } = readForm()
    const options = [wac === '' ? '' : `wac: ${quote(wac)}, `, `format: ${quote(format)}`].join('')
    return {
      call: { method: 'GET', path: fluxPath(readForm()) },
      client: `await flux(${quote(fluxId)}, { ${options} })`,
    }
  })

  return {
    read,
    clear() {
      clearTimeout(timer)
      every.checked = false
      result.hidden = true
      // The platform's own words are the user's too.
      if (problemBox.querySelector('.problem-body') !== null) showProblem(problemBox, null)
      body.textContent = ''
      byId('flux-exact-rows', HTMLElement).replaceChildren()
      for (const id of ['flux-request', 'flux-status']) byId(id, HTMLElement).textContent = ''
      setNotice('outage', null)
      chart.draw({ name: null, unit: null, points: [] })
    },
  }
}

function describe({ status, type, text, duration }: Exchange): string {
  const size = new TextEncoder().encode(text).length
  return [`${status}`, type, `${size.toLocaleString()} bytes`, `${Math.round(duration)} ms`]
    .filter((part) => part !== '')
    .join(' · ')
}
