import { claimEntries, type DueEntries, emptyQueue, putEntry } from '../../src/vault/store/memory/queue.ts'
import {
  decodeFacts,
  encodeFacts,
  type RecordKey,
  type RecordState,
  type SessionEnd,
  type StoredRecord,
  unexpired,
} from '../../src/vault/store/record.ts'
import { hashFields, hashShown, hashVersionOf } from '../../src/vault/store/redis/hash-records.ts'
import type { RecordChange, Shown, WriteReply } from '../../src/vault/store/run.ts'
import type { DueClaim } from '../../src/vault/store/store.ts'

/** What a write replaced, so that a promoted replica can be made that has not received it. */
interface Undo {
  at: number
  restore: (data: Data) => void
}

/** What a server has of one session. */
interface HeldState extends RecordState {
  /** Version 0.2 has written the record, as a hash. */
  readonly isHash: boolean
}

interface Data {
  states: Map<RecordKey, HeldState>
  nonces: Map<string, { attempt: string; expireAt: number }>
  due: DueEntries
  /** The due queue of replicas of version 0.2. */
  dueOf02: DueEntries
}

type QueueName = 'due' | 'dueOf02'

/** Replication lags by no more than this, so older writes cannot be lost by a failover. */
const UNDO_KEPT_MS = 10_000

const NOTHING: HeldState = { record: null, end: null, isHash: false }

/** An error reply, as Redis sends it. */
export class ErrorReply extends Error {}

/** The reply to a replica of version 0.2 that reads a record of this version. */
export class WrongType extends ErrorReply {}

/** What the simulation observes of one server. */
interface ServerEvents {
  /** The tokens of a record were written. */
  stored(server: RedisServer, before: StoredRecord, after: StoredRecord): void
  /** The lease of a record was taken, or is free again. */
  leaseChanged(record: StoredRecord): void
  deleted(server: RedisServer, key: RecordKey, reason: string): void
}

interface RedisServerOptions {
  /** Also the replication id: another one after a restart and after a promotion. */
  name: string
  /** Epoch milliseconds. */
  trueTime: () => number
  events: ServerEvents
  /** Default: none. */
  data?: Data
}

/** One Redis server. Of the scripts it has what they do; the rules of a record run in the processes, as in production. */
export class RedisServer {
  readonly name: string
  readonly data: Data
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

  constructor({ name, trueTime, events, data = emptyData() }: RedisServerOptions) {
    this.name = name
    this.#trueTime = trueTime
    this.#events = events
    this.data = data
  }

  /** A server with what this one held at that instant of true time: a promoted replica, or a restart. */
  fork(name: string, heldAt: number): RedisServer {
    const { states, nonces, due, dueOf02 } = this.data
    const copy: Data = {
      states: new Map(states),
      nonces: new Map(nonces),
      due: copyOf(due),
      dueOf02: copyOf(dueOf02),
    }
    for (let at = this.#undo.length - 1; at >= 0 && this.#undo[at]!.at > heldAt; at -= 1) {
      this.#undo[at]!.restore(copy)
    }
    const server = new RedisServer({ name, trueTime: this.#trueTime, events: this.#events, data: copy })
    server.clockOffset = this.clockOffset
    return server
  }

  clock(): number {
    return Math.floor(this.#trueTime() + this.clockOffset)
  }

  #stateOf(key: RecordKey): HeldState {
    const held = this.data.states.get(key) ?? NOTHING
    return { ...unexpired(held, this.clock()), isHash: held.isHash }
  }

  live(key: RecordKey): StoredRecord | null {
    return this.#stateOf(key).record
  }

  /** As read.lua. `by02`: version 0.2 reads. */
  read(key: RecordKey, by02 = false): Shown | WrongType {
    const { record, isHash } = this.#stateOf(key)
    const now = this.clock()
    if (record === null) return { record, version: '', now }
    if (isHash) return shownHash(record, now)
    if (by02) return new WrongType('WRONGTYPE')
    const version = encodeFacts(record)
    return { record: decodeFacts(version, record.tokens), version, now }
  }

  readEnd(key: RecordKey): SessionEnd | null {
    return this.#stateOf(key).end
  }

  /** As write.lua and write-hash.lua. `by02`: version 0.2 writes. */
  write(
    key: RecordKey,
    { version, after: { record, end }, history }: RecordChange,
    by02 = false,
  ): WriteReply | WrongType {
    const before = this.#stateOf(key)
    const now = this.clock()
    if (by02 && before.record !== null && !before.isHash) return new WrongType('WRONGTYPE')
    if (version !== versionOf(before)) return { kind: 'changed' }
    if (history !== null && history !== this.name) return { kind: 'moved', history: this.name }
    // A hash becomes a text when it gets other tokens.
    const isHash = record !== null && (by02 || (before.isHash && record.tokens === before.record?.tokens))
    const expireAt = record === null ? 0 : record.expireAt || before.record!.expireAt
    const facts = record !== null && isHash ? shownHash(record, now).record : record
    const after = { record: facts && { ...facts, expireAt }, end: end ?? before.end, isHash }
    this.#note(({ states }) => states, key)
    this.data.states.set(key, after)
    if (before.record !== null && after.record === null)
      this.#events.deleted(this, key, end === null ? '' : end.reason)
    else if (before.record !== null && after.record !== null) {
      if (before.record.lease !== after.record.lease) this.#events.leaseChanged(after.record)
      if (before.record.tokens !== after.record.tokens) this.#events.stored(this, before.record, after.record)
    }
    return { kind: 'written', version: versionOf(after), now }
  }

  /** To be called before a change of one entry. */
  #note<Value>(mapOf: (data: Data) => Map<string, Value>, key: string): void {
    const before = mapOf(this.data).get(key)
    this.#noteUndo((data) => {
      if (before === undefined) mapOf(data).delete(key)
      else mapOf(data).set(key, before)
    })
  }

  #noteUndo(restore: Undo['restore']): void {
    const at = this.#trueTime()
    this.#undo.push({ at, restore })
    if (this.#undo.length > 400 && this.#undo[200]!.at < at - UNDO_KEPT_MS) this.#undo.splice(0, 200)
  }

  claimNonce(nonce: string, attempt: string, ttlMs: number): boolean {
    const held = this.data.nonces.get(nonce)
    if (held !== undefined && held.expireAt > this.clock()) return held.attempt === attempt
    this.#note(({ nonces }) => nonces, nonce)
    this.data.nonces.set(nonce, { attempt, expireAt: this.clock() + ttlMs })
    return true
  }

  schedule(queue: QueueName, key: RecordKey, inMs: number | null): void {
    this.#note((data) => data[queue].dueAt, key)
    if (inMs === null) this.data[queue].dueAt.delete(key)
    else putEntry(this.data[queue], this.clock(), { key, inMs })
  }

  scheduleMissing(queue: QueueName, entries: readonly { key: RecordKey; inMs: number }[]): number {
    const missing = entries.filter(({ key }) => !this.data[queue].dueAt.has(key))
    for (const { key, inMs } of missing) this.schedule(queue, key, inMs)
    return missing.length
  }

  claimDue(queue: QueueName, limit: number, claimMs: number): DueClaim {
    const before = copyOf(this.data[queue])
    this.#noteUndo((data) => {
      data[queue] = copyOf(before)
    })
    return claimEntries(this.data[queue], this.clock(), { limit, claimMs })
  }

  queueLength(queue: QueueName): number {
    return this.data[queue].dueAt.size
  }

  keys(): RecordKey[] {
    return [...this.data.states.keys()].filter((key) => this.live(key) !== null)
  }
}

function emptyData(): Data {
  return { states: new Map(), nonces: new Map(), due: emptyQueue(), dueOf02: emptyQueue() }
}

/** A hash has only the facts that version 0.2 knows. */
function shownHash(record: StoredRecord, now: number): Shown {
  return hashShown([...hashFields(record), 'tokens', record.tokens], now)
}

function versionOf({ record, isHash }: HeldState): string {
  if (record === null) return ''
  return isHash ? hashVersionOf(record) : encodeFacts(record)
}

function copyOf(queue: DueEntries): DueEntries {
  return { ...queue, dueAt: new Map(queue.dueAt) }
}
