import type { RecordKey } from '../store/store.ts'

/** Entries by cookie, which can be dropped by the session that they are of. */
export interface Shelf<Entry extends { key: RecordKey }> {
  peek(cookie: string): Entry | undefined
  set(cookie: string, entry: Entry): void
  drop(key: RecordKey): void
}

/** `max`: entries at most; those that were put first go first. */
export function createShelf<Entry extends { key: RecordKey }>(max: number): Shelf<Entry> {
  const cookiesOf = new Map<RecordKey, Set<string>>()
  // In the order of their coming. A map and no cache of a library: each request looks here.
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
      if (entries.size > max) for (const oldest of entries.keys()) return remove(oldest)
    },
    drop(key) {
      for (const cookie of [...(cookiesOf.get(key) ?? [])]) remove(cookie)
    },
  }
}
