import { recordMembers } from '../../src/vault/store/record.ts'
import type { RecordKey, SessionStore } from '../../src/vault/store/store.ts'
import type { FleetTransport } from './connections.ts'

/** A command of the store, named as in the port. */
export type StoreCommand = Exclude<keyof SessionStore, 'health' | 'close'>

/** The master that has a record. Digits of its key are as good as a hash slot: they spread the records. */
export function masterOf(key: RecordKey, masterCount: number): number {
  return masterCount === 1 ? 0 : Number.parseInt(key.slice(1, 5), 16) % masterCount
}

/** The session store of one process over simulated Redis servers. */
export function createSimulatedStore(transport: FleetTransport, idleMs: number): SessionStore {
  const { masterCount, ask } = transport
  const of = (key: RecordKey): number => masterOf(key, masterCount)
  /** The master that has the due queue. */
  const ofQueue = masterCount - 1

  return {
    claimNonce: (nonce, attempt, ttlMs) =>
      ask(nonce.length % masterCount, 'claimNonce', (server) => server.claimNonce(nonce, attempt, ttlMs)),
    ...recordMembers(
      (key, member, step) => ask(of(key), member, (server) => server.step(key, step, idleMs)),
      transport.wall,
    ),
    schedule: (key, inMs) => ask(ofQueue, 'schedule', (server) => server.schedule(key, inMs)),
    scheduleMissing: (entries) =>
      ask(ofQueue, 'scheduleMissing', (server) => server.scheduleMissing(entries)),
    claimDue: (limit, claimMs) => ask(ofQueue, 'claimDue', (server) => server.claimDue(limit, claimMs)),
    queueLength: () => ask(ofQueue, 'queueLength', (server) => server.queueLength()),
    async *keys() {
      for (let master = 0; master < masterCount; master += 1)
        yield await ask(master, 'keys', (server) => server.keys())
    },
    countTry: async () => null,
    health: transport.health,
    nonceClaimed: async () => {
      throw new Error('only callbacks ask for this, which are not simulated')
    },
    async ping() {
      for (let master = 0; master < masterCount; master += 1) await ask(master, 'ping', () => {})
    },
    close: transport.close,
  }
}
