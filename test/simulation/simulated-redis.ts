import { claimEntries, type DueEntries, emptyQueue, putEntry } from '../../src/store/memory/queue.ts'
import { NEW_HISTORY_PAUSE_MS } from '../../src/store/redis/store.ts'
import {
  type BeginRefreshRequest,
  type BeginRefreshResult,
  CLOCK_TOLERANCE_MS,
  type DueClaim,
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
  type RestoreTokensRequest,
  type RestoreTokensResult,
  type SessionEnd,
  type SessionRecord,
  type SessionState,
} from '../../src/store/store.ts'

/** The record of a session in a Redis server. Never changed in place: each change replaces it. */
export interface StoredRecord extends Omit<SessionRecord, 'idleEndsAt'> {
  readonly attempt: string
  readonly lease: string
  readonly leasedAt: number
  readonly openUntil: number
  readonly retrySetAt: number
  readonly forcedAt: number
  readonly forcedGen: number
  readonly history: string
  readonly expireAt: number
}

interface Expiring {
  readonly expireAt: number
}

interface Nonce extends Expiring {
  readonly attempt: string
}

interface KeptEnd extends Expiring {
  at: number
  readonly reason: string
  readonly successor: RecordKey | null
}

/** What a write replaced, so that a promoted replica can be made that has not received it. */
interface Undo {
  at: number
  restore: (data: Data) => void
}

interface Data {
  records: Map<RecordKey, StoredRecord>
  nonces: Map<string, Nonce>
  ends: Map<RecordKey, KeptEnd>
  due: DueEntries
}

/** Replication lags by no more than this, so older writes cannot be lost by a failover. */
const UNDO_KEPT_MS = 10_000

/** Of a record whose tokens have just been written. */
const FREE = { lease: '', leaseUntil: 0, openUntil: 0, retryAt: 0, doubts: 0 }

/** An error reply, as Redis sends it. */
export class ErrorReply extends Error {}

/** What the simulation observes of one server. */
interface ServerEvents {
  /** The tokens of a record were written. */
  stored(server: RedisServer, before: StoredRecord, after: StoredRecord): void
  deleted(server: RedisServer, key: RecordKey, reason: string): void
}

interface RedisServerOptions {
  name: string
  history: string
  /** Epoch milliseconds. */
  trueTime: () => number
  events: ServerEvents
  /** Default: none. */
  data?: Data
}

/**
 * One Redis server with the scripts of src/store/redis/lua. The contract tests of the port run over it as they run
 * over Redis, so both keep the same promises.
 */
export class RedisServer {
  readonly name: string
  readonly data: Data
  /** Replication id: another one after a restart and after a promotion. */
  readonly history: string
  /** How far its wall clock is from the true time, milliseconds. */
  clockOffset = 0
  /** Refuses every write with this error. */
  refusesWrites: string | null = null
  /** Accepts no connection. */
  refusesConnections = false
  /** Executes nothing until it thaws. */
  frozen = false
  /** Gone for good. */
  dead = false
  readonly #trueTime: () => number
  readonly #events: ServerEvents
  #undo: Undo[] = []

  constructor({ name, history, trueTime, events, data = emptyData() }: RedisServerOptions) {
    this.name = name
    this.history = history
    this.#trueTime = trueTime
    this.#events = events
    this.data = data
  }

  /** A server with what this one held at that instant of true time: a promoted replica, or a restart. */
  fork(name: string, history: string, heldAt: number): RedisServer {
    const { records, nonces, ends, due } = this.data
    const copy: Data = {
      records: new Map(records),
      nonces: new Map(nonces),
      ends: new Map(ends),
      due: copyOf(due),
    }
    for (let at = this.#undo.length - 1; at >= 0 && this.#undo[at]!.at > heldAt; at -= 1) {
      this.#undo[at]!.restore(copy)
    }
    const server = new RedisServer({
      ...{ name, history, trueTime: this.#trueTime, events: this.#events },
      data: copy,
    })
    server.clockOffset = this.clockOffset
    return server
  }

  clock(): number {
    return Math.floor(this.#trueTime() + this.clockOffset)
  }

  live(key: RecordKey): StoredRecord | null {
    const record = this.data.records.get(key)
    if (record === undefined) return null
    if (record.expireAt > this.clock()) return record
    this.data.records.delete(key)
    return null
  }

  #note(restore: Undo['restore']): void {
    const at = this.#trueTime()
    this.#undo.push({ at, restore })
    if (this.#undo.length > 400 && this.#undo[200]!.at < at - UNDO_KEPT_MS) this.#undo.splice(0, 200)
  }

  #put(key: RecordKey, record: StoredRecord): void {
    const before = this.data.records.get(key)
    this.data.records.set(key, record)
    this.#note(({ records }) => {
      if (before === undefined) records.delete(key)
      else records.set(key, before)
    })
  }

  /** To be called before a change of the queue. */
  #noteQueue(key: RecordKey): void {
    const before = this.data.due.dueAt.get(key)
    this.#note(({ due }) => {
      if (before === undefined) due.dueAt.delete(key)
      else due.dueAt.set(key, before)
    })
  }

  claimNonce(nonce: string, attempt: string, ttlMs: number): boolean {
    const held = this.data.nonces.get(nonce)
    if (held !== undefined && held.expireAt > this.clock()) return held.attempt === attempt
    this.data.nonces.set(nonce, { attempt, expireAt: this.clock() + ttlMs })
    this.#note(({ nonces }) => {
      if (held === undefined) nonces.delete(nonce)
      else nonces.set(nonce, held)
    })
    return true
  }

  nonceClaimed(nonce: string): boolean {
    const held = this.data.nonces.get(nonce)
    return held !== undefined && held.expireAt > this.clock()
  }

  create(
    key: RecordKey,
    record: NewRecord,
    { provisionalMs, wall }: { provisionalMs: number; wall: number },
  ): void {
    if (this.live(key) !== null) return
    const ahead = this.clock() - wall
    const aheadMs = Math.abs(ahead) < CLOCK_TOLERANCE_MS ? 0 : ahead
    this.#put(key, {
      ...record,
      createdAt: record.createdAt + aheadMs,
      endsAt: record.endsAt + aheadMs,
      seenAt: record.createdAt + aheadMs,
      gen: 1,
      ...FREE,
      leasedAt: 0,
      retrySetAt: 0,
      forcedAt: 0,
      forcedGen: 0,
      replacedAt: this.clock(),
      attempt: '',
      history: this.history,
      expireAt: this.clock() + Math.ceil(provisionalMs),
    })
  }

  read(key: RecordKey, idleMs: number): SessionRecord | null {
    const record = this.live(key)
    if (record === null) return null
    const { tokens, gen, replacedAt, createdAt, seenAt, endsAt, flow, client } = record
    const { doubts, leaseUntil, retryAt } = record
    const facts = { tokens, gen, replacedAt, createdAt, seenAt, endsAt, flow, client }
    return { ...facts, doubts, leaseUntil, retryAt, idleEndsAt: idleEndsAt(record, idleMs) }
  }

  readState(key: RecordKey, idleMs: number): SessionState | null {
    const record = this.live(key)
    if (record === null) return null
    const { gen, seenAt, endsAt } = record
    return { gen, seenAt, endsAt, idleEndsAt: idleEndsAt(record, idleMs) }
  }

  confirm(key: RecordKey, idleMs: number): boolean {
    const record = this.live(key)
    if (record === null) return false
    this.#put(key, { ...record, expireAt: idleEndsAt(record, idleMs) + RECORD_SLACK_MS })
    return true
  }

  touch(key: RecordKey, idleMs: number): boolean {
    const record = this.live(key)
    if (record === null) return false
    const touched = { ...record, seenAt: Math.max(record.seenAt, this.clock()) }
    this.#put(key, { ...touched, expireAt: idleEndsAt(touched, idleMs) + RECORD_SLACK_MS })
    return true
  }

  beginRefresh(key: RecordKey, request: BeginRefreshRequest): BeginRefreshResult {
    const { gen, attempt, leaseMs, openMs, livesMs, forcedWindowMs } = request
    const record = this.live(key)
    if (record === null) return { kind: 'gone' }
    if (record.gen !== gen) return { kind: 'replaced' }
    const now = this.clock()
    const granted = (doubts: number, openUntil: number): BeginRefreshResult => {
      const ageMs = now - record.replacedAt
      const openForMs = Math.max(0, openUntil - now)
      return { kind: 'granted', doubts, openForMs, ageMs: ageMs < 0 ? null : ageMs }
    }
    const leasedAt = Math.min(record.leasedAt, now)
    const openBefore = Math.min(record.openUntil, now + openMs)
    if (record.lease === attempt) return granted(record.doubts - 1, openBefore)
    const leased = Math.min(record.leaseUntil - now, leaseMs)
    if (leased > 0) {
      if (leased < record.leaseUntil - now) this.#put(key, { ...record, leaseUntil: now + leased })
      if (record.lease === '') return { kind: 'paused', waitMs: leased }
      return { kind: 'busy', waitMs: leased, ageMs: now - leasedAt }
    }
    const openUntil = record.lease === '' ? openBefore : Math.max(openBefore, leasedAt + openMs)
    if (record.history !== this.history) {
      const waitMs = Math.max(NEW_HISTORY_PAUSE_MS, Math.ceil(Math.min(livesMs, leaseMs)))
      this.#put(key, { ...record, history: this.history, lease: '', leaseUntil: now + waitMs, openUntil })
      return { kind: 'paused', waitMs }
    }
    const longest = Math.ceil(Math.max(livesMs, LONGEST_BACK_OFF_MS))
    const backOff = record.retrySetAt > now ? 0 : Math.min(record.retryAt, record.retrySetAt + longest) - now
    const forced = forcedWindowMs > 0
    const forcedBefore = forced && record.forcedAt <= now && record.forcedAt + forcedWindowMs > now
    if (forcedBefore && record.forcedGen !== gen) return { kind: 'forced_before' }
    if (backOff > 0 && (!forced || forcedBefore)) return { kind: 'backing_off', waitMs: backOff }
    this.#put(key, {
      ...record,
      ...(forced ? { forcedAt: now, forcedGen: gen } : {}),
      lease: attempt,
      leaseUntil: now + leaseMs,
      leasedAt: now,
      openUntil,
      doubts: record.doubts + 1,
    })
    return granted(record.doubts, openUntil)
  }

  renewLease(key: RecordKey, { gen, attempt, doubts, leaseMs }: RenewLeaseRequest): RenewLeaseResult {
    const record = this.live(key)
    if (record === null) return 'gone'
    if (record.gen !== gen) return 'taken'
    if (record.lease !== attempt && record.lease !== '') return 'taken'
    const now = this.clock()
    this.#put(key, {
      ...record,
      lease: attempt,
      leaseUntil: now + leaseMs,
      leasedAt: record.lease === attempt ? record.leasedAt : now,
      doubts: Math.max(record.doubts, doubts),
    })
    return 'held'
  }

  releaseLease(key: RecordKey, { attempt, inDoubt, retryInMs }: ReleaseLeaseRequest): void {
    const record = this.live(key)
    if (record === null) return
    const retrySetAt = this.clock()
    const retryAt = retrySetAt + Math.ceil(retryInMs)
    if (record.lease === attempt) {
      const doubts = record.doubts - (inDoubt === null ? 1 : 0)
      this.#put(key, { ...record, lease: '', leaseUntil: 0, retryAt, retrySetAt, doubts })
    } else if (inDoubt !== null && record.gen === inDoubt.gen && record.doubts < inDoubt.doubts) {
      const later = Math.max(retryAt, record.retryAt)
      this.#put(key, { ...record, retryAt: later, retrySetAt, doubts: inDoubt.doubts })
    }
  }

  replaceTokens(key: RecordKey, { gen, attempt, tokens }: ReplaceTokensRequest): ReplaceTokensResult {
    const record = this.live(key)
    if (record === null) return { kind: 'gone' }
    if (record.gen === gen + 1 && record.attempt === attempt) return { kind: 'replaced', gen: record.gen }
    if (record.gen > gen) return { kind: 'newer' }
    const after = { ...record, ...FREE, tokens, gen: gen + 1, attempt, replacedAt: this.clock() }
    this.#put(key, after)
    this.#events.stored(this, record, after)
    return { kind: 'replaced', gen: gen + 1 }
  }

  reseal(key: RecordKey, was: string, sealed: string): boolean {
    const record = this.live(key)
    if (record === null || record.tokens !== was) return false
    const after = { ...record, tokens: sealed }
    this.#put(key, after)
    this.#events.stored(this, record, after)
    return true
  }

  restoreTokens(key: RecordKey, { gen, attempt, tokens }: RestoreTokensRequest): RestoreTokensResult {
    const record = this.live(key)
    if (record === null) return { kind: 'gone' }
    if (record.gen === gen && record.attempt === attempt) return { kind: 'restored' }
    if (record.gen >= gen) return { kind: 'newer' }
    const pause = record.lease === '' ? record.leaseUntil : 0
    const after = { ...record, ...FREE, leaseUntil: pause, tokens, gen, attempt, replacedAt: this.clock() }
    this.#put(key, after)
    this.#events.stored(this, record, after)
    return { kind: 'restored' }
  }

  /** With `idleMs` only where a limit has passed. */
  end(
    key: RecordKey,
    { gen, reason = '', attempt, successor }: EndRequest,
    idleMs: number | null = null,
  ): EndResult {
    const record = this.live(key)
    if (record === null) {
      const kept = this.#keptEnd(key)
      if (kept === null && successor !== undefined)
        this.#keepEnd(key, { reason, at: this.clock(), successor })
      return { kind: 'gone', successor: kept?.successor ?? null }
    }
    if (gen !== undefined && record.gen !== gen) return { kind: 'precondition_failed' }
    if (attempt !== undefined && record.lease !== '' && record.lease !== attempt)
      return { kind: 'precondition_failed' }
    const limit = idleMs === null ? this.clock() : idleEndsAt(record, idleMs)
    if (this.clock() + CLOCK_TOLERANCE_MS < limit) return { kind: 'precondition_failed' }
    const at = Math.min(this.clock(), limit)
    this.data.records.delete(key)
    this.#note(({ records }) => void records.set(key, record))
    if (reason !== '') this.#keepEnd(key, { reason, at, successor: successor ?? null })
    this.#events.deleted(this, key, reason)
    return { kind: 'ended', tokens: record.tokens }
  }

  readEnd(key: RecordKey): SessionEnd | null {
    const end = this.#keptEnd(key)
    return end === null ? null : { reason: end.reason, at: end.at }
  }

  #keptEnd(key: RecordKey): KeptEnd | null {
    const end = this.data.ends.get(key)
    return end !== undefined && end.expireAt > this.clock() ? end : null
  }

  #keepEnd(key: RecordKey, end: Omit<KeptEnd, 'expireAt'>): void {
    this.data.ends.set(key, { ...end, expireAt: end.at + END_KEPT_MS })
    this.#note(({ ends }) => void ends.delete(key))
  }

  schedule(key: RecordKey, inMs: number): void {
    this.#noteQueue(key)
    putEntry(this.data.due, this.clock(), { key, inMs })
  }

  unschedule(key: RecordKey): void {
    this.#noteQueue(key)
    this.data.due.dueAt.delete(key)
  }

  scheduleMissing(entries: readonly { key: RecordKey; inMs: number }[]): number {
    const missing = entries.filter(({ key }) => !this.data.due.dueAt.has(key))
    for (const { key, inMs } of missing) this.schedule(key, inMs)
    return missing.length
  }

  claimDue(limit: number, claimMs: number): DueClaim {
    const before = copyOf(this.data.due)
    this.#note((data) => {
      data.due = copyOf(before)
    })
    return claimEntries(this.data.due, this.clock(), { limit, claimMs })
  }

  queueLength(): number {
    return this.data.due.dueAt.size
  }

  keys(): RecordKey[] {
    return [...this.data.records.keys()].filter((key) => this.live(key) !== null)
  }
}

function emptyData(): Data {
  return { records: new Map(), nonces: new Map(), ends: new Map(), due: emptyQueue() }
}

function copyOf(queue: DueEntries): DueEntries {
  return { ...queue, dueAt: new Map(queue.dueAt) }
}
