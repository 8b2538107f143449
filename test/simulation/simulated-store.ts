import { type RecordKey, recordMembers, stateOf } from '../../src/vault/store/record.ts'
import { COMMAND_TIMEOUT_MS } from '../../src/vault/store/redis/command-timeout.ts'
import { createRun } from '../../src/vault/store/run.ts'
import type { SessionStore } from '../../src/vault/store/store.ts'
import type { FleetTransport } from './connections.ts'

/** A command of the store, named as in the port. */
export type StoreCommand = Exclude<keyof SessionStore, 'health' | 'close'>

/** The master that has a record. Digits of its key are as good as a hash slot: they spread the records. */
export function masterOf(key: RecordKey, masterCount: number): number {
  return masterCount === 1 ? 0 : Number.parseInt(key.slice(1, 5), 16) % masterCount
}

/** The session store of one process over simulated Redis servers. `is02`: the process runs version 0.2. */
export function createSimulatedStore(transport: FleetTransport, idleMs: number, is02: boolean): SessionStore {
  const { masterCount, ask } = transport
  const of = (key: RecordKey): number => masterOf(key, masterCount)
  const histories = new Map<number, string>()
  const run = createRun(
    {
      read: (key, member, withinMs) => ask(of(key), member, (server) => server.read(key, is02), { withinMs }),
      async write(key, member, change, withinMs) {
        const written = await ask(of(key), member, (server) => server.write(key, change, is02), {
          withinMs,
          writes: true,
        })
        if (written.kind === 'moved') histories.set(of(key), written.history)
        return written
      },
      historyOf: (key) => histories.get(of(key)) ?? '',
    },
    { idleMs, withinMs: COMMAND_TIMEOUT_MS, monotonic: () => transport.clock.now },
  )
  /** The master that has the due queue. */
  const ofQueue = masterCount - 1
  // Version 0.2 has other names for the due queue, and for the claim of its scan.
  const queue = is02 ? 'dueOf02' : 'due'
  const named = (nonce: string): string => (is02 ? `0.2 ${nonce}` : nonce)

  return {
    claimNonce: (nonce, attempt, ttlMs) =>
      ask(nonce.length % masterCount, 'claimNonce', (server) =>
        server.claimNonce(named(nonce), attempt, ttlMs),
      ),
    ...recordMembers(run, transport.wall),
    async readState(key) {
      const { record } = await ask(of(key), 'readState', (server) => server.read(key, is02))
      return record === null ? null : stateOf(record, idleMs)
    },
    readEnd: (key) => ask(of(key), 'readEnd', (server) => server.readEnd(key)),
    schedule: (key, inMs) => ask(ofQueue, 'schedule', (server) => server.schedule(queue, key, inMs)),
    scheduleMissing: (entries) =>
      ask(ofQueue, 'scheduleMissing', (server) => server.scheduleMissing(queue, entries)),
    claimDue: (limit, claimMs) =>
      ask(ofQueue, 'claimDue', (server) => server.claimDue(queue, limit, claimMs)),
    queueLength: () => ask(ofQueue, 'queueLength', (server) => server.queueLength(queue)),
    async *keys() {
      for (let master = 0; master < masterCount; master += 1)
        yield await ask(master, 'keys', (server) => server.keys())
    },
    async *endedKeys() {
      yield await Promise.reject(new Error('only the command line asks for this, which is not simulated'))
    },
    countTry: async () => null,
    health: transport.health,
    async ping() {
      for (let master = 0; master < masterCount; master += 1) await ask(master, 'ping', () => {})
    },
    close: transport.close,
  }
}
