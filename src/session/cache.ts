import { LRUCache } from 'lru-cache'
import type { RecordKey, SessionStore } from '../store/store.ts'
import { createShelf, type Shelf } from './shelf.ts'

/** A read that was begun before its session changed must not be kept. */
export interface ReadGuard {
  readonly key: RecordKey
  /** How many changes had been told when it was begun. */
  readonly since: number
  /** Whether messages arrived then; else a change could pass it by unseen. */
  readonly sound: boolean
}

/**
 * What is known of live sessions, by the raw cookie value, in front of the store. Nothing is handed
 * out by `get` unless change messages are proven to arrive; what changed, wherever, is dropped.
 */
export interface SessionCache<Entry extends { key: RecordKey }> {
  get(cookie: string): Entry | null
  /**
   * What was known when messages stopped, or was read since; changes that were told in between have
   * passed it by. Only for an outage that the grace covers.
   */
  getStale(cookie: string): Entry | null
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
  /** So long entries are put aside when messages stop; 0 drops them at once. */
  asideMs: number
}

export function createSessionCache<Entry extends { key: RecordKey }>({
  store,
  max,
  asideMs,
}: SessionCacheOptions): SessionCache<Entry> {
  let entries = createShelf<Entry>(max)
  let aside: Shelf<Entry> | null = null
  let timer: NodeJS.Timeout | undefined
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
    if (asideMs > 0) {
      aside = entries
      clearTimeout(timer)
      timer = setTimeout(forgetAside, asideMs).unref()
    }
    entries = createShelf(max)
  })
  // What was missed meanwhile is not told any more.
  store.onMessagesBack(forgetAside)

  function forgetAside(): void {
    clearTimeout(timer)
    aside = null
  }

  function drop(key: RecordKey): void {
    changes += 1
    changedAt.set(key, changes)
    entries.drop(key)
    aside?.drop(key)
  }

  function isSpoiled({ key, since }: ReadGuard): boolean {
    return since < forgottenUpTo || since < (changedAt.peek(key) ?? 0)
  }

  return {
    get(cookie) {
      // Entries are replaced each minute, so insertion order is enough. Moving one on each hit would cost time.
      return store.messagesArrive() ? (entries.peek(cookie) ?? null) : null
    },
    getStale: (cookie) => entries.peek(cookie) ?? aside?.peek(cookie) ?? null,
    reading(key) {
      return { key, since: changes, sound: store.messagesArrive() }
    },
    put(cookie, entry, guard) {
      if (isSpoiled(guard)) return
      if (guard.sound) entries.set(cookie, entry)
      else aside?.set(cookie, entry)
    },
    drop,
  }
}
