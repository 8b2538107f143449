import type { SessionFlow } from '../../config/variables.ts'
import { Problem } from '../../errors.ts'

/**
 * The store keeps one record for each session, the queue of sessions that are due for a refresh, and the nonces of
 * sign-ins that came back. Each step on one record is atomic. The store sends no notifications: a process that wants to
 * know reads. It does not know what is inside `tokens`. redis/ and memory/ are stores. app.ts wraps one twice: in
 * report-writes.ts, which keeps the cache true, and in outbox.ts, which tries writes again.
 */

/** SHA-256 of the session id, 64 hex digits: the only name of a session that the store knows. */
export type RecordKey = string

/** What the log calls a session: the beginning of its key, which `npm run sessions` accepts as an id. */
export function inLog(key: RecordKey): string {
  return key.slice(0, 12)
}

/** What the store keeps of one session. */
export interface SessionRecord {
  /** The sealed tokens, one byte a character. */
  readonly tokens: string
  /** Generation of the tokens: +1 with each replacement. */
  readonly gen: number
  /** Epoch milliseconds, as are all instants here. */
  readonly createdAt: number
  /** Last recorded activity of the browser. */
  readonly seenAt: number
  /** The session ends at this instant if its browser stays away; never after `endsAt`. */
  readonly idleEndsAt: number
  /** The absolute limit. */
  readonly endsAt: number
  readonly flow: SessionFlow
  /** The `client_id` that the tokens were issued to. */
  readonly client: string
  /**
   * Presentations of this generation's refresh token after which it may be used up (docs/decisions/0002). The lease
   * counts each before it leaves, so one that is under way is included.
   */
  readonly doubts: number
  /** Until when the lease is held, or refreshes are paused after a failover, by the store's clock; 0 for neither. */
  readonly leaseUntil: number
  /** No refresh before this instant, by the store's clock; 0 for none. */
  readonly retryAt: number
  /** When these tokens were written, by the store's clock; 0 if that is not known. */
  readonly replacedAt: number
}

/** When a session ends if its browser stays away. */
export function idleEndsAt(
  { seenAt, endsAt }: Pick<SessionRecord, 'seenAt' | 'endsAt'>,
  idleMs: number,
): number {
  return Math.min(seenAt + idleMs, endsAt)
}

/** What a small read shows of a record: enough to know whether a cached session goes on. */
export type SessionState = Pick<SessionRecord, 'gen' | 'seenAt' | 'idleEndsAt' | 'endsAt'>

export type NewRecord = Pick<SessionRecord, 'tokens' | 'createdAt' | 'endsAt' | 'flow' | 'client'>

/** Records of sessions. */
export interface RecordStore {
  /**
   * Creates a record of generation 1 that expires after `provisionalMs` unless it is confirmed. Does nothing if it exists.
   * Where the clock of this process differs too much, all instants are moved to the store's clock.
   */
  create(key: RecordKey, record: NewRecord, provisionalMs: number): Promise<void>
  /** Lets a provisional record live until its limits; false if there is none. */
  confirm(key: RecordKey): Promise<boolean>
  read(key: RecordKey): Promise<SessionRecord | null>
  /** As `read`, without the tokens and what else only a refresh needs. */
  readState(key: RecordKey): Promise<SessionState | null>
  /**
   * Records that the browser is active now, by the store's clock: a replica whose wall clock is wrong makes no
   * session idle. The store does not check the idle limit: its clock may have been set. false if there is no record.
   * Never moves `seenAt` back.
   */
  touch(key: RecordKey): Promise<boolean>
  /**
   * Deletes the record, and keeps the reason.
   */
  end(key: RecordKey, request?: EndRequest): Promise<EndResult>
  /** Why and when a session ended, for `END_KEPT_MS` after it; else null. An end by a limit is dated at that limit. */
  readEnd(key: RecordKey): Promise<SessionEnd | null>
  /**
   * Replaces sealed tokens by the same tokens under another secret, and changes nothing else. false, and nothing
   * written, if the record is gone or holds other text than `was`: no text is sealed twice, so equal text means the
   * same generation.
   */
  reseal(key: RecordKey, was: string, sealed: string): Promise<boolean>
  /**
   * The keys of all records, in batches, some of them empty. A record that exists during the whole scan is
   * found; others may be. A key may come more than once, so callers that count must remove duplicates. Rejects if a
   * connection breaks: the scan then has to start again.
   */
  keys(): AsyncIterable<RecordKey[]>
}

export interface EndRequest {
  /** End the session only while its tokens are of this generation. */
  gen?: number
  /** Kept for `END_KEPT_MS`. */
  reason?: string | undefined
  /** Do not end the session while another attempt holds the lease: that one may be granted new tokens. */
  attempt?: string
  /**
   * End the session only if the store's own clock agrees, to within `CLOCK_TOLERANCE_MS`, that a limit has passed. A
   * replica whose clock is wrong must not end sessions for all replicas.
   */
  ifLimitPassed?: boolean
}

/** `precondition_failed`: a condition of the request does not hold, and nothing was written. */
export type EndResult = { kind: 'ended'; tokens: string } | { kind: 'precondition_failed' } | { kind: 'gone' }

/** Why a session ended, and when (epoch milliseconds, by the store's clock). */
export interface SessionEnd {
  reason: string
  at: number
}

/** How long the store keeps why a session ended. */
export const END_KEPT_MS = 3_600_000

/**
 * A record outlives its limits by this time, so that its end is counted with the right reason, and a store whose clock
 * steps forward by an hour deletes no session that lives.
 */
export const RECORD_SLACK_MS = 3_660_000

/** How far the clocks of replicas and store may differ. */
export const CLOCK_TOLERANCE_MS = 5_000

/**
 * The refresh of one record. An attempt begins with the lease, so no other attempt presents the same refresh token. It
 * renews the lease until it has a response, then replaces the tokens, releases the lease or ends the session. If its
 * process dies before, the lease lapses: the next attempt learns of the doubt, and how long a response may still come.
 */
interface RefreshStore {
  /** Takes the lease and counts the doubt of the presentation that follows, or says why it may not follow now. */
  beginRefresh(key: RecordKey, request: BeginRefreshRequest): Promise<BeginRefreshResult>
  /** Extends the lease of a presentation that has no response yet, and takes it again if the store has lost it. */
  renewLease(key: RecordKey, request: RenewLeaseRequest): Promise<RenewLeaseResult>
  /**
   * Releases the lease without new tokens. Does nothing unless `attempt` holds the lease; but if the record knows fewer
   * doubts, the store has lost that lease: doubts and wait are then written.
   */
  releaseLease(key: RecordKey, release: ReleaseLeaseRequest): Promise<void>
  /**
   * Replaces the tokens of generation `gen`, or of an older one if the store has lost some. Needs no lease. The same
   * call again writes nothing, unless the store has lost them meanwhile.
   */
  replaceTokens(key: RecordKey, request: ReplaceTokensRequest): Promise<ReplaceTokensResult>
}

export interface BeginRefreshRequest {
  gen: number
  /** Random name of this attempt. The same call with the same name, after a lost reply, has the same result. */
  attempt: string
  /** No lease and no pause is longer: a longer one was written by a clock that has stepped back since. */
  leaseMs: number
  /** A presentation is open while its response may still come: at most for this long after the start of its lease. */
  openMs: number
  /** How long the access token is still valid, 0 if it was refused: a pause until then delays no request. */
  livesMs: number
  /**
   * Not 0: the refresh is forced, since the resource server refused a valid access token. At most one forced refresh
   * brings new tokens within this time.
   */
  forcedWindowMs: number
}

/** Whether the lease was taken. */
export type BeginRefreshResult =
  /**
   * `attempt` holds the lease, and its doubt is counted. `doubts`: those before this presentation. `openForMs`: an
   * earlier holder never released its lease, and its presentation is open for this long; 0 if there is none.
   * `ageMs`: since the tokens were written, by the store's clock; null if that is not known.
   */
  | { kind: 'granted'; doubts: number; openForMs: number; ageMs: number | null }
  /** The tokens are of another generation already. */
  | { kind: 'replaced' }
  /** Another attempt took the lease `ageMs` ago and holds it for `waitMs` more, longer if it renews. */
  | { kind: 'busy'; waitMs: number; ageMs: number }
  /** Another server has the record since the last refresh and may lack newer tokens: nobody refreshes for `waitMs`. */
  | { kind: 'paused'; waitMs: number }
  /** An earlier attempt failed: nobody refreshes for `waitMs`. The first forced refresh does not wait for it. */
  | { kind: 'backing_off'; waitMs: number }
  /** A forced refresh brought these tokens within the window. */
  | { kind: 'forced_before' }
  | { kind: 'gone' }

/** Once the access token has expired no back-off is longer: the longest `Retry-After` that is honoured. */
export const LONGEST_BACK_OFF_MS = 60_000

export interface RenewLeaseRequest {
  gen: number
  attempt: string
  /** Doubts about this generation, that of this presentation included. */
  doubts: number
  leaseMs: number
}

/** `taken`: the record has other tokens, or another attempt has taken the lease since. */
export type RenewLeaseResult = 'held' | 'taken' | 'gone'

/** How many doubts there are about which generation, that of this presentation included. */
interface InDoubt {
  gen: number
  doubts: number
}

export interface ReleaseLeaseRequest {
  attempt: string
  /** null takes the doubt of this presentation back; earlier ones stay. */
  inDoubt: InDoubt | null
  /** Nobody refreshes for this time. */
  retryInMs: number
}

export interface ReplaceTokensRequest {
  /** The generation that these tokens follow: they become the next one. */
  gen: number
  /** Sealed, one byte a character. No text is sealed twice, so equal text is the same call again. */
  tokens: string
}

/**
 * `replaced`: the record has these tokens; `written`: by this call. `newer`: it has this generation or a newer one from
 * another attempt.
 */
export type ReplaceTokensResult =
  | { kind: 'replaced'; written: boolean }
  | { kind: 'newer' }
  | { kind: 'gone' }

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
  nonceClaimed(nonce: string): Promise<boolean>
}

/** Counts of tries, for limits that hold over all processes. */
export interface TryStore {
  /**
   * Counts one more try of this bucket; a window ends `windowMs` after its first try. null: no other process has this
   * store, so the caller's own count is enough.
   */
  countTry(bucket: string, windowMs: number): Promise<{ count: number; leftMs: number } | null>
}

/** One Redis, a Sentinel group, a Cluster, or the memory of this process. Methods reject with `StoreUnavailable` alone. */
export interface SessionStore extends RecordStore, RefreshStore, DueQueue, NonceStore, TryStore {
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
 * The store cannot be reached or refuses; the command may have run all the same. session/ throws it too: when the end
 * of a session is not stored yet, and when there is no record to confirm.
 */
export class StoreUnavailable extends Problem {
  /** No part of the store replied. A store that replies with an error was reached. */
  readonly unreached: boolean

  constructor(cause: unknown, unreached = false, retryAfterSeconds = 1) {
    super('store_unavailable', { headers: { 'retry-after': String(retryAfterSeconds) }, cause })
    this.name = 'StoreUnavailable'
    this.unreached = unreached
  }
}
