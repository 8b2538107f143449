import type { SignedIn } from '../../client/bff-client.ts'
import { byId, element } from './dom.ts'
import { type Received, refreshStatus } from './received.ts'
import type { Call } from './requests.ts'
import { flash } from './session-view.ts'

const STAGE = '/_sandbox/stage.json'
const SHOWN = 4

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
 * The three lanes: what this browser sent, what the server holds, what the platform received.
 *
 * @param read sends a request: for the button, and once for each session, so that the sandbox learns which is ours
 */
export function startStage(read: () => Promise<unknown>) {
  const received = byId('stage-received', HTMLOListElement)
  const absence = byId('stage-received-none', HTMLElement)
  const held = byId('stage-held', HTMLElement)
  const refreshable = byId('stage-held-refresh', HTMLElement)
  const line = byId('stage-refresh', HTMLElement)
  const readButton = byId('stage-read', HTMLButtonElement)
  let platform: Platform | null = null
  let session: SignedIn | null = null
  /** The session that the lanes show: the last one, after a sign-out. */
  let sessionId = ''
  let announced = ''
  let shown = ''
  /** Numbers of the access token that the server holds and of the one before it; 0: none is known. */
  let token = 0
  let replaced = 0

  const show = (): void => {
    const entries = (platform?.entries ?? []).filter(({ endpoint }) => /token|resource|revoke/.test(endpoint))
    const newest = entries.slice(-SHOWN).reverse()
    const key = JSON.stringify([platform, session?.sessionId])
    if (key === shown) return
    shown = key
    received.replaceChildren(...newest.map(describe))
    absence.hidden = newest.length > 0
    absence.textContent =
      platform?.connected === false
        ? 'This page cannot ask the platform. “npm run demo” and “docker compose up” show it here.'
        : 'nothing yet'
    // After many reads the list no longer holds the refresh: an accepted token tells the number too.
    const numbers = entries.map(({ issued, presented, status }) =>
      status === 200 ? (issued ?? presented) : 0,
    )
    showHeld(session === null ? 0 : Math.max(token, ...numbers.map(Number)))
    const status = refreshStatus(entries, { held: token, replaced })
    line.dataset.tone = status?.tone ?? 'good'
    // Written only on a change. Otherwise a screen reader would announce it at each look.
    if (line.textContent !== (status?.text ?? '')) line.textContent = status?.text ?? ''
  }

  const showHeld = (next: number): void => {
    const isReplaced = token !== 0 && next !== 0 && next !== token
    if (next === 0) replaced = 0
    else if (isReplaced) replaced = token
    token = next
    const name = token === 0 ? 'access token' : `access token #${token}`
    setChip(held, session === null ? 'none' : 'token', session === null ? 'no token' : name)
    refreshable.hidden = session?.refreshable !== true
    if (!isReplaced) return
    flash(line)
    flash(held)
    const row = received.querySelector<HTMLElement>('[data-refresh]')
    if (row !== null) flash(row)
  }

  const look = async (): Promise<void> => {
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
    byId('scenarios', HTMLElement).hidden = !connected
    byId('stage-hint', HTMLElement).hidden = session !== null || !connected
    show()
    if (connected && session !== null && announced !== sessionId) {
      announced = sessionId
      void readAndLook()
    }
  }

  const readAndLook = async (): Promise<void> => {
    await read()
    await look()
  }

  readButton.addEventListener('click', () => void readAndLook())

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

    /** Shows a request that this page is sending. Returns headers to add: the sandbox knows the session by them. */
    sent({ method, path }: Call): Record<string, string> {
      const sent = byId('stage-sent', HTMLElement)
      sent.replaceChildren(element('code', '', `${method} ${path}`))
      if (session !== null) sent.append(' ', chip('cookie', 'session cookie'))
      if (platform?.connected !== true || session === null) return {}
      // https://www.w3.org/TR/trace-context/#traceparent-header: version, trace, span, flags.
      return { traceparent: `00-${sessionId.padStart(32, '0')}-${sessionId.padStart(16, '0')}-00` }
    },

    /** Shows who is signed in; null: nobody. */
    showSession(next: SignedIn | null): void {
      session = next
      const isNew = next !== null && next.sessionId !== sessionId
      if (isNew) {
        sessionId = next.sessionId
        token = 0
        replaced = 0
        platform = platform && { ...ABSENT, connected: platform.connected }
      }
      readButton.hidden = next === null
      byId('stage-hint', HTMLElement).hidden = next !== null || platform?.connected !== true
      setChip(
        byId('stage-cookie', HTMLElement),
        next === null ? 'none' : 'cookie',
        next === null ? 'nothing' : 'session cookie',
      )
      if (next === null) byId('stage-sent', HTMLElement).textContent = 'nothing yet'
      show()
      if (isNew) void look()
    },
  }
}

function setChip(chip: HTMLElement, kind: string, text: string): void {
  chip.dataset.kind = kind
  if (chip.textContent !== text) chip.textContent = text
}

function describe(entry: Received): HTMLElement {
  const { method, path, endpoint, kind, presented, issued, status, fault } = entry
  const item = element('li', 'wire', element('code', '', `${method} ${path}`), ' ')
  const add = (chipKind: string, text: string): void => item.append(chip(chipKind, text), ' ')
  if (endpoint === 'resource' && presented !== null) add('token', `access token #${presented} ••••`)
  if (endpoint === 'revoke') add('lost', 'token revoked')
  if (endpoint === 'token') {
    const isRefresh = kind === 'refresh_token'
    add('token', isRefresh ? 'refresh token ••••' : 'sign-in code')
    if (issued !== null)
      add(status === 200 ? 'new' : 'lost', `→ token #${issued}${status === 200 ? '' : ', answer lost'}`)
    if (isRefresh && status === 200) item.dataset.refresh = ''
  }
  if (fault !== null && issued === null) add('lost', status === null ? 'no answer' : `answer ${status}`)
  else if (status !== null && status >= 400) add('lost', `answer ${status}`)
  return item
}

function chip(kind: string, text: string): HTMLElement {
  const made = element('span', 'chip', text)
  made.dataset.kind = kind
  return made
}
