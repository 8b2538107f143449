import { randomUUID } from 'node:crypto'
import type { RecordKey } from '../../../src/vault/store/record.ts'
import type { SessionStore } from '../../../src/vault/store/store.ts'
import { newKey, newRecord } from './stores.ts'

/** These send nothing, or what the others sent is awaited. */
type SendsNothing = 'health' | 'close'
type Calls = Record<Exclude<keyof SessionStore, SendsNothing> | 'scheduleNever', () => Promise<unknown>>

/** One call of each method that sends a command, by name. The record of `key` need not exist. */
export function everyMethod(store: SessionStore, key: RecordKey): Calls {
  const attempt = randomUUID()
  const nonce = randomUUID()
  const at = Date.now()
  return {
    claimNonce: () => store.claimNonce(nonce, attempt, 600_000),
    countTry: () => store.countTry('sign-in:0000', 60_000),
    create: () => store.create(key, newRecord(at), 15_000),
    confirm: () => store.confirm(key),
    read: () => store.read(key),
    readState: () => store.readState(key),
    touch: () => store.touch(key),
    beginRefresh: () =>
      store.beginRefresh(key, {
        gen: 1,
        attempt,
        leaseMs: 15_000,
        openMs: 0,
        livesMs: 0,
        forcedWindowMs: 60_000,
      }),
    renewLease: () => store.renewLease(key, { gen: 1, attempt, doubts: 1, leaseMs: 15_000 }),
    releaseLease: () =>
      store.releaseLease(key, { attempt, inDoubt: { gen: 1, doubts: 1 }, retryInMs: 1_000.5 }),
    replaceTokens: () => store.replaceTokens(key, { gen: 1, tokens: 'sealed-2' }),
    reseal: () => store.reseal(key, 'sealed-2', 'resealed'),
    registerDevice: () => store.registerDevice(key, 'a key'),
    bindDevice: () => store.bindDevice(key, 'a key'),
    schedule: () => store.schedule(key, -1_000),
    claimDue: () => store.claimDue(10, 15_000),
    scheduleNever: () => store.schedule(key, null),
    scheduleMissing: () => store.scheduleMissing([{ key, inMs: 60_000 }]),
    keys: async () => {
      for await (const batch of store.keys()) if (batch.length > 0) break
    },
    endedKeys: async () => {
      for await (const batch of store.endedKeys(key)) if (batch.length > 0) break
    },
    queueLength: () => store.queueLength(),
    ping: () => store.ping(),
    end: () => store.end(key, { reason: 'logout' }),
    readEnd: () => store.readEnd(key),
  }
}

/** Calls each method once, in sequence. */
export async function callEveryMethod(store: SessionStore): Promise<void> {
  for (const call of Object.values(everyMethod(store, newKey()))) await call()
}
