import { type Answer, call, type Outcome } from './api.ts'
import { byId, element } from './dom.ts'
import { createMeter } from './meter.ts'
import { showProblem } from './problem-view.ts'
import { compareSessions, type LiveSession, readSession, type Session, type SessionEvent } from './session.ts'

const POLL_MS = 1000
const TICK_MS = 250
const LOG_LENGTH = 8

const EVENT_TEXT: Record<SessionEvent, string> = {
  signed_in: 'Signed in',
  replaced: 'Signed in again',
  refreshed: 'Access token replaced by the server',
  extended: 'Idle limit moved: activity was recorded',
  ended: 'Session ended',
}

export interface SessionView {
  /** Polls the session now instead of at the next second. Resolves when the page shows it. */
  look(): Promise<void>
}

/**
 * Shows the session and polls it once a second. Polling does not extend the session.
 *
 * @param onChange called after each sign-in and sign-out, and after the first poll
 */
export function startSessionView(onChange: (session: Session) => void): SessionView {
  const problemBox = byId('session-problem', HTMLElement)
  const pill = byId('session-pill', HTMLElement)
  const refreshCount = byId('refresh-count', HTMLElement)
  const log = byId('session-log', HTMLOListElement)
  const meters = [
    createMeter('access', ({ accessTokenExpiresAt }) => ({ end: accessTokenExpiresAt })),
    createMeter('idle', ({ idleExpiresAt }) => ({ end: idleExpiresAt })),
    createMeter('absolute', ({ createdAt, expiresAt }) => ({ start: createdAt, end: expiresAt })),
  ]
  let session: Session | undefined
  let refreshes = 0
  let clockOffset = 0
  let shownCode = ''

  const serverNow = (): number => Date.now() + clockOffset

  const record = (event: SessionEvent): void => {
    const time = element('time', '', new Date().toLocaleTimeString())
    const item = element('li', `event event-${event}`, time, element('span', '', EVENT_TEXT[event]))
    log.prepend(item)
    while (log.children.length > LOG_LENGTH) log.lastElementChild?.remove()
    byId('session-log-empty', HTMLElement).hidden = true
    if (event !== 'refreshed') return
    refreshes += 1
    refreshCount.textContent = String(refreshes)
    flash(byId('refresh-flash', HTMLElement))
  }

  const show = (next: Session): void => {
    const first = session === undefined
    const events = compareSessions(session ?? null, next)
    const changed = first || (session === null) !== (next === null)
    // The state before the page opened is no event.
    if (!first) events.forEach(record)
    session = next
    for (const meter of meters) meter.update(next, serverNow())
    byId('session-live', HTMLElement).hidden = next === null
    byId('session-none', HTMLElement).hidden = next !== null
    if (next !== null) showFacts(next)
    showState(pill, next === null ? 'out' : 'in')
    if (changed) onChange(next)
  }

  const take = (outcome: Outcome): void => {
    // Written only on a change. Otherwise a screen reader would announce it every second.
    const code = outcome === null ? 'unreachable' : (outcome.problem?.code ?? '')
    if (code !== shownCode) showProblem(problemBox, outcome)
    shownCode = code
    if (outcome === null || outcome.problem !== null) {
      showState(pill, 'unknown')
      return
    }
    const next = readSession(outcome.text)
    if (next === undefined) return
    clockOffset = offsetOf(outcome, clockOffset)
    show(next)
  }

  let looking: Promise<void> | null = null
  const look = async (): Promise<void> => {
    // A poll in progress may have been sent before the change that the caller wants to see.
    await looking
    looking ??= call({ method: 'GET', path: '/auth/session' })
      .then(take)
      .finally(() => {
        looking = null
      })
    return looking
  }

  const poll = (): void => {
    void look().finally(() => setTimeout(poll, POLL_MS))
  }

  setInterval(() => {
    for (const meter of meters) meter.tick(serverNow())
  }, TICK_MS)
  poll()
  return { look }
}

const STATE_TEXT = { in: 'Signed in', out: 'Signed out', unknown: 'Unknown' }

function showState(pill: HTMLElement, state: keyof typeof STATE_TEXT): void {
  if (pill.dataset.state === state && pill.textContent === STATE_TEXT[state]) return
  pill.dataset.state = state
  pill.textContent = STATE_TEXT[state]
}

function showFacts(session: LiveSession): void {
  byId('session-since', HTMLElement).textContent = new Date(session.createdAt).toLocaleTimeString()
  byId('session-flow', HTMLElement).textContent = session.flow
  byId('session-wac', HTMLElement).textContent = session.wac ?? 'none'
  byId('session-not-refreshable', HTMLElement).hidden = session.refreshable
}

/** Offset of the server's clock. The Date header has whole seconds, so small differences are ignored. */
function offsetOf(answer: Answer, current: number): number {
  if (answer.serverTime === null) return current
  const offset = answer.serverTime + 500 - Date.now()
  return Math.abs(offset) < 2000 ? 0 : Math.abs(offset - current) < 2000 ? current : offset
}

function flash(target: HTMLElement): void {
  target.hidden = false
  target.classList.remove('flash')
  // Reading the layout between the two makes the browser start the animation again.
  void target.offsetWidth
  target.classList.add('flash')
}
