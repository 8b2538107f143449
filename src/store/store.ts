import type { SessionFlow } from '../config/variables.ts'
import { Problem } from '../errors.ts'

/**
 * The store room keeps one record for each session, the queue of sessions that are due for a
 * refresh, and the nonces of sign-ins that came back. It promises atomic steps on one record and a
 * message to every replica when a record changed. It does not know what is inside `tokens`.
 */

/** SHA-256 of the session id, 64 hex digits: the only name of a session that the store knows. */
export type RecordKey = string

/** A session as the log names it: the beginning by which `npm run sessions` finds it. */
export function inLog(key: RecordKey): string {
  return key.slice(0, 12)
}

export interface SessionRecord {
  /** What @fastify/session keeps, as JSON; never a token. */
  readonly session: string
  /** The sealed tokens. */
  readonly tokens: string
  /** Generation of the tokens: +1 with each replacement. */
  readonly gen: number
  /** Epoch milliseconds, as are all instants here. */
  readonly createdAt: number
  /** Last recorded activity of the browser. */
  readonly seenAt: number
  /** The absolute limit. */
  readonly endsAt: number
  readonly flow: SessionFlow
  /** The `client_id` that the tokens were issued to. */
  readonly client: string
  /** Presentations of this generation's refresh token that had no readable answer, one under way included. */
  readonly doubts: number
  /** How long the right to refresh is taken, by the store's clock; 0 when it is free. */
  readonly leaseUntil: number
  /** No refresh before this instant, by the store's clock; 0 for none. */
  readonly retryAt: number
  /** When these tokens were written, by the store's clock; 0 where it is not known. */
  readonly replacedAt: number
}

export type NewRecord = Pick<SessionRecord, 'tokens' | 'createdAt' | 'endsAt' | 'flow' | 'client'>

/** What became of asking for the right to refresh. */
export type BeginRefresh =
  /**
   * The lease is ours and the intent is written. `doubts` counts the presentations before this one that had no
   * readable answer. `openForMs`: an earlier holder never settled its lease, and may still receive an answer
   * for this long; 0 where there is none. `ageMs`: since the tokens were written, by the store's clock; null where
   * that is not known.
   */
  | { kind: 'granted'; doubts: number; openForMs: number; ageMs: number | null }
  /** The tokens are of another generation already. */
  | { kind: 'replaced' }
  /** Another attempt holds the lease, for `waitMs` more unless it is renewed; it took it `ageMs` ago. */
  | { kind: 'busy'; waitMs: number; ageMs: number }
  /** The server is another one than at the last refresh and may lack newer tokens: nobody for so long. */
  | { kind: 'paused'; waitMs: number }
  /** An earlier attempt failed; not before this has passed. A forced refresh does not wait for it. */
  | { kind: 'backing_off'; waitMs: number }
  /** A forced refresh has brought these tokens within the window. */
  | { kind: 'forced_before' }
  | { kind: 'gone' }

export interface BeginRefreshRequest {
  gen: number
  /** Names this attempt: the same call again (after a lost answer) has the same result. */
  attempt: string
  /** No lease and no pause is longer: one that seems to be comes from a clock that stepped back. */
  leaseMs: number
  /** How long after the start of a lease its presentation may still be answered. */
  openMs: number
  /** How long the access token still lives: for so long a pause hurts nobody. */
  livesMs: number
  /** Not 0: the refresh is forced; at most one within so many milliseconds. */
  forcedWindowMs: number
}

export interface RenewLease {
  gen: number
  attempt: string
  /** Presentations of this generation without a readable answer, this one included. */
  doubts: number
  leaseMs: number
}

/** `taken`: the record has other tokens, or another attempt has taken the lease since. */
export type RenewedLease = 'held' | 'taken' | 'gone'

export interface InDoubt {
  gen: number
  doubts: number
}

export type ReplaceTokens = { kind: 'replaced'; gen: number } | { kind: 'moved' } | { kind: 'gone' }

/** `newer`: the record has this generation or a newer one. */
export type RestoreTokens = { kind: 'restored' } | { kind: 'newer' } | { kind: 'gone' }

export type EndRecord = { kind: 'ended'; tokens: string } | { kind: 'moved' } | { kind: 'gone' }

export interface DueClaim {
  /** `lateMs`: how long ago the entry became due. */
  entries: { key: RecordKey; lateMs: number }[]
  /** Milliseconds until the next entry of this shard is due; null when it is empty. */
  nextInMs: number | null
  /** The store's clock, epoch milliseconds. */
  storeNow: number
}

/** The queue is spread over so many sorted sets, by the first hex digit of the record key. */
export const DUE_SHARDS = 16

/** By so much the clocks of replicas and store may differ. */
export const CLOCK_TOLERANCE_MS = 5_000

/** Once the access token has expired no back-off is longer: the most that a `Retry-After` is honoured for. */
export const LONGEST_BACK_OFF_MS = 60_000

/** So long it is known why a session ended. */
export const END_KEPT_MS = 3_600_000

/**
 * A record outlives its limits by this: so that its end is counted with the right reason, and so that a store whose
 * clock steps forward by an hour deletes no session that lives.
 */
export const RECORD_SLACK_MS = 3_660_000

/**
 * The store cannot be reached, or refuses. Every method of `SessionStore` rejects with this and
 * nothing else; the command may have run all the same.
 */
export class StoreUnavailable extends Problem {
  /** No answer came, from no part of the store; one that answers with an error was reached. */
  readonly unreached: boolean

  constructor(cause: unknown, unreached = false) {
    super('store_unavailable', { headers: { 'retry-after': '1' }, cause })
    this.name = 'StoreUnavailable'
    this.unreached = unreached
  }
}

export interface SessionStore {
  /** true for exactly one caller a nonce, over all replicas, for `ttlMs`. `attempt` as in `BeginRefreshRequest`. */
  claimNonce(nonce: string, attempt: string, ttlMs: number): Promise<boolean>
  nonceClaimed(nonce: string): Promise<boolean>

  /** A record of generation 1 that lives `provisionalMs` unless `saveSession` confirms it. */
  create(key: RecordKey, record: NewRecord, attempt: string, provisionalMs: number): Promise<void>
  read(key: RecordKey): Promise<SessionRecord | null>
  /** Updates a record that exists and gives it its whole life; false, and nothing written, when there is none. */
  saveSession(key: RecordKey, session: string, idleMs: number): Promise<boolean>
  /**
   * Records that the browser was active so many milliseconds ago, by the store's clock: a replica whose wall clock
   * is wrong makes no session idle. The caller has found the session alive by its own clock, so the
   * store does not judge the idle limit: its clock may have been set. false when the session is gone. Never moves `seenAt` back.
   */
  touch(key: RecordKey, agoMs: number, idleMs: number): Promise<boolean>

  beginRefresh(key: RecordKey, request: BeginRefreshRequest): Promise<BeginRefresh>
  /**
   * Extends the lease of a presentation that has no answer yet, and takes it again where the store has lost it.
   */
  renewLease(key: RecordKey, request: RenewLease): Promise<RenewedLease>
  /**
   * Gives the lease back without new tokens. `inDoubt`: how many presentations of which generation have
   * had no readable answer, this one included; null where it leaves no doubt, since a readable answer
   * came or nothing was sent. Unless `attempt` holds the lease this does nothing, but for doubts of
   * which the record knows fewer: the store has lost that lease, and they are written with the wait.
   */
  settleRefresh(key: RecordKey, attempt: string, inDoubt: InDoubt | null, retryInMs: number): Promise<void>
  /**
   * Compare-and-set on the generation `gen`, or an older one where the store has lost some; needs no
   * lease. The same call again with `attempt` says `replaced` again.
   */
  replaceTokens(key: RecordKey, gen: number, attempt: string, tokens: string): Promise<ReplaceTokens>
  /**
   * Replaces the tokens that were read by the same tokens, sealed again, and changes nothing else.
   * false, and nothing written, where the record is gone or holds another text than `was`: no text is
   * sealed twice, so that stands for the generation too.
   */
  reseal(key: RecordKey, was: string, sealed: string): Promise<boolean>
  /**
   * Writes tokens of generation `gen` again where the record has an older one: the store has lost them.
   * The same call again with `attempt` says `restored` again.
   */
  restoreTokens(key: RecordKey, gen: number, attempt: string, tokens: string): Promise<RestoreTokens>
  /** Deletes the record; with `gen` only if the tokens are still of that generation. Keeps `reason` for an hour. */
  end(key: RecordKey, gen: number | null, reason?: string): Promise<EndRecord>
  /**
   * As `end`, but only where the store's own clock agrees, to within five seconds, that a limit has passed;
   * else `moved`. A replica whose clock is wrong must not end the sessions of all.
   */
  endPassed(key: RecordKey, gen: number, reason: string, idleMs: number): Promise<EndRecord>
  /** Why the session ended, while that is kept; else null. */
  endReason(key: RecordKey): Promise<string | null>

  /**
   * Makes a session due in `inMs`, whether it is in the due queue or not. A hint: the record is the truth. A delay
   * and no instant, since the clocks of replicas and store may differ.
   */
  schedule(key: RecordKey, inMs: number): Promise<void>
  unschedule(key: RecordKey): Promise<void>
  /**
   * Adds those sessions to the due queue that are not in it; answers how many it added. With `latest` it also
   * moves those forward that would become due later: their places come from a clock that has stepped back since.
   */
  scheduleMissing(entries: readonly { key: RecordKey; inMs: number }[], latest?: boolean): Promise<number>
  /** Takes up to `limit` due sessions of one shard and moves them on by `leaseMs`. */
  claimDue(shard: number, limit: number, leaseMs: number): Promise<DueClaim>
  /** Entries of the whole queue, due or not. */
  queueLength(): Promise<number>

  /**
   * The keys of all records, in batches, some of them empty. A record that is there from the beginning
   * of the walk to its end is found; one that comes or goes meanwhile may be. One key may be told more
   * than once while the server makes room: who counts has to tell them apart. Rejects, and has to be
   * begun again, where a connection breaks on the way, since what was passed over is not known then.
   */
  keys(): AsyncIterable<RecordKey[]>

  /** As a change message would, but for this process alone: what it keeps of the record is not to be used. */
  forget(key: RecordKey): void
  /** Called with the key of each record that was changed or ended, by whichever replica. */
  onChange(listener: (key: RecordKey) => void): void
  /** Whether change messages are proven to arrive just now. */
  messagesArrive(): boolean
  /** Milliseconds since the last instant at which they were proven to arrive; infinite for never. */
  msSinceMessagesArrived(): number
  /** Called when messages stop being proven to arrive; what was missed is not told later. */
  onMessagesLost(listener: () => void): void
  /** Called when messages are proven to arrive, for the first time and after each loss. */
  onMessagesBack(listener: () => void): void
  /** Whether no part of the store could be reached when it was last tried; it is tried several times a second. */
  unreached(): boolean
  /**
   * Called when another server may have taken the place of the one that was written to, or when it
   * takes no writes: a connection was lost or made, messages stopped, a refusal says so. It may have
   * lost what was written shortly before. A command that is not allowed or takes too long is no trouble.
   */
  onTrouble(listener: () => void): void
  /** Milliseconds since this process last saw such trouble with the server of that record; infinite for never. */
  msSinceTrouble(key: RecordKey): number
  /** Rejects with StoreUnavailable unless the store answers and takes writes. */
  ping(): Promise<void>
  close(): Promise<void>
}
