import type { RecordKey, SessionStore } from '../store/store.ts'

/** Records that are asked for together; the answers come one after another on one connection. */
const AT_ONCE = 200
/** 52 bits, as many as a number holds: among ten million sessions two look alike once in ninety runs. */
const TOLD_APART_BY = 13

/** Every record key, in batches; as `SessionStore.keys`, some of them more than once. */
export async function* batches(store: Pick<SessionStore, 'keys'>): AsyncGenerator<RecordKey[], void> {
  for await (const keys of store.keys()) {
    for (let at = 0; at < keys.length; at += AT_ONCE) yield keys.slice(at, at + AT_ONCE)
  }
}

/** Every record key once, for who counts. About 40 bytes are kept for each. */
export async function* distinct(store: Pick<SessionStore, 'keys'>): AsyncGenerator<RecordKey[], void> {
  const seen = new Set<number>()
  for await (const keys of batches(store)) {
    yield keys.filter((key) => {
      const before = seen.size
      return seen.add(Number.parseInt(key.slice(0, TOLD_APART_BY), 16)).size > before
    })
  }
}
