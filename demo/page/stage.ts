import type { SignedIn } from '../../client/bff-client.ts'
import { byId } from './dom.ts'
import { createJourney, rowsOf, type Trip } from './journey.ts'
import { oneAtATime } from './one-at-a-time.ts'
import { type Received, refreshStatus } from './received.ts'
import type { Call, Sent } from './requests.ts'
import { flash } from './session-view.ts'

const STAGE = '/_sandbox/stage.json'
/** Requests of this page that the lanes may still have to show. */
const KEPT_TRIPS = 130

const NO_TOKEN = {
  tone: 'none',
  text: 'An access token lives 20 seconds in this demo. The server replaces it before it expires.',
}

/** What the sandbox tells this page about its own session. If the page cannot ask it, `connected` is false. */
interface Platform {
  connected: boolean
  /** Number of access tokens issued to this session; 0 until the sandbox has received a request of this page. */
  issued: number
  entries: Received[]
}

const ABSENT: Platform = { connected: false, issued: 0, entries: [] }

export type Stage = ReturnType<typeof startStage>

/**
 * The three lanes, the requests between them, and what became of the newest refresh.
 *
 * @param read sends a request: for the button, and once for each session, so that the sandbox learns which is ours
 */
export function startStage(read: () => Promise<unknown>) {
  const held = byId('stage-held', HTMLElement)
  const refreshable = byId('stage-held-refresh', HTMLElement)
  const line = byId('stage-refresh', HTMLElement)
  const readButton = byId('stage-read', HTMLButtonElement)
  const nothing = byId('journey-none', HTMLElement)
  const drawJourney = createJourney(byId('journey', HTMLOListElement))
  /** No other tab of this session has the same spans. */
  const spans = crypto.getRandomValues(new Uint32Array(1))[0]!.toString(16).padStart(8, '0')
  let trips: Trip[] = []
  let sentSoFar = 0
  let platform: Platform | null = null
  let session: SignedIn | null = null
  /** The session that the lanes show: the last one, after a sign-out. */
  let sessionId = ''
  let announced = ''
  /** Numbers of the access token that the server holds and of the one before it; 0: none is known. */
  let token = 0
  let replaced = 0

  const show = (): void => {
    const entries = (platform?.entries ?? []).filter(({ endpoint }) => /token|resource|revoke/.test(endpoint))
    const rows = rowsOf(trips, entries)
    drawJourney(rows)
    nothing.hidden = rows.length > 0
    byId('journey-sign-in', HTMLElement).hidden = session !== null || platform?.connected !== true
    byId('journey-no-platform', HTMLElement).hidden = platform?.connected !== false
    // After many reads the list no longer holds the refresh: an accepted token tells the number too.
    const numbers = entries.map(({ issued, presented, status }) =>
      status === 200 ? (issued ?? presented) : 0,
    )
    showHeld(session === null ? 0 : Math.max(token, ...numbers.map(Number)))
    const { tone, text } = refreshStatus(entries, { held: token, replaced }) ?? NO_TOKEN
    line.dataset.tone = tone
    // Written only on a change. Otherwise a screen reader would announce it at each look.
    if (line.textContent !== text) line.textContent = text
  }

  const showHeld = (next: number): void => {
    const isReplaced = token !== 0 && next !== 0 && next !== token
    if (next === 0) replaced = 0
    else if (isReplaced) replaced = token
    token = next
    const name = token === 0 ? 'access token' : `access token #${token}`
    setChip(held, session === null ? 'none' : 'token', session === null ? 'no token' : name)
    refreshable.hidden = session?.refreshable !== true
    if (isReplaced) flash(held)
  }

  const ask = async (): Promise<void> => {
    // The answer does not change while the page is open: without the sandbox there is nothing to ask.
    if (platform?.connected === false) return
    const asked = sessionId
    try {
      const response = await fetch(`${STAGE}?session=${asked}`, { cache: 'no-store' })
      const found = (await response.json()) as Partial<Platform>
      // Another session began meanwhile: this answer is about the one before it.
      if (asked === sessionId) platform = { ...ABSENT, ...found }
    } catch {
      // The next look asks again.
    }
    const connected = platform?.connected === true
    byId('stage', HTMLElement).dataset.connected = String(connected)
    byId('attacks', HTMLElement).dataset.connected = String(connected)
    show()
    if (connected && session !== null && announced !== sessionId) {
      announced = sessionId
      void read()
    }
  }

  const look = oneAtATime(ask)

  readButton.addEventListener('click', () => void read())

  return {
    /** Asks the sandbox what it received. */
    look,

    /** The last answer of the sandbox. */
    platform: () => platform ?? ABSENT,

    /** Begins a scenario of the sandbox; `seconds` shortens it. */
    async begin(scenario: string, seconds?: number): Promise<void> {
      const query = seconds === undefined ? '' : `?seconds=${seconds.toFixed(1)}`
      await fetch(`/_sandbox/scenario/${scenario}${query}`, { method: 'POST' })
      await look()
    },

    /** Shows a request that this page is sending; `copied`: one that another browser sends with a copy of the cookie. */
    sent({ method, path }: Call, copied = false): Sent {
      sentSoFar += 1
      const span = spans + sentSoFar.toString(16).padStart(8, '0')
      const cookie = session === null ? 'none' : copied ? 'copied' : 'own'
      const trip: Trip = {
        span,
        at: Date.now(),
        name: `${method} ${path.split('?')[0]}`,
        cookie,
        status: null,
      }
      trips = [...trips, trip].slice(-KEPT_TRIPS)
      show()
      const arrived = (status: number): void => {
        trip.status = status
        show()
        void look()
      }
      if (platform?.connected !== true || session === null) return { headers: {}, arrived }
      // https://www.w3.org/TR/trace-context/#traceparent-header: version, trace, span, flags.
      return { headers: { traceparent: `00-${sessionId.padStart(32, '0')}-${span}-00` }, arrived }
    },

    /** Shows who is signed in; null: nobody. */
    showSession(next: SignedIn | null): void {
      session = next
      const isNew = next !== null && next.sessionId !== sessionId
      if (isNew) {
        sessionId = next.sessionId
        token = 0
        replaced = 0
        trips = []
        platform = platform && { ...ABSENT, connected: platform.connected }
      }
      readButton.disabled = next === null
      setChip(
        byId('stage-cookie', HTMLElement),
        next === null ? 'none' : 'cookie',
        next === null ? 'no cookie' : 'session cookie',
      )
      show()
      if (isNew) void look()
    },
  }
}

function setChip(chip: HTMLElement, kind: string, text: string): void {
  chip.dataset.kind = kind
  if (chip.textContent !== text) chip.textContent = text
}
