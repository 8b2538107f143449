import { BffError, onSessionChange, type Session, type SignedIn, session } from '../../client/bff-client.ts'
import { byId, element } from './dom.ts'
import { createMeter } from './meter.ts'
import { setNotice } from './notice.ts'
import { oneAtATime } from './one-at-a-time.ts'
import { compareSessions, endingText, type SessionEvent } from './session.ts'

const TICK_MS = 250
const LOG_LENGTH = 8
const BADGE_MS = 6_000

const EVENT_TEXT: Record<SessionEvent, string> = {
  signed_in: 'Signed in',
  replaced: 'Signed in again',
  refreshed: 'Access token replaced by the server',
  extended: 'Your requests moved the idle limit',
  signed_out: 'Signed out',
  ended: 'Session ended',
}

export interface SessionView {
  /** Asks the server now. Resolves when the page shows the answer. */
  look(): Promise<void>
  /** The session that the page shows; null if nobody is signed in. */
  current(): SignedIn | null
  /** The server's clock, milliseconds since 1970. */
  now(): number
}

/**
 * Shows the session, whichever tab changed it.
 *
 * @param onChange called with the first answer, and when another session or none is there
 */
export function startSessionView(onChange: (session: Session, first: boolean) => void): SessionView {
  const pill = byId('session-pill', HTMLElement)
  const log = byId('session-log', HTMLOListElement)
  const at = (instant: string) => Date.parse(instant)
  const meterOf = (name: string, spanOf: Parameters<typeof createMeter>[2]) =>
    createMeter(byId(`${name}-remaining`, HTMLElement), byId(`${name}-progress`, HTMLProgressElement), spanOf)
  const meters = [
    meterOf('access', ({ accessTokenExpiresAt }) => ({ end: at(accessTokenExpiresAt) })),
    meterOf('idle', ({ idleExpiresAt }) => ({ end: at(idleExpiresAt) })),
    meterOf('absolute', ({ createdAt, expiresAt }) => ({ start: at(createdAt), end: at(expiresAt) })),
    createMeter(
      byId('stage-life-text', HTMLElement),
      byId('stage-life', HTMLProgressElement),
      ({ accessTokenExpiresAt }) => ({ end: at(accessTokenExpiresAt) }),
    ),
  ]
  let current: SignedIn | null | undefined
  const badge = byId('refresh-flash', HTMLElement)
  let badgeTimer: ReturnType<typeof setTimeout> | undefined
  let refreshes = 0
  let clockOffset = 0

  const serverNow = (): number => Date.now() + clockOffset

  const record = (event: SessionEvent, reason: string | undefined): void => {
    const time = element('time', '', new Date().toLocaleTimeString())
    const text = event === 'ended' ? `${EVENT_TEXT[event]}. ${endingText(reason)}` : EVENT_TEXT[event]
    log.prepend(element('li', `event event-${event}`, time, element('span', '', text)))
    while (log.children.length > LOG_LENGTH) log.lastElementChild?.remove()
    byId('session-log-empty', HTMLElement).hidden = true
    if (event !== 'refreshed') return
    refreshes += 1
    byId('refresh-count', HTMLElement).textContent = String(refreshes)
    flash(badge)
    clearTimeout(badgeTimer)
    badgeTimer = setTimeout(() => {
      badge.hidden = true
    }, BADGE_MS)
  }

  const show = (found: Session): void => {
    const next = found.authenticated ? found : null
    const first = current === undefined
    const changed = first || current?.sessionId !== next?.sessionId
    // The state before the page opened is no event.
    const reason = found.authenticated ? undefined : (found.ended?.reason ?? found.reason)
    if (!first) for (const event of compareSessions(current ?? null, next, reason)) record(event, reason)
    current = next
    if (next !== null) clockOffset = at(next.now) - Date.now()
    for (const meter of meters) meter.update(next, serverNow())
    byId('session-live', HTMLElement).hidden = next === null
    byId('session-none', HTMLElement).hidden = next !== null
    if (next !== null) showFacts(next)
    showState(pill, next === null ? 'out' : 'in', next?.user?.name)
    if (changed) onChange(found, first)
  }

  const ask = async (): Promise<void> => {
    try {
      show(await session({ waitMs: 0 }))
      setNotice('server', null)
    } catch (error) {
      showState(pill, 'unknown')
      setNotice('server', outageNotice(error))
    }
  }

  const look = oneAtATime(ask)

  onSessionChange(show)
  setInterval(() => {
    for (const meter of meters) meter.tick(serverNow())
  }, TICK_MS)
  return { look, current: () => current ?? null, now: serverNow }
}

function outageNotice(error: unknown) {
  const unreachable = !(error instanceof BffError) || error.code === 'unreachable'
  return {
    tone: 'bad' as const,
    title: unreachable ? 'The server cannot be reached.' : 'The server cannot read the session now.',
    text: 'This does not sign you out. This page asks again every second.',
  }
}

const STATE_TEXT = { in: 'Signed in', out: 'Signed out', unknown: 'Unknown' }

function showState(pill: HTMLElement, state: keyof typeof STATE_TEXT, name?: string | null): void {
  const who = name == null ? '' : ` as ${name}`
  if (pill.dataset.state === state && pill.textContent === STATE_TEXT[state] + who) return
  pill.dataset.state = state
  pill.replaceChildren(STATE_TEXT[state], element('span', 'pill-name', who))
}

function showFacts(session: SignedIn): void {
  byId('session-since', HTMLElement).textContent = new Date(session.createdAt).toLocaleTimeString()
  byId('session-flow', HTMLElement).textContent = session.flow
  byId('session-wac', HTMLElement).textContent = session.wac ?? 'none'
  byId('session-bound', HTMLElement).textContent = session.bound ? 'yes' : 'no'
  byId('session-not-refreshable', HTMLElement).hidden = session.refreshable
}

/** Shows the element and starts the animation of its class `flash` from the beginning. */
export function flash(target: HTMLElement): void {
  target.hidden = false
  target.classList.remove('flash')
  // Reading the layout between the two makes the browser start the animation again.
  void target.offsetWidth
  target.classList.add('flash')
}
