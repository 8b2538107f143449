import { DUE_SHARDS, type EndRequest, type RecordKey, type SessionStore } from '../../src/store/store.ts'
import { type RedisServer, shardOf } from './simulated-redis.ts'

/** What the port has besides commands. */
type ConnectionMember = 'onChange' | 'announceHere' | 'health' | 'close'

/** A command of the store, named as in the port. */
export type StoreCommand = Exclude<keyof SessionStore, ConnectionMember | 'endPassed'>

/** How the commands of one process reach the servers, and what it knows of its connections. */
export interface Transport extends Pick<SessionStore, ConnectionMember> {
  /** Masters of the store: one, or those of a Cluster. */
  readonly shards: number
  /** The wall clock of the process, epoch milliseconds. */
  wall(): number
  /** Runs `work` on that master. Rejects with `StoreUnavailable`. */
  ask<T>(shard: number, command: StoreCommand, writes: boolean, work: (server: RedisServer) => T): Promise<T>
}

const KEYS_AT_ONCE = 1_000

/** The session store of one process over simulated Redis servers. */
export function createSimulatedStore(transport: Transport, idleMs: number): SessionStore {
  const { shards, ask, announceHere } = transport
  // Digits of a key are as good as its slot: they spread the records over the masters.
  const of = (key: RecordKey): number => (shards === 1 ? 0 : Number.parseInt(key.slice(1, 5), 16) % shards)
  const ofNonce = (nonce: string): number => nonce.length % shards
  const ofQueue = (shard: number): number => shard % shards

  async function end(key: RecordKey, request: EndRequest, limitMs: number | null) {
    try {
      const ended = await ask(of(key), 'end', true, (server) => server.end(key, request, limitMs))
      if (ended.kind === 'ended') announceHere(key)
      return ended
    } catch (error) {
      // It may have run, and its message need not arrive.
      announceHere(key)
      throw error
    }
  }

  return {
    claimNonce: (nonce, attempt, ttlMs) =>
      ask(ofNonce(nonce), 'claimNonce', true, (server) => server.claimNonce(nonce, attempt, ttlMs)),
    nonceClaimed: (nonce) =>
      ask(ofNonce(nonce), 'nonceClaimed', false, (server) => server.nonceClaimed(nonce)),
    create: (key, record, request) => {
      const wall = transport.wall()
      return ask(of(key), 'create', true, (server) => server.create(key, record, { ...request, wall }))
    },
    read: (key) => ask(of(key), 'read', false, (server) => server.read(key, idleMs)),
    confirm: (key) => ask(of(key), 'confirm', true, (server) => server.confirm(key, idleMs)),
    touch: (key, agoMs) => ask(of(key), 'touch', true, (server) => server.touch(key, agoMs, idleMs)),
    beginRefresh: (key, request) =>
      ask(of(key), 'beginRefresh', true, (server) => server.beginRefresh(key, request)),
    renewLease: (key, request) =>
      ask(of(key), 'renewLease', true, (server) => server.renewLease(key, request)),
    releaseLease: (key, release) =>
      ask(of(key), 'releaseLease', true, (server) => server.releaseLease(key, release)),
    replaceTokens: (key, write) =>
      ask(of(key), 'replaceTokens', true, (server) => server.replaceTokens(key, write)),
    reseal: (key, was, sealed) => ask(of(key), 'reseal', true, (server) => server.reseal(key, was, sealed)),
    restoreTokens: (key, write) =>
      ask(of(key), 'restoreTokens', true, (server) => server.restoreTokens(key, write)),
    end: (key, request = {}) => end(key, request, null),
    endPassed: (key, gen, reason) => end(key, { gen, reason }, idleMs),
    readEnd: (key) => ask(of(key), 'readEnd', false, (server) => server.readEnd(key)),
    schedule: (key, inMs) =>
      ask(ofQueue(shardOf(key)), 'schedule', true, (server) => server.schedule(key, inMs)),
    unschedule: (key) => ask(ofQueue(shardOf(key)), 'unschedule', true, (server) => server.unschedule(key)),
    async scheduleMissing(entries, latest = false) {
      const parts = Array.from({ length: shards }, (_, shard) =>
        entries.filter(({ key }) => ofQueue(shardOf(key)) === shard),
      )
      const added = await Promise.all(
        parts.map((part, shard) =>
          part.length === 0
            ? 0
            : ask(
                shard,
                'scheduleMissing',
                true,
                (server) => part.filter(({ key, inMs }) => server.scheduleMissing(key, inMs, latest)).length,
              ),
        ),
      )
      return added.reduce((sum, count) => sum + count, 0)
    },
    claimDue: (shard, limit, leaseMs) =>
      ask(ofQueue(shard), 'claimDue', true, (server) => server.claimDue(shard, limit, leaseMs)),
    async queueLength() {
      const masters = Math.min(shards, DUE_SHARDS)
      const lengths = await Promise.all(
        Array.from({ length: masters }, (_, shard) =>
          ask(shard, 'queueLength', false, (server) => server.queueLength()),
        ),
      )
      return lengths.reduce((sum, length) => sum + length, 0)
    },
    async *keys() {
      for (let shard = 0; shard < shards; shard += 1) {
        const all = await ask(shard, 'keys', false, (server) => server.keys())
        for (let at = 0; at < all.length || at === 0; at += KEYS_AT_ONCE)
          yield all.slice(at, at + KEYS_AT_ONCE)
      }
    },
    health: transport.health,
    onChange: transport.onChange,
    announceHere,
    async ping() {
      for (let shard = 0; shard < shards; shard += 1) await ask(shard, 'ping', true, () => {})
    },
    close: transport.close,
  }
}
