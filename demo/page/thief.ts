import { request, session } from '../../client/bff-client.ts'
import { byId, element } from './dom.ts'

/** Tokens of the sandbox, JSON Web Tokens, bearer headers, and members that are named like tokens. */
const TOKEN =
  /\b(?:at|rt|code)-[\w-]{43}|\beyJ[\w-]{10,}\.[\w-]+\.[\w-]*|\bBearer +[\w.~+/-]{16,}|(?:access|refresh|id)_token["'=:\s]+[\w.~+/-]{16,}/gi
const PLANTED = 'access_token'

/** One place, and all the text that a script finds there. */
interface Place {
  name: string
  read: () => Promise<string[]> | string[]
  /** What there is, in a few words. */
  tell: (found: string[]) => string
}

const count =
  (word: string, empty = 'empty') =>
  ({ length }: string[]) =>
    length === 0 ? empty : `${length} ${length === 1 ? word : `${word}s`}`

const PLACES: Place[] = [
  {
    name: 'document.cookie',
    read: () => document.cookie.split('; ').filter((pair) => pair !== ''),
    tell: count('cookie', 'empty: the cookie is HttpOnly'),
  },
  { name: 'localStorage', read: () => entriesOf(localStorage), tell: count('item') },
  { name: 'sessionStorage', read: () => entriesOf(sessionStorage), tell: count('item') },
  { name: 'IndexedDB', read: readDatabases, tell: count('record') },
  { name: 'Cache storage', read: readCaches, tell: count('response') },
  {
    name: 'requests of the page, overheard',
    read: readPatchedFetch,
    tell: (found) => `${found.length} headers and bodies`,
  },
  {
    name: 'what /auth/session returns',
    read: async () => [JSON.stringify(await session({ waitMs: 0 }))],
    tell: ([text = '{}']) => `its members: ${Object.keys(JSON.parse(text) as object).join(', ')}`,
  },
  {
    name: 'the page itself',
    read: () => [document.documentElement.outerHTML, location.href, document.referrer, window.name],
    tell: () => 'all its text, its address, its referrer and its name',
  },
]

/** What a scenario has shown. `bad`: something that this product should prevent. */
export interface Verdict {
  tone: 'good' | 'plain' | 'bad'
  text: string
}

export type Thief = ReturnType<typeof createThief>

/**
 * Searches this browser as an injected script would, and lists what it finds.
 *
 * @param isSignedIn whether there is anything to steal
 */
export function createThief(isSignedIn: () => boolean) {
  const list = byId('steal-tries', HTMLOListElement)
  const hasPlanted = (): boolean => localStorage.getItem(PLANTED) !== null

  const search = async (): Promise<Verdict> => {
    const rows: HTMLElement[] = []
    const places: string[] = []
    let searched = 0
    for (const { name, read, tell } of PLACES) {
      const texts = await Promise.resolve()
        .then(read)
        .catch(() => null)
      if (texts !== null) searched += 1
      const tokens = new Set(texts?.flatMap((text) => text.match(TOKEN) ?? []))
      if (tokens.size > 0) places.push(name)
      const row = element(
        'li',
        '',
        element('span', 'try-place', name),
        element('span', 'hint', texts === null ? 'not available here' : tell(texts)),
        element('b', '', count('token', 'no token')([...tokens])),
      )
      row.dataset.found = String(tokens.size)
      rows.push(row)
    }
    list.replaceChildren(...rows)
    byId('steal-none', HTMLElement).hidden = true
    byId('steal-cookie', HTMLElement).hidden = !isSignedIn()
    if (places.length > 0)
      return {
        tone: 'bad',
        text: `A token is in ${places.join(' and ')}. A script that copies it can use it from anywhere until it expires.`,
      }
    const rest = isSignedIn()
      ? 'A script can send requests while this page is open, but there is no token to copy.'
      : 'Sign in and search again.'
    return { tone: 'good', text: `0 tokens found in ${searched} places. ${rest}` }
  }

  return {
    search,
    hasPlanted,
    /** Puts a token into localStorage, as a page does that keeps its tokens itself, or removes it. Then it searches. */
    async plantOrRemove(): Promise<Verdict> {
      // This one is made up, and opens nothing.
      const random = crypto.getRandomValues(new Uint8Array(43))
      if (hasPlanted()) localStorage.removeItem(PLANTED)
      else localStorage.setItem(PLANTED, `at-${[...random].map((byte) => (byte % 36).toString(36)).join('')}`)
      return await search()
    },
  }
}

function entriesOf(storage: Storage): string[] {
  return Object.entries(storage).map(([name, value]) => `${name}: ${String(value)}`)
}

async function readDatabases(): Promise<string[]> {
  const texts: string[] = []
  for (const { name = '' } of await indexedDB.databases()) {
    const database = await settled(indexedDB.open(name))
    for (const store of database.objectStoreNames) {
      const records = await settled(database.transaction(store).objectStore(store).getAll())
      texts.push(...records.map((record) => JSON.stringify(record)))
    }
    database.close()
  }
  return texts
}

function settled<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result)
    request.onerror = () => reject(request.error)
  })
}

async function readCaches(): Promise<string[]> {
  const texts: string[] = []
  for (const name of await caches.keys()) {
    const cache = await caches.open(name)
    for (const response of await cache.matchAll()) texts.push(await response.text())
  }
  return texts
}

/** Puts a wrapper in the place of `fetch`, lets the page work, and returns all that passed through it. */
async function readPatchedFetch(): Promise<string[]> {
  const texts: string[] = []
  const original = window.fetch
  window.fetch = async (...args) => {
    const sent = new Request(...args)
    texts.push([sent.url, ...[...sent.headers].map((pair) => pair.join(': '))].join('\n'))
    const response = await original(...args)
    texts.push([...response.headers].map((pair) => pair.join(': ')).join('\n'), await response.clone().text())
    return response
  }
  try {
    await session({ waitMs: 0 })
    await request('/flux/temperature?format=JSON', { waitMs: 0 }).catch(() => {})
  } finally {
    window.fetch = original
  }
  return texts
}
