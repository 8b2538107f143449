import type { RecordKey } from '../record.ts'
import { type RecordState, recordMembers, unexpired } from '../record.ts'
import type { SessionStore } from '../store.ts'
import { createMemoryQueue } from './queue.ts'

const KEYS_AT_ONCE = 1_000
const SWEEP_EVERY_MS = 10_000
const NOTHING: RecordState = { record: null, end: null }

interface MemoryStoreOptions {
  /** Epoch milliseconds: the store's clock. */
  now: () => number
  /** The idle limit of sessions. */
  idleMs: number
}

/** The store in the memory of one process, lost at its exit. The contract tests of the Redis store hold for it too. */
export function createMemoryStore({ now, idleMs }: MemoryStoreOptions): SessionStore {
  const states = new Map<RecordKey, RecordState>()
  const nonces = new Map<string, { attempt: string; expireAt: number }>()
  const sweeper = setInterval(sweep, SWEEP_EVERY_MS)
  sweeper.unref()

  function sweep(): void {
    for (const [nonce, { expireAt }] of nonces) if (expireAt <= now()) nonces.delete(nonce)
    for (const [key, state] of states) keep(key, unexpired(state, now()))
  }

  function keep(key: RecordKey, state: RecordState): void {
    if (state.record === null && state.end === null) states.delete(key)
    else states.set(key, state)
  }

  return {
    ...recordMembers(async (key, _member, step) => {
      const [state, reply] = step(unexpired(states.get(key) ?? NOTHING, now()), {
        now: now(),
        history: '',
        idleMs,
      })
      keep(key, state)
      return reply
    }, now),
    ...createMemoryQueue({ now }),

    async claimNonce(nonce, attempt, ttlMs) {
      const held = nonces.get(nonce)
      if (held !== undefined && held.expireAt > now()) return held.attempt === attempt
      nonces.set(nonce, { attempt, expireAt: now() + ttlMs })
      return true
    },

    countTry: async () => null,

    async *keys() {
      let batch: RecordKey[] = []
      for (const [key, state] of states) {
        if (unexpired(state, now()).record !== null) batch.push(key)
        if (batch.length < KEYS_AT_ONCE) continue
        yield batch
        batch = []
      }
      yield batch
    },

    async *endedKeys(beginning) {
      yield [...states].flatMap(([key, state]) => {
        const { record, end } = unexpired(state, now())
        return record === null && end !== null && key.startsWith(beginning) ? [key] : []
      })
    },

    health: {
      onIncident() {},
      msSinceIncident: () => Number.POSITIVE_INFINITY,
    },
    async ping() {},
    async close() {
      clearInterval(sweeper)
    },
  }
}
