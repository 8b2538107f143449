import { element } from './dom.ts'
import type { Received } from './received.ts'

/** A request that this page has sent, or another browser with a copy of its cookie. */
export interface Trip {
  /** Span id of its `traceparent`. */
  span: string
  /** Epoch milliseconds. */
  at: number
  /** Method and path. */
  name: string
  /** The cookie that it has. */
  cookie: 'own' | 'copied' | 'none'
  /** Status that came; 0: no response; null: none yet. */
  status: number | null
}

/** One request on its way: from the browser to the server, and from there to the platform. */
export interface Row {
  key: string
  at: number
  /** null: the server sent it by itself, or repeated it. */
  trip: Trip | null
  /** null: the platform has not received it. */
  received: Received | null
  /** How many equal ones this row stands for. */
  times: number
}

/** Requests with less between them are shown as one. */
const BURST_MS = 500
const SHOWN = 4

/** What this page sent and what the platform received, as one list, oldest first. */
export function rowsOf(trips: readonly Trip[], received: readonly Received[]): Row[] {
  const open = new Map(trips.map((trip) => [trip.span, trip]))
  const rows = received.map((entry): Row => {
    const trip = open.get(entry.span ?? '') ?? null
    // A repetition of the server has the same span.
    open.delete(entry.span ?? '')
    return {
      key: trip?.span ?? `platform-${entry.seq}`,
      at: trip?.at ?? entry.at,
      trip,
      received: entry,
      times: 1,
    }
  })
  for (const trip of open.values()) rows.push({ key: trip.span, at: trip.at, trip, received: null, times: 1 })
  return rows.toSorted((a, b) => a.at - b.at).reduce<Row[]>(join, [])
}

function join(rows: Row[], row: Row): Row[] {
  const last = rows.at(-1)
  if (last === undefined || row.at - last.at > BURST_MS || kindOf(last) !== kindOf(row)) return [...rows, row]
  last.times += 1
  last.at = row.at
  return rows
}

function kindOf({ trip, received }: Row): string {
  const { seq, at, span, ...what } = received ?? {}
  return JSON.stringify([trip && [trip.name, trip.cookie, trip.status], what])
}

/** Draws the newest rows as arrows from lane to lane. What has not changed stays as it is: an arrow moves once. */
export function createJourney(list: HTMLOListElement): (rows: readonly Row[]) => void {
  const items = new Map<string, HTMLLIElement>()
  return (rows) => {
    const newest = rows.slice(-SHOWN).reverse()
    for (const [at, row] of newest.entries()) {
      const item = items.get(row.key) ?? element('li', 'trip')
      items.set(row.key, item)
      for (const [place, part] of partsOf(row).entries()) {
        const before = item.children[place]
        if (before === undefined) item.append(part)
        else if (before.outerHTML !== part.outerHTML) before.replaceWith(part)
      }
      if (list.children[at] !== item) list.insertBefore(item, list.children[at] ?? null)
    }
    while (list.children.length > newest.length) list.lastElementChild?.remove()
    const keys = new Set(newest.map(({ key }) => key))
    for (const key of items.keys()) if (!keys.has(key)) items.delete(key)
  }
}

/** What came back to the browser, its request, the request of the server, and what the platform answered. */
function partsOf({ trip, received, times }: Row): HTMLElement[] {
  return [
    // For narrow lanes, whose arrows have no room for it.
    element('code', 'trip-name', trip?.name ?? `${received?.method} ${received?.path}`),
    endOf('trip-back', trip === null ? null : trip.status, trip !== null && trip.status !== null),
    trip === null ? element('span', 'leg-none') : firstLeg(trip, times),
    received === null ? element('span', 'leg-none') : secondLeg(received, times),
    endOf('trip-end', received?.status ?? null, received !== null && isOver(received)),
  ]
}

function isOver({ status, fault }: Received): boolean {
  return status !== null || fault !== null
}

function endOf(className: string, status: number | null, over: boolean): HTMLElement {
  const end = element('span', className, over ? (status ? String(status) : 'lost') : '')
  end.dataset.tone = status !== null && status > 0 && status < 400 ? 'good' : 'warn'
  return end
}

const COOKIES = {
  own: ['cookie', 'session cookie'],
  copied: ['lost', 'copied cookie'],
  none: ['none', 'no cookie'],
} as const

function firstLeg({ name, cookie }: Trip, times: number): HTMLElement {
  const [kind, text] = COOKIES[cookie]
  return leg('cookie', name, times, chip(kind, text))
}

function secondLeg(
  { endpoint, kind, method, path, presented, issued, status, fault }: Received,
  times: number,
) {
  const name = `${method} ${path}`
  if (endpoint === 'revoke') return leg('token', name, times, chip('token', 'token to revoke'))
  if (endpoint === 'resource')
    return leg(
      'token',
      name,
      times,
      chip('token', presented === null ? 'no token' : `access token #${presented}`),
    )
  const brings = chip('token', kind === 'refresh_token' ? 'refresh token' : 'sign-in code')
  const made = leg('refresh', name, times, brings)
  if (issued !== null) {
    const isLost = status !== 200 && fault !== null
    made.firstElementChild?.append(
      ' ',
      chip(isLost ? 'lost' : 'new', isLost ? `#${issued} lost` : `→ #${issued}`),
    )
  }
  return made
}

function leg(kind: string, name: string, times: number, ...chips: HTMLElement[]): HTMLElement {
  const text = element('span', 'leg-text', element('code', '', name), ' ')
  for (const one of chips) text.append(one)
  if (times > 1) text.append(' ', element('b', 'leg-times', `× ${times}`))
  const made = element('span', 'leg', text)
  made.dataset.kind = kind
  return made
}

/** A label with the colours of its kind. */
function chip(kind: string, text: string): HTMLElement {
  const made = element('span', 'chip', text)
  made.dataset.kind = kind
  return made
}
