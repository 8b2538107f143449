import { LRUCache } from 'lru-cache'
import type { RecordKey } from './port.ts'

/** Entries by cookie, which can be dropped by the session that they are of. */
export interface Shelf<Entry extends { key: RecordKey }> {
  peek(cookie: string): Entry | undefined
  set(cookie: string, entry: Entry): void
  drop(key: RecordKey): void
}

/** `max`: entries at most; those that were put first go first. */
export function createShelf<Entry extends { key: RecordKey }>(max: number): Shelf<Entry> {
  const cookiesOf = new Map<RecordKey, Set<string>>()
  const entries = new LRUCache<string, Entry>({ max, dispose: (entry, cookie) => forget(entry.key, cookie) })

  function forget(key: RecordKey, cookie: string): void {
    const cookies = cookiesOf.get(key)
    cookies?.delete(cookie)
    if (cookies?.size === 0) cookiesOf.delete(key)
  }

  return {
    peek: (cookie) => entries.peek(cookie),
    set(cookie, entry) {
      entries.set(cookie, entry)
      const cookies = cookiesOf.get(entry.key) ?? new Set()
      cookiesOf.set(entry.key, cookies.add(cookie))
    },
    drop(key) {
      for (const cookie of [...(cookiesOf.get(key) ?? [])]) entries.delete(cookie)
    },
  }
}
