import { byId, element } from './dom.ts'
import type { Call } from './requests.ts'
import { flash } from './session-view.ts'

const STAGE = '/_sandbox/stage.json'
const SHOWN = 4

/** A request as the sandbox received it; tokens are numbers. `src/sandbox/stage.ts` writes it. */
export interface Received {
  seq: number
  endpoint: 'authorize' | 'token' | 'revoke' | 'resource' | 'unknown'
  kind: string | null
  method: string
  path: string
  outcome: string | null
  /** null where the sandbox sent no complete response. */
  status: number | null
  fault: string | null
  presented: number | null
  issued: number | null
}

/** What the sandbox tells this page. `npm run demo` answers so; elsewhere `connected` is false. */
export interface Platform {
  connected: boolean
  day: string
  counters: Record<string, number>
  entries: Received[]
}

const ABSENT: Platform = { connected: false, day: 'fine', counters: {}, entries: [] }

export type Stage = ReturnType<typeof startStage>

/**
 * The three lanes: what this browser sent, what the server holds, what the platform received.
 *
 * @param onRead called by the button that sends a request
 */
export function startStage(onRead: () => void) {
  const received = byId('stage-received', HTMLOListElement)
  const held = byId('stage-held', HTMLElement)
  const line = byId('stage-refresh', HTMLElement)
  const readButton = byId('stage-read', HTMLButtonElement)
  let platform: Platform | null = null
  let shown = ''
  let token: number | null = null
  let signedIn = false

  const show = (): void => {
    const entries = (platform?.entries ?? []).filter(({ endpoint }) => /token|resource|revoke/.test(endpoint))
    const newest = entries.slice(-SHOWN).reverse()
    const key = JSON.stringify([newest, signedIn])
    if (key === shown) return
    shown = key
    received.replaceChildren(...newest.map(describe))
    byId('stage-received-none', HTMLElement).hidden = newest.length > 0
    // After many reads the list no longer holds the refresh: an accepted token tells the number too.
    const numbers = entries.map(({ issued, presented, status }) =>
      status === 200 ? (issued ?? presented) : null,
    )
    showHeld(Math.max(token ?? 0, ...numbers.map(Number)) || null)
  }

  const showHeld = (next: number | null): void => {
    const before = token
    token = signedIn ? next : null
    const known = platform?.connected === true && token !== null
    setChip(
      held,
      signedIn ? 'token' : 'none',
      !signedIn ? 'no token' : known ? `access token #${token}` : 'the tokens',
    )
    if (!known || before === null) line.textContent = known ? 'The next refresh appears here.' : ''
    if (!known || before === null || before === token) return
    line.textContent = `Access token #${before} became #${token}. Nothing moved on the left.`
    flash(line)
    flash(held)
    const row = received.querySelector<HTMLElement>('[data-refresh]')
    if (row !== null) flash(row)
  }

  const look = async (): Promise<void> => {
    // The answer does not change while the page is open: without the sandbox there is nothing to ask.
    if (platform?.connected === false) return
    try {
      platform = { ...ABSENT, ...((await (await fetch(STAGE, { cache: 'no-store' })).json()) as Platform) }
    } catch {
      platform ??= null
    }
    byId('stage', HTMLElement).dataset.connected = String(platform?.connected === true)
    byId('day', HTMLElement).hidden = platform?.connected !== true
    show()
  }

  readButton.addEventListener('click', onRead)

  return {
    /** Asks the sandbox what it received. */
    look,

    /** The last answer of the sandbox. */
    platform: () => platform ?? ABSENT,

    /** Begins a fault of the platform; `seconds` shortens it. */
    async begin(day: string, seconds?: number): Promise<void> {
      const query = seconds === undefined ? '' : `?seconds=${seconds.toFixed(1)}`
      await fetch(`/_sandbox/day/${day}${query}`, { method: 'POST' })
      await look()
    },

    /** Shows a request that this page is sending. */
    sent({ method, path }: Call): void {
      const cookie = element('span', 'chip', 'cookie, HttpOnly')
      cookie.dataset.kind = 'cookie'
      byId('stage-sent', HTMLElement).replaceChildren(element('code', '', `${method} ${path}`), ' ', cookie)
    },

    showSession(next: boolean): void {
      signedIn = next
      readButton.hidden = !next
      byId('stage-hint', HTMLElement).hidden = next || platform?.connected !== true
      setChip(
        byId('stage-cookie', HTMLElement),
        next ? 'cookie' : 'none',
        next ? 'cookie, HttpOnly' : 'nothing',
      )
      if (!next) byId('stage-sent', HTMLElement).textContent = 'nothing yet'
      show()
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
  const chip = (dataKind: string, text: string): void => {
    const made = element('span', 'chip', text)
    made.dataset.kind = dataKind
    item.append(made, ' ')
  }
  if (endpoint === 'resource' && presented !== null) chip('token', `access token #${presented} ••••`)
  if (endpoint === 'revoke') chip('lost', 'token revoked')
  if (endpoint === 'token') {
    const isRefresh = kind === 'refresh_token'
    chip('token', isRefresh ? 'refresh token ••••' : 'code, once')
    if (issued !== null) chip(status === 200 ? 'new' : 'lost', `→ #${issued}${status === 200 ? '' : ' lost'}`)
    if (isRefresh && status === 200) item.dataset.refresh = ''
  }
  if (fault !== null && issued === null) chip('lost', status === null ? 'no answer' : `answer ${status}`)
  else if (status !== null && status >= 400) chip('lost', `answer ${status}`)
  return item
}
