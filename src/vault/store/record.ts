import {
  type BeginRefreshRequest,
  type BeginRefreshResult,
  CLOCK_TOLERANCE_MS,
  END_KEPT_MS,
  type EndRequest,
  type EndResult,
  idleEndsAt,
  LONGEST_BACK_OFF_MS,
  type NewRecord,
  RECORD_SLACK_MS,
  type RecordKey,
  type ReleaseLeaseRequest,
  type RenewLeaseRequest,
  type RenewLeaseResult,
  type ReplaceTokensRequest,
  type ReplaceTokensResult,
  type SessionRecord,
  type SessionStore,
} from './store.ts'

/**
 * The rules of a record as pure steps: what each does with the record, and its reply. The Lua scripts below redis/lua
 * have the same rules, and test/vault/store/record.test.ts compares both. The memory store and the simulation run these.
 */

/** All of a record, in Redis a hash. Instants in epoch milliseconds by the store's clock; 0 and '' for none. */
export interface StoredRecord extends Omit<SessionRecord, 'idleEndsAt'> {
  /** The attempt that holds the lease. A lease without a holder is the pause after a failover. */
  readonly lease: string
  readonly leasedAt: number
  /** Until then the presentation of an earlier lease, which was never released, may still get its response. */
  readonly openUntil: number
  readonly retrySetAt: number
  readonly forcedAt: number
  readonly forcedGen: number
  /**
   * Replication id of the server that had the record at its last refresh. It differs after a failover, a restart and the
   * migration of a slot: that server may lack newer tokens.
   */
  readonly history: string
  readonly expireAt: number
}

/** What is kept of a session that has ended. */
interface KeptEnd {
  readonly reason: string
  readonly at: number
  readonly expireAt: number
}

/** What a store has of one session. */
export interface RecordState {
  readonly record: StoredRecord | null
  readonly end: KeptEnd | null
}

/** The server that runs a step. */
export interface StepServer {
  readonly now: number
  readonly history: string
  /** The idle limit of sessions. */
  readonly idleMs: number
}

/** One atomic step: what the store has afterwards, and its reply. */
export type Step<Reply> = (state: RecordState, server: StepServer) => [RecordState, Reply]

/** The state without what has expired. */
export function unexpired({ record, end }: RecordState, now: number): RecordState {
  return {
    record: record !== null && record.expireAt > now ? record : null,
    end: end !== null && end.expireAt > now ? end : null,
  }
}

/**
 * Time for a replica to find the new master and to repair its writes: one connect timeout, the longest pause
 * before the next attempt, and a margin. While the access token is valid the pause is longer, up to a lease: a
 * token request may be under way whose lease the server has lost.
 */
const NEW_HISTORY_PAUSE_MS = 4_000

/** How long nobody refreshes after a failover. */
export function pauseMsOf({ livesMs, leaseMs }: Pick<BeginRefreshRequest, 'livesMs' | 'leaseMs'>): number {
  return Math.max(NEW_HISTORY_PAUSE_MS, Math.ceil(Math.min(livesMs, leaseMs)))
}

/** The longest back-off. */
export function longestBackOffMsOf({ livesMs }: Pick<BeginRefreshRequest, 'livesMs'>): number {
  return Math.ceil(Math.max(livesMs, LONGEST_BACK_OFF_MS))
}

/** Of a record whose tokens have just been written. */
const FREE = { lease: '', leaseUntil: 0, leasedAt: 0, openUntil: 0, retryAt: 0, retrySetAt: 0, doubts: 0 }

/** `wall`: by the same clock as `createdAt` and `endsAt`. */
function create(
  record: NewRecord,
  { provisionalMs, wall }: { provisionalMs: number; wall: number },
): Step<void> {
  return (state, { now, history }) => {
    if (state.record !== null) return [state, undefined]
    // The store's clock decides the limits, so a replica with a wrong clock must not create a session that is already old.
    const ahead = Math.abs(now - wall) < CLOCK_TOLERANCE_MS ? 0 : now - wall
    const created = {
      ...record,
      ...FREE,
      createdAt: record.createdAt + ahead,
      seenAt: record.createdAt + ahead,
      endsAt: record.endsAt + ahead,
      gen: 1,
      replacedAt: now,
      forcedAt: 0,
      forcedGen: 0,
      history,
      expireAt: now + Math.ceil(provisionalMs),
    }
    return [{ ...state, record: created }, undefined]
  }
}

/** A step on a record that exists; else the reply is `gone`. */
function onRecord<Reply>(
  gone: Reply,
  change: (record: StoredRecord, server: StepServer) => [StoredRecord, Reply],
): Step<Reply> {
  return (state, server) => {
    if (state.record === null) return [state, gone]
    const [record, reply] = change(state.record, server)
    return [record === state.record ? state : { ...state, record }, reply]
  }
}

function read(): Step<SessionRecord | null> {
  return onRecord<SessionRecord | null>(null, (record, { idleMs }) => {
    const { tokens, gen, createdAt, seenAt, endsAt, flow, client } = record
    const { doubts, leaseUntil, retryAt, replacedAt } = record
    const facts = { tokens, gen, createdAt, seenAt, endsAt, flow, client, doubts, leaseUntil, retryAt }
    return [record, { ...facts, replacedAt, idleEndsAt: idleEndsAt(record, idleMs) }]
  })
}

/** The record with the time to live that follows from its limits. */
function withLife(record: StoredRecord, idleMs: number): StoredRecord {
  return { ...record, expireAt: idleEndsAt(record, idleMs) + RECORD_SLACK_MS }
}

function confirm(): Step<boolean> {
  return onRecord(false, (record, { idleMs }) => [withLife(record, idleMs), true])
}

function touch(): Step<boolean> {
  return onRecord(false, (record, { now, idleMs }) => [
    withLife({ ...record, seenAt: Math.max(record.seenAt, now) }, idleMs),
    true,
  ])
}

function beginRefresh(request: BeginRefreshRequest): Step<BeginRefreshResult> {
  const { gen, attempt, leaseMs, openMs, forcedWindowMs } = request
  return onRecord<BeginRefreshResult>({ kind: 'gone' }, (record, { now, history }) => {
    if (record.gen !== gen) return [record, { kind: 'replaced' }]
    const granted = (doubts: number, openUntil: number): BeginRefreshResult => {
      const ageMs = now - record.replacedAt
      return {
        kind: 'granted',
        doubts,
        openForMs: Math.max(0, openUntil - now),
        ageMs: ageMs < 0 ? null : ageMs,
      }
    }
    // No later than now, where the clock has stepped back since.
    const leasedAt = Math.min(record.leasedAt, now)
    const openBefore = Math.min(record.openUntil, now + openMs)
    if (record.lease === attempt) return [record, granted(record.doubts - 1, openBefore)]
    // Longer than a lease: the clock has stepped back since.
    const waitMs = Math.min(record.leaseUntil - now, leaseMs)
    if (waitMs > 0) {
      const clamped = { ...record, leaseUntil: now + waitMs }
      if (record.lease === '') return [clamped, { kind: 'paused', waitMs }]
      return [clamped, { kind: 'busy', waitMs, ageMs: now - leasedAt }]
    }
    // A lease that lapsed and was never released: its holder may still receive a response.
    const openUntil = record.lease === '' ? openBefore : Math.max(openBefore, leasedAt + openMs)
    if (record.history !== history) {
      // The process that stored newer tokens gets the time to write them again.
      const pauseMs = pauseMsOf(request)
      const paused = { history, lease: '', leaseUntil: now + pauseMs, openUntil }
      return [
        { ...record, ...paused },
        { kind: 'paused', waitMs: pauseMs },
      ]
    }
    const forced = forcedWindowMs > 0
    const forcedBefore = forced && record.forcedAt <= now && record.forcedAt + forcedWindowMs > now
    // One forced refresh that brought new tokens is enough; a failed one backs off like any other.
    if (forcedBefore && record.forcedGen !== gen) return [record, { kind: 'forced_before' }]
    const backOffMs = Math.min(record.retryAt, record.retrySetAt + longestBackOffMsOf(request)) - now
    // One that was set later than now was written by a clock that has stepped back since.
    if (backOffMs > 0 && record.retrySetAt <= now && (!forced || forcedBefore))
      return [record, { kind: 'backing_off', waitMs: backOffMs }]
    const window = forced ? { forcedAt: now, forcedGen: gen } : {}
    const leased = { lease: attempt, leaseUntil: now + leaseMs, leasedAt: now, openUntil }
    return [{ ...record, ...window, ...leased, doubts: record.doubts + 1 }, granted(record.doubts, openUntil)]
  })
}

function renewLease({ gen, attempt, doubts, leaseMs }: RenewLeaseRequest): Step<RenewLeaseResult> {
  return onRecord<RenewLeaseResult>('gone', (record, { now }) => {
    if (record.gen !== gen) return [record, 'taken']
    if (record.lease !== attempt && record.lease !== '') return [record, 'taken']
    const leasedAt = record.lease === attempt ? record.leasedAt : now
    const more = { leaseUntil: now + leaseMs, leasedAt, doubts: Math.max(record.doubts, doubts) }
    return [{ ...record, lease: attempt, ...more }, 'held']
  })
}

function releaseLease({ attempt, inDoubt, retryInMs }: ReleaseLeaseRequest): Step<void> {
  return onRecord(undefined, (record, { now }) => {
    const retryAt = now + Math.ceil(retryInMs)
    if (record.lease === attempt) {
      const doubts = record.doubts - (inDoubt === null ? 1 : 0)
      return [{ ...record, lease: '', leaseUntil: 0, retryAt, retrySetAt: now, doubts }, undefined]
    }
    // A server that knows fewer doubts than this presentation left has lost its lease.
    if (inDoubt === null || record.gen !== inDoubt.gen || record.doubts >= inDoubt.doubts)
      return [record, undefined]
    const later = { retryAt: Math.max(retryAt, record.retryAt), retrySetAt: now }
    return [{ ...record, ...later, doubts: inDoubt.doubts }, undefined]
  })
}

function replaceTokens({ gen, tokens }: ReplaceTokensRequest): Step<ReplaceTokensResult> {
  return onRecord<ReplaceTokensResult>({ kind: 'gone' }, (record, { now }) => {
    const next = gen + 1
    if (record.gen === next && record.tokens === tokens) return [record, { kind: 'replaced', written: false }]
    if (record.gen > gen) return [record, { kind: 'newer' }]
    // The pause of beginRefresh stays: another process may still have newer tokens.
    const pause = record.lease === '' ? record.leaseUntil : 0
    const written = { ...record, ...FREE, leaseUntil: pause, tokens, gen: next, replacedAt: now }
    return [written, { kind: 'replaced', written: true }]
  })
}

function reseal(was: string, sealed: string): Step<boolean> {
  return onRecord(false, (record) =>
    record.tokens === was ? [{ ...record, tokens: sealed }, true] : [record, false],
  )
}

function end(request: EndRequest): Step<EndResult> {
  const { gen, reason = '', attempt, ifLimitPassed = false } = request
  return ({ record, end }, { now, idleMs }) => {
    if (record === null) return [{ record, end }, { kind: 'gone' }]
    const limit = ifLimitPassed ? idleEndsAt(record, idleMs) : now
    const isOther =
      (gen !== undefined && record.gen !== gen) ||
      (attempt !== undefined && record.lease !== '' && record.lease !== attempt)
    if (isOther || now + CLOCK_TOLERANCE_MS < limit) return [{ record, end }, { kind: 'precondition_failed' }]
    const at = Math.min(limit, now)
    const kept = { reason, at, expireAt: Math.max(now + 1, at + END_KEPT_MS) }
    return [
      { record: null, end: reason === '' ? end : kept },
      { kind: 'ended', tokens: record.tokens },
    ]
  }
}

/** The members of `SessionStore` that are one step on one record. */
export type RecordMember =
  | 'create'
  | 'confirm'
  | 'read'
  | 'readState'
  | 'touch'
  | 'end'
  | 'readEnd'
  | 'reseal'
  | 'beginRefresh'
  | 'renewLease'
  | 'releaseLease'
  | 'replaceTokens'

/** Runs one step on what the store has of this session, and keeps the result. */
export type RunStep = <Reply>(key: RecordKey, member: RecordMember, step: Step<Reply>) => Promise<Reply>

/** Those members, over a store that runs steps. `wall`: the wall clock of the process. */
export function recordMembers(run: RunStep, wall: () => number): Pick<SessionStore, RecordMember> {
  return {
    create: (key, record, provisionalMs) =>
      run(key, 'create', create(record, { provisionalMs, wall: wall() })),
    confirm: (key) => run(key, 'confirm', confirm()),
    read: (key) => run(key, 'read', read()),
    async readState(key) {
      const record = await run(key, 'readState', read())
      if (record === null) return null
      const { gen, seenAt, idleEndsAt, endsAt } = record
      return { gen, seenAt, idleEndsAt, endsAt }
    },
    touch: (key) => run(key, 'touch', touch()),
    end: (key, request = {}) => run(key, 'end', end(request)),
    readEnd: (key) =>
      run(key, 'readEnd', (state) => [
        state,
        state.end === null ? null : { reason: state.end.reason, at: state.end.at },
      ]),
    reseal: (key, was, sealed) => run(key, 'reseal', reseal(was, sealed)),
    beginRefresh: (key, request) => run(key, 'beginRefresh', beginRefresh(request)),
    renewLease: (key, request) => run(key, 'renewLease', renewLease(request)),
    releaseLease: (key, request) => run(key, 'releaseLease', releaseLease(request)),
    replaceTokens: (key, request) => run(key, 'replaceTokens', replaceTokens(request)),
  }
}
