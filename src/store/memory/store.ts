import {
  type BeginRefreshRequest,
  type BeginRefreshResult,
  CLOCK_TOLERANCE_MS,
  END_KEPT_MS,
  type EndRequest,
  type EndResult,
  idleEndsAt,
  LONGEST_BACK_OFF_MS,
  RECORD_SLACK_MS,
  type RecordKey,
  type ReplaceTokensResult,
  type RestoreTokensResult,
  type SessionRecord,
  type SessionStore,
} from '../store.ts'
import { createMemoryQueue } from './queue.ts'

interface Entry extends Omit<SessionRecord, 'idleEndsAt'> {
  attempt: string
  lease: string
  leasedAt: number
  openUntil: number
  retrySetAt: number
  forcedAt: number
  forcedGen: number
  expireAt: number
}

interface Nonce {
  attempt: string
  expireAt: number
}

const KEYS_AT_ONCE = 1_000

/** Fields of a record whose tokens have just been written. */
const FREE = { lease: '', leaseUntil: 0, openUntil: 0, retryAt: 0, doubts: 0 }

interface MemoryStoreOptions {
  /** Milliseconds by a clock that is never set, for leases, waits and expiry. */
  now: () => number
  /** The idle limit of sessions. */
  idleMs: number
  /** Epoch milliseconds, for the limits of sessions: they pass while the machine sleeps as well. Default: `now`. */
  wall?: () => number
}

/** The store in the memory of one process, lost at its exit. The contract tests of the Redis store hold for it too. */
export function createMemoryStore({ now, wall = now, idleMs }: MemoryStoreOptions): SessionStore {
  const records = new Map<RecordKey, Entry>()
  const nonces = new Map<string, Nonce>()
  const ends = new Map<
    RecordKey,
    { reason: string; at: number; successor: RecordKey | null; expireAt: number }
  >()

  const sweeper = setInterval(sweep, 10_000)
  sweeper.unref()

  function sweep(): void {
    for (const map of [records, nonces, ends]) {
      for (const [name, entry] of map) if (entry.expireAt <= now()) map.delete(name)
    }
  }

  function unexpired(key: RecordKey): Entry | null {
    const entry = records.get(key)
    if (entry === undefined) return null
    if (entry.expireAt > now()) return entry
    records.delete(key)
    return null
  }

  function unexpiredNonce(nonce: string): Nonce | null {
    const entry = nonces.get(nonce)
    return entry !== undefined && entry.expireAt > now() ? entry : null
  }

  function unexpiredEnd(key: RecordKey) {
    const end = ends.get(key)
    return end !== undefined && end.expireAt > now() ? end : null
  }

  function end(key: RecordKey, { gen, reason, attempt, successor }: EndRequest, at = wall()): EndResult {
    const entry = unexpired(key)
    const kept = unexpiredEnd(key)
    if (entry === null) {
      if (successor !== undefined && kept === null) keepEnd()
      return { kind: 'gone', successor: kept?.successor ?? null }
    }
    if (gen !== undefined && entry.gen !== gen) return { kind: 'precondition_failed' }
    if (attempt !== undefined && entry.lease !== '' && entry.lease !== attempt)
      return { kind: 'precondition_failed' }
    records.delete(key)
    keepEnd()
    return { kind: 'ended', tokens: entry.tokens }

    function keepEnd(): void {
      if (reason === undefined) return
      ends.set(key, {
        reason,
        at,
        successor: successor ?? null,
        expireAt: now() + END_KEPT_MS - (wall() - at),
      })
    }
  }

  return {
    async claimNonce(nonce, attempt, ttlMs) {
      const held = unexpiredNonce(nonce)
      if (held !== null) return held.attempt === attempt
      nonces.set(nonce, { attempt, expireAt: now() + ttlMs })
      return true
    },

    async nonceClaimed(nonce) {
      return unexpiredNonce(nonce) !== null
    },

    async create(key, record, provisionalMs) {
      if (unexpired(key) !== null) return
      records.set(key, {
        ...record,
        seenAt: record.createdAt,
        gen: 1,
        ...FREE,
        leasedAt: 0,
        retrySetAt: 0,
        forcedAt: 0,
        forcedGen: 0,
        replacedAt: now(),
        attempt: '',
        expireAt: now() + provisionalMs,
      })
    },

    async read(key) {
      const entry = unexpired(key)
      if (entry === null) return null
      const {
        attempt: _attempt,
        lease: _lease,
        leasedAt: _leasedAt,
        openUntil: _openUntil,
        retrySetAt: _retrySetAt,
        forcedAt: _at,
        forcedGen: _gen,
        expireAt: _expireAt,
        ...record
      } = entry
      return { ...record, idleEndsAt: idleEndsAt(entry, idleMs) }
    },

    async readState(key) {
      const entry = unexpired(key)
      if (entry === null) return null
      const { gen, seenAt, endsAt } = entry
      return { gen, seenAt, endsAt, idleEndsAt: idleEndsAt(entry, idleMs) }
    },

    async confirm(key) {
      const entry = unexpired(key)
      if (entry === null) return false
      records.set(key, { ...entry, expireAt: idleEndsAt(entry, idleMs) + RECORD_SLACK_MS })
      return true
    },

    async touch(key) {
      const entry = unexpired(key)
      if (entry === null) return false
      const touched = { ...entry, seenAt: Math.max(entry.seenAt, Math.round(wall())) }
      records.set(key, { ...touched, expireAt: idleEndsAt(touched, idleMs) + RECORD_SLACK_MS })
      return true
    },

    async beginRefresh(key: RecordKey, request: BeginRefreshRequest): Promise<BeginRefreshResult> {
      const entry = unexpired(key)
      if (entry === null) return { kind: 'gone' }
      if (entry.gen !== request.gen) return { kind: 'replaced' }
      const at = now()
      const ageMs = at - entry.replacedAt
      // No later than now, where the clock has stepped back since.
      const leasedAt = Math.min(entry.leasedAt, at)
      const openBefore = Math.min(entry.openUntil, at + request.openMs)
      const openForMs = (openUntil: number): number => Math.max(0, openUntil - at)
      if (entry.lease === request.attempt)
        return { kind: 'granted', doubts: entry.doubts - 1, openForMs: openForMs(openBefore), ageMs }
      if (entry.leaseUntil > at) {
        // Longer than a lease: the clock has stepped back since.
        const leaseUntil = Math.min(entry.leaseUntil, at + request.leaseMs)
        records.set(key, { ...entry, leaseUntil })
        return { kind: 'busy', waitMs: leaseUntil - at, ageMs: at - leasedAt }
      }
      const forced = request.forcedWindowMs > 0
      const forcedBefore = forced && entry.forcedAt <= at && entry.forcedAt + request.forcedWindowMs > at
      if (forcedBefore && entry.forcedGen !== request.gen) return { kind: 'forced_before' }
      const longestMs = Math.max(request.livesMs, LONGEST_BACK_OFF_MS)
      const backOffMs = Math.min(entry.retryAt, entry.retrySetAt + longestMs) - at
      if (backOffMs > 0 && entry.retrySetAt <= at && (!forced || forcedBefore)) {
        return { kind: 'backing_off', waitMs: backOffMs }
      }
      // A lease that expired without a release: its holder may still receive a response.
      const openUntil = entry.lease === '' ? openBefore : Math.max(openBefore, leasedAt + request.openMs)
      records.set(key, {
        ...entry,
        lease: request.attempt,
        leaseUntil: at + request.leaseMs,
        leasedAt: at,
        openUntil,
        doubts: entry.doubts + 1,
        forcedAt: forced ? at : entry.forcedAt,
        forcedGen: forced ? entry.gen : entry.forcedGen,
      })
      return { kind: 'granted', doubts: entry.doubts, openForMs: openForMs(openUntil), ageMs }
    },

    async renewLease(key, { gen, attempt, doubts, leaseMs }) {
      const entry = unexpired(key)
      if (entry === null) return 'gone'
      if (entry.gen !== gen || (entry.lease !== attempt && entry.lease !== '')) return 'taken'
      const leaseUntil = now() + leaseMs
      records.set(key, { ...entry, lease: attempt, leaseUntil, doubts: Math.max(entry.doubts, doubts) })
      return 'held'
    },

    async releaseLease(key, { attempt, inDoubt, retryInMs }) {
      const entry = unexpired(key)
      if (entry === null) return
      const retrySetAt = now()
      const retryAt = retrySetAt + retryInMs
      if (entry.lease === attempt) {
        const doubts = entry.doubts - (inDoubt === null ? 1 : 0)
        records.set(key, { ...entry, lease: '', leaseUntil: 0, retryAt, retrySetAt, doubts })
      } else if (inDoubt !== null && entry.gen === inDoubt.gen && entry.doubts < inDoubt.doubts) {
        const later = { retryAt: Math.max(retryAt, entry.retryAt), retrySetAt }
        records.set(key, { ...entry, ...later, doubts: inDoubt.doubts })
      }
    },

    async replaceTokens(key, { gen, attempt, tokens }): Promise<ReplaceTokensResult> {
      const entry = unexpired(key)
      if (entry === null) return { kind: 'gone' }
      if (entry.gen === gen + 1 && entry.attempt === attempt) return { kind: 'replaced', gen: entry.gen }
      if (entry.gen > gen) return { kind: 'newer' }
      records.set(key, { ...entry, ...FREE, tokens, gen: gen + 1, attempt, replacedAt: now() })
      return { kind: 'replaced', gen: gen + 1 }
    },

    async reseal(key, was, sealed) {
      const entry = unexpired(key)
      if (entry === null || entry.tokens !== was) return false
      records.set(key, { ...entry, tokens: sealed })
      return true
    },

    async restoreTokens(key, { gen, attempt, tokens }): Promise<RestoreTokensResult> {
      const entry = unexpired(key)
      if (entry === null) return { kind: 'gone' }
      if (entry.gen === gen && entry.attempt === attempt) return { kind: 'restored' }
      if (entry.gen >= gen) return { kind: 'newer' }
      records.set(key, { ...entry, ...FREE, tokens, gen, attempt, replacedAt: now() })
      return { kind: 'restored' }
    },

    end: async (key, request = {}) => end(key, request),

    async endPassed(key, gen, reason) {
      const entry = unexpired(key)
      if (entry !== null && wall() + CLOCK_TOLERANCE_MS < idleEndsAt(entry, idleMs))
        return { kind: 'precondition_failed' }
      const at = entry === null ? wall() : Math.min(wall(), idleEndsAt(entry, idleMs))
      return end(key, { gen, reason }, at)
    },

    async readEnd(key) {
      const end = unexpiredEnd(key)
      return end === null ? null : { reason: end.reason, at: end.at }
    },

    ...createMemoryQueue({ now }),

    async *keys() {
      let batch: RecordKey[] = []
      for (const key of records.keys()) {
        if (unexpired(key) !== null) batch.push(key)
        if (batch.length < KEYS_AT_ONCE) continue
        yield batch
        batch = []
      }
      yield batch
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
