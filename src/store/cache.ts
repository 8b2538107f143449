import { LRUCache } from 'lru-cache'
import type { RecordKey, SessionStore } from './port.ts'

/** A read that was begun before its session changed must not be kept. */
export interface ReadGuard {
  readonly key: RecordKey
  /** How many changes had been told when it was begun; -1 when it must not be kept in any case. */
  readonly since: number
}

/**
 * What is known of live sessions, by the raw cookie value, in front of the store. Nothing is handed
 * out unless change messages are proven to arrive; what changed, wherever, is dropped.
 */
export interface SessionCache<Entry extends { key: RecordKey }> {
  get(cookie: string): Entry | null
  /** To be called before the read whose result may be put. */
  reading(key: RecordKey): ReadGuard
  put(cookie: string, entry: Entry, guard: ReadGuard): void
  drop(key: RecordKey): void
}

/** Changes that are remembered for the reads under way; a read that saw more go by is not kept. */
const REMEMBERED_CHANGES = 10_000

export interface SessionCacheOptions {
  store: SessionStore
  /** Entries at most. */
  max: number
}

export function createSessionCache<Entry extends { key: RecordKey }>({
  store,
  max,
}: SessionCacheOptions): SessionCache<Entry> {
  const cookiesOf = new Map<RecordKey, Set<string>>()
  const entries = new LRUCache<string, Entry>({ max, dispose: (entry, cookie) => forget(entry.key, cookie) })
  let changes = 0
  // Reads under way are not listed: one that nobody ends would stay for ever.
  let forgottenUpTo = 0
  const changedAt = new LRUCache<RecordKey, number>({
    max: REMEMBERED_CHANGES,
    dispose(at, _key, why) {
      if (why === 'evict') forgottenUpTo = Math.max(forgottenUpTo, at)
    },
  })

  store.onChange(drop)
  store.onMessagesLost(() => {
    changes += 1
    forgottenUpTo = changes
    entries.clear()
  })

  function forget(key: RecordKey, cookie: string): void {
    const cookies = cookiesOf.get(key)
    cookies?.delete(cookie)
    if (cookies?.size === 0) cookiesOf.delete(key)
  }

  function drop(key: RecordKey): void {
    changes += 1
    changedAt.set(key, changes)
    for (const cookie of [...(cookiesOf.get(key) ?? [])]) entries.delete(cookie)
  }

  function isSpoiled({ key, since }: ReadGuard): boolean {
    return since < forgottenUpTo || since < (changedAt.peek(key) ?? 0)
  }

  return {
    get(cookie) {
      // Entries are put anew each minute: their age is order enough, and moving one costs a request more.
      return store.messagesArrive() ? (entries.peek(cookie) ?? null) : null
    },
    reading(key) {
      // Begun while messages did not arrive, a change could pass it by unseen.
      return { key, since: store.messagesArrive() ? changes : -1 }
    },
    put(cookie, entry, guard) {
      if (isSpoiled(guard)) return
      entries.set(cookie, entry)
      const cookies = cookiesOf.get(entry.key) ?? new Set()
      cookiesOf.set(entry.key, cookies.add(cookie))
    },
    drop,
  }
}
