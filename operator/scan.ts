import type { RecordKey, SessionStore } from '../src/vault/vault.ts'

/** Records that a command reads at once; Redis sends them one after another on one connection. */
const BATCH = 200
/** 13 hex digits are 52 bits, as many as a number holds exactly: two of ten million collide once in 90 runs. */
const COMPARED_DIGITS = 13

/** Every record key, in batches; like `SessionStore.keys`, some of them more than once. */
export async function* batches(store: Pick<SessionStore, 'keys'>): AsyncGenerator<RecordKey[], void> {
  for await (const keys of store.keys()) {
    for (let at = 0; at < keys.length; at += BATCH) yield keys.slice(at, at + BATCH)
  }
}

/** Every record key once, in batches. Keeps about 40 bytes for each key. */
export async function* distinct(store: Pick<SessionStore, 'keys'>): AsyncGenerator<RecordKey[], void> {
  const seen = new Set<number>()
  for await (const keys of batches(store)) {
    yield keys.filter((key) => {
      const before = seen.size
      return seen.add(Number.parseInt(key.slice(0, COMPARED_DIGITS), 16)).size > before
    })
  }
}
