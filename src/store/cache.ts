import { LRUCache } from 'lru-cache'
import type { RecordKey, SessionStore } from './port.ts'

/** A read that was begun before its session changed must not be kept. */
export interface ReadGuard {
  readonly key: RecordKey
  spoiled: boolean
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
  /** The read came to nothing that could be kept. */
  abandon(guard: ReadGuard): void
  drop(key: RecordKey): void
}

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
  const reads = new Map<RecordKey, Set<ReadGuard>>()
  const entries = new LRUCache<string, Entry>({ max, dispose: (entry, cookie) => forget(entry.key, cookie) })

  store.onChange(drop)
  store.onMessagesLost(() => {
    entries.clear()
    for (const guards of reads.values()) for (const guard of guards) guard.spoiled = true
  })

  function forget(key: RecordKey, cookie: string): void {
    const cookies = cookiesOf.get(key)
    cookies?.delete(cookie)
    if (cookies?.size === 0) cookiesOf.delete(key)
  }

  function drop(key: RecordKey): void {
    for (const guard of reads.get(key) ?? []) guard.spoiled = true
    for (const cookie of [...(cookiesOf.get(key) ?? [])]) entries.delete(cookie)
  }

  function abandon(guard: ReadGuard): void {
    const guards = reads.get(guard.key)
    guards?.delete(guard)
    if (guards?.size === 0) reads.delete(guard.key)
  }

  return {
    get(cookie) {
      return store.messagesArrive() ? (entries.get(cookie) ?? null) : null
    },
    reading(key) {
      // Begun while messages did not arrive, a change could pass it by unseen.
      const guard = { key, spoiled: !store.messagesArrive() }
      const guards = reads.get(key) ?? new Set()
      reads.set(key, guards.add(guard))
      return guard
    },
    put(cookie, entry, guard) {
      abandon(guard)
      if (guard.spoiled) return
      entries.set(cookie, entry)
      const cookies = cookiesOf.get(entry.key) ?? new Set()
      cookiesOf.set(entry.key, cookies.add(cookie))
    },
    abandon,
    drop,
  }
}
