import { Problem } from '../../errors.ts'
import type { DeviceStore, RecordKey, RecordStore, RefreshStore } from './record.ts'

/**
 * The store keeps one record for each session, the queue of sessions that are due for a refresh, and the nonces of
 * sign-ins that came back. The store sends no notifications: a process that wants to know reads. redis/ and memory/ are
 * stores. parts.ts wraps one twice: in cache.ts, where each write is reported to the cache, and in outbox.ts, which tries writes again.
 */

/** What the log calls a session: the beginning of its key, which `npm run sessions` accepts as an id. */
export function inLog(key: RecordKey): string {
  return key.slice(0, LOG_DIGITS)
}

/** How many digits of it that are. */
export const LOG_DIGITS = 12

/**
 * The queue of sessions that are due for a refresh. It is a hint: the record is the truth. A step of the store's clock
 * back delays its entries by a minute at most.
 */
export interface DueQueue {
  /** Makes a session due in `inMs`, or never. A delay, not an instant, since the clocks of replicas and store may differ. */
  schedule(key: RecordKey, inMs: number | null): Promise<void>
  /** Adds those sessions to the queue that are not in it; returns how many. */
  scheduleMissing(entries: readonly { key: RecordKey; inMs: number }[]): Promise<number>
  /** Takes up to `limit` due sessions. They become due again after `claimMs`, unless scheduled before. */
  claimDue(limit: number, claimMs: number): Promise<DueClaim>
  /** Entries of the queue, due or not. */
  queueLength(): Promise<number>
}

export interface DueClaim {
  /** `lateMs`: how long ago the entry became due. */
  entries: { key: RecordKey; lateMs: number }[]
  /** Milliseconds until the next entry is due; null when the queue is empty. */
  nextInMs: number | null
  /** The store's clock, epoch milliseconds. */
  storeNow: number
}

/** Nonces of sign-ins, and other claims that one caller over all replicas may win. */
export interface NonceStore {
  /** true for exactly one caller per nonce, over all replicas, for `ttlMs`. `attempt` as in `BeginRefreshRequest`. */
  claimNonce(nonce: string, attempt: string, ttlMs: number): Promise<boolean>
}

/** Counts of tries, for limits that hold over all processes. */
export interface TryStore {
  /**
   * Counts one more try of this bucket; a window ends `windowMs` after its first try. null: no other process has this
   * store, so the caller's own count is enough.
   */
  countTry(bucket: string, windowMs: number): Promise<{ count: number; leftMs: number } | null>
}

export interface Scannable {
  /**
   * The keys of all records, in batches, some of them empty. A record that exists during the whole scan is
   * found; others may be. A key may come more than once, so callers that count must remove duplicates. Rejects if a
   * connection breaks: the scan then has to start again.
   */
  keys(): AsyncIterable<RecordKey[]>
  /** The same of sessions that have ended and whose reason is kept, of those whose key begins so. */
  endedKeys(beginning: string): AsyncIterable<RecordKey[]>
}

/** One Redis, a Sentinel group, a Cluster, or the memory of this process. Methods reject with `StoreUnavailable` alone. */
export interface SessionStore
  extends RecordStore,
    RefreshStore,
    DeviceStore,
    Scannable,
    DueQueue,
    NonceStore,
    TryStore {
  readonly health: StoreHealth
  /** Rejects with `StoreUnavailable` unless the store takes writes. */
  ping(): Promise<void>
  close(): Promise<void>
}

/** What one process has seen of the store's failures. */
export interface StoreHealth {
  /**
   * Calls back at each incident: a connection was lost or made, or an error says that the server takes no writes.
   * Another server may have replaced it and may lack the newest writes. A command that is not allowed or takes too long
   * is no incident.
   */
  onIncident(listener: () => void): void
  /** Milliseconds since the last incident at the server of that record; infinite for never. */
  msSinceIncident(key: RecordKey): number
}

/**
 * The store cannot be reached or refuses; the command may have run all the same. lifecycle.ts throws it too when the end of a
 * session is not stored yet, and login/fastify-session.ts when there is no record to confirm.
 */
export class StoreUnavailable extends Problem {
  /** No reply came. A store that replies with an error was reached. */
  readonly unreached: boolean

  constructor(cause: unknown, unreached = false) {
    super('store_unavailable', { headers: { 'retry-after': '1' }, cause })
    this.name = 'StoreUnavailable'
    this.unreached = unreached
  }
}
