import { LRUCache } from 'lru-cache'
import type { RecordKey, SessionStore } from '../store/store.ts'

/** Marks the start of a read: its result must not be cached if the session has changed since. */
interface ReadGuard {
  readonly key: RecordKey
  /** Number of changes announced before the read began. */
  readonly since: number
  /** Whether the store was live then; otherwise changes may have been missed. */
  readonly storeIsLive: boolean
}

/**
 * Sessions by the raw cookie value. `get` returns nothing unless change messages are proven to arrive, and
 * an entry is dropped when its session changes on any replica.
 */
export interface SessionCache<Entry extends { key: RecordKey }> {
  get(cookie: string): Entry | null
  /** To be called before the read whose result is put. */
  beginRead(key: RecordKey): ReadGuard
  put(cookie: string, entry: Entry, guard: ReadGuard): void
  drop(key: RecordKey): void
}

/** Changes that are remembered for reads under way; the result of a read during which more happen is not cached. */
const REMEMBERED_CHANGES = 10_000

interface SessionCacheOptions {
  store: Pick<SessionStore, 'onChange' | 'health'>
  /** Entries at most. */
  max: number
}

export function createSessionCache<Entry extends { key: RecordKey }>({
  store,
  max,
}: SessionCacheOptions): SessionCache<Entry> {
  let entries = createEntries<Entry>(max)
  /** Changes announced so far. */
  let changes = 0
  // Reads that began before this change cannot be checked any more, so their results are not cached.
  let forgottenUpTo = 0
  /** The number of the newest change of each session. */
  const changeNumbers = new LRUCache<RecordKey, number>({
    max: REMEMBERED_CHANGES,
    dispose(change, _key, why) {
      if (why === 'evict') forgottenUpTo = Math.max(forgottenUpTo, change)
    },
  })

  store.onChange(drop)
  store.health.onLive((live) => {
    if (live) return
    // Changes of the meantime are never announced.
    changes += 1
    forgottenUpTo = changes
    entries = createEntries(max)
  })

  function drop(key: RecordKey): void {
    changes += 1
    changeNumbers.set(key, changes)
    entries.drop(key)
  }

  function isStale({ key, since }: ReadGuard): boolean {
    return since < forgottenUpTo || since < (changeNumbers.peek(key) ?? 0)
  }

  return {
    get(cookie) {
      // Callers are read again after a minute, so eviction by insertion order is enough. Moving one at each hit costs time.
      return store.health.isLive() ? (entries.peek(cookie) ?? null) : null
    },
    beginRead(key) {
      return { key, since: changes, storeIsLive: store.health.isLive() }
    },
    put(cookie, entry, guard) {
      if (isStale(guard)) return
      if (guard.storeIsLive) entries.set(cookie, entry)
    },
    drop,
  }
}

/** Entries by cookie, which can be dropped by the session that they are of. */
interface Entries<Entry extends { key: RecordKey }> {
  peek(cookie: string): Entry | undefined
  set(cookie: string, entry: Entry): void
  drop(key: RecordKey): void
}

/** `max`: entries at most; those that were put first go first. */
function createEntries<Entry extends { key: RecordKey }>(max: number): Entries<Entry> {
  const cookiesOf = new Map<RecordKey, Set<string>>()
  // In the order in which they were put. A plain map, because each request looks here.
  const entries = new Map<string, Entry>()

  function remove(cookie: string): void {
    const entry = entries.get(cookie)
    if (entry === undefined) return
    entries.delete(cookie)
    const cookies = cookiesOf.get(entry.key)
    cookies?.delete(cookie)
    if (cookies?.size === 0) cookiesOf.delete(entry.key)
  }

  return {
    peek: (cookie) => entries.get(cookie),
    set(cookie, entry) {
      remove(cookie)
      entries.set(cookie, entry)
      const cookies = cookiesOf.get(entry.key) ?? new Set()
      cookiesOf.set(entry.key, cookies.add(cookie))
      if (entries.size > max) remove(entries.keys().next().value!)
    },
    drop(key) {
      for (const cookie of [...(cookiesOf.get(key) ?? [])]) remove(cookie)
    },
  }
}
