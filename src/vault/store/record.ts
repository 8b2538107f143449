import type { SessionFlow } from '../../config/variables.ts'

/**
 * The record of one session: its facts, what may be done with it, and the rules of each step. Every store runs these
 * rules (memory/store.ts, redis/records.ts, and the simulation). A new fact is a row of `FACTS` and the rule that needs it, and
 * a member of `SessionState` where each call goes by it and it can change. A record of 0.2 keeps it only after its next
 * refresh (redis/hash-records.ts).
 */

/** SHA-256 of the session id, 64 hex digits: the only name of a session that the store knows. */
export type RecordKey = string

/** How long the store keeps why a session ended. */
export const END_KEPT_MS = 3_600_000

/**
 * A record outlives its limits by this time, so that its end is counted with the right reason, and a store whose clock
 * steps forward by an hour deletes no session that lives.
 */
export const RECORD_SLACK_MS = 3_660_000

/** How far the clocks of replicas and store may differ. */
export const CLOCK_TOLERANCE_MS = 5_000

// The facts of a record.

/** The name of a fact in the stored text, and its value where the text has none. No other fact may ever have that name. */
const fact = <Value>(name: string, none: Value): readonly [name: string, none: Value] => [name, none]

/** Every fact of a record. Instants are epoch milliseconds by the store's clock; 0 and '' for none. */
const FACTS = {
  /** Generation of the tokens: +1 with each replacement. */
  gen: fact('g', 0),
  createdAt: fact('c', 0),
  /** Last recorded activity of the browser. */
  seenAt: fact('s', 0),
  /** The absolute limit. */
  endsAt: fact('e', 0),
  flow: fact<SessionFlow>('f', 'code'),
  /** The `client_id` that the tokens were issued to. */
  client: fact('i', ''),
  /** When these tokens were written; 0 if that is not known. */
  replacedAt: fact('w', 0),
  /**
   * Presentations of this generation's refresh token after which it may be used up (docs/decisions/0002). The lease
   * counts each before it leaves, so one that is under way is included.
   */
  doubts: fact('d', 0),
  /** When the lease of the first of them was taken; 0 if that is not known. */
  doubtAt: fact('da', 0),
  /** The attempt that holds the lease. A lease without a holder is the pause after a failover. */
  lease: fact('l', ''),
  /** Until when the lease is held, or refreshes are paused after a failover. */
  leaseUntil: fact('lu', 0),
  /** When the holder took the lease; renewals do not move it. */
  leasedAt: fact('la', 0),
  /** Until then the presentation of an earlier lease, which was never released, may still get its response. */
  openUntil: fact('o', 0),
  /** No refresh before this instant, except the first forced one within a minute. */
  retryAt: fact('r', 0),
  /** When that was written. */
  retrySetAt: fact('ra', 0),
  /** See `Answered`. */
  answer: fact('n', ''),
  answerTimes: fact('nt', 0),
  answerAlone: fact('na', 0),
  /** The last forced refresh, and the generation that it replaced. */
  forcedAt: fact('a', 0),
  forcedGen: fact('ag', 0),
  /**
   * Replication id of the server that had the record at its last refresh. It differs after a failover, a restart and the
   * migration of a slot: that server may lack newer tokens.
   */
  history: fact('h', ''),
  /** Public key of the browser's device (vault/binding.ts); it may be set once. */
  device: fact('k', ''),
  /** Whether the session cookie alone is worth nothing: the device has proven once that it has the key. */
  bound: fact('b', false),
}

type Facts = { readonly [Name in keyof typeof FACTS]: (typeof FACTS)[Name][1] }

/** All that a store has of one session. */
export interface StoredRecord extends Facts {
  /** The sealed tokens, one byte a character. The store does not know what is inside. */
  readonly tokens: string
  /** When the store deletes the record; 0, as after a read from Redis: not known, and a write leaves it. */
  readonly expireAt: number
  /** Facts that a later version has written: they are kept. */
  readonly others?: Readonly<Record<string, unknown>>
}

/** What a read shows of a record. */
export interface SessionRecord extends StoredRecord {
  /** The session ends at this instant if its browser stays away; never after `endsAt`. */
  readonly idleEndsAt: number
}

/** What a small read shows of a record: what each call of a cached session goes by (vault/caller.ts, `trust`). */
export type SessionState = Pick<SessionRecord, 'gen' | 'seenAt' | 'idleEndsAt' | 'bound'>

export type NewRecord = Pick<SessionRecord, 'tokens' | 'createdAt' | 'endsAt' | 'flow' | 'client'>

/** The facts as a store keeps them: one line of JSON in ASCII, without those that are not there. */
export function encodeFacts(record: StoredRecord): string {
  let text = ''
  // Three times as fast as an object that is made for this.
  for (const [fact, [name, none]] of ROWS) {
    const value = record[fact]
    if (value !== none) text += `,"${name}":${typeof value === 'number' ? value : inAscii(value)}`
  }
  for (const [name, value] of Object.entries(record.others ?? {}))
    text += `,${inAscii(name)}:${inAscii(value)}`
  return `{${text.slice(1)}}\n`
}

function inAscii(value: unknown): string {
  // Nearly every text, in a quarter of the time.
  if (typeof value === 'string' && PLAIN.test(value)) return `"${value}"`
  const escaped = (letter: string): string => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`
  return JSON.stringify(value).replace(/[^ -~]/g, escaped)
}

/** Printable ASCII that JSON writes as it is. */
const PLAIN = /^[ !#-[\]-~]*$/

/** The record of a text of `encodeFacts`, with these sealed tokens. */
export function decodeFacts(text: string, tokens: string): StoredRecord {
  const plain = JSON.parse(text) as Record<string, unknown>
  // A copy of one object: the engine keeps its members in fixed places.
  const record = { ...NOTHING, tokens }
  const facts = record as Record<string, unknown>
  let known = 0
  for (const [fact, [name]] of ROWS) {
    const value = plain[name]
    if (value === undefined) continue
    facts[fact] = value
    known += 1
  }
  if (Object.keys(plain).length === known) return record
  for (const [, [name]] of ROWS) delete plain[name]
  return { ...record, others: plain }
}

const ROWS = Object.entries(FACTS) as [keyof Facts, readonly [string, unknown]][]

const NOTHING = {
  ...(Object.fromEntries(ROWS.map(([fact, [, none]]) => [fact, none])) as unknown as Facts),
  tokens: '',
  expireAt: 0,
}

/** When a session ends if its browser stays away. */
export function idleEndsAt(
  { seenAt, endsAt }: Pick<SessionRecord, 'seenAt' | 'endsAt'>,
  idleMs: number,
): number {
  return Math.min(seenAt + idleMs, endsAt)
}

/** What a small read shows of the record of a text of `encodeFacts`, in a fraction of the time of `decodeFacts`. */
export function decodeState(text: string, idleMs: number): SessionState {
  const plain = JSON.parse(text) as Record<string, unknown>
  const { gen, seenAt, endsAt, bound } = FACTS
  const factOf = <Value>([name, none]: readonly [string, Value]): Value => (plain[name] as Value) ?? none
  const shown = { gen: factOf(gen), seenAt: factOf(seenAt), endsAt: factOf(endsAt), bound: factOf(bound) }
  return stateOf(shown, idleMs)
}

/** What a small read shows of a record. */
export function stateOf(
  { gen, seenAt, endsAt, bound }: Pick<SessionRecord, 'gen' | 'seenAt' | 'endsAt' | 'bound'>,
  idleMs: number,
): SessionState {
  return { gen, seenAt, bound, idleEndsAt: idleEndsAt({ seenAt, endsAt }, idleMs) }
}

// What may be done with a record.

/** Records of sessions. Each step on one record is atomic. */
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
  /** Deletes the record, and keeps the reason. */
  end(key: RecordKey, request?: EndRequest): Promise<EndResult>
  /** Why and when a session ended, for `END_KEPT_MS` after it; else null. An end by a limit is dated at that limit. */
  readEnd(key: RecordKey): Promise<SessionEnd | null>
  /**
   * Replaces sealed tokens by the same tokens under another secret, and changes nothing else. false, and nothing
   * written, if the record is gone or holds other text than `was`: no text is sealed twice, so equal text means the
   * same generation.
   */
  reseal(key: RecordKey, was: string, sealed: string): Promise<boolean>
}

/** The device of a session (W3C Device Bound Session Credentials). */
export interface DeviceStore {
  /**
   * Keeps the public key of a session's device if there is none yet or it is the same one. `bound`: the session is bound
   * to this key already. `refused`: it has another one.
   */
  registerDevice(key: RecordKey, device: string): Promise<RegisterDeviceResult>
  /** Binds the session to the key that it has. `was_bound`: it was before. `refused`: it has another key or none. */
  bindDevice(key: RecordKey, device: string): Promise<BindDeviceResult>
}

export type RegisterDeviceResult = { kind: 'registered' | 'bound' | 'refused' | 'gone' }
export type BindDeviceResult = { kind: 'bound' | 'was_bound' | 'refused' | 'gone' }

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

/**
 * The refresh of one record. An attempt begins with the lease, so no other attempt presents the same refresh token. It
 * renews the lease until it has a response, then replaces the tokens, releases the lease or ends the session. If its
 * process dies before, the lease lapses: the next attempt learns of the doubt, and how long a response may still come.
 */
export interface RefreshStore {
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

/**
 * What the token endpoint has answered to the refreshes of this generation, where it neither granted nor refused them.
 */
export interface Answered {
  /** The newest answer, as the rules of a refresh name it; '' for none. */
  readonly answer: string
  /** How many in a row were equal. */
  readonly times: number
  /** How many of these concern this grant alone: others were granted meanwhile, or the answer itself says so. */
  readonly alone: number
}

/** Whether the lease was taken. */
export type BeginRefreshResult =
  /**
   * `attempt` holds the lease, and its doubt is counted. `doubts`: those before this presentation. `openForMs`: an
   * earlier holder never released its lease, and its presentation is open for this long; 0 if there is none.
   * `ageMs`: since the tokens were written, by the store's clock; null if that is not known. `doubtAgeMs`: since the lease
   * of the first doubt, likewise. `msSinceAnswer`: since the last release, which followed `answered`; null for none.
   */
  | {
      kind: 'granted'
      doubts: number
      openForMs: number
      ageMs: number | null
      doubtAgeMs: number | null
      answered: Answered
      msSinceAnswer: number | null
    }
  /** The tokens are of another generation already. */
  | { kind: 'replaced' }
  /** Another attempt took the lease `ageMs` ago and holds it for `waitMs` more, longer if it renews. */
  | { kind: 'busy'; waitMs: number; ageMs: number }
  /** Another server has the record since the last refresh and may lack newer tokens: nobody refreshes for `waitMs`. */
  | { kind: 'paused'; waitMs: number }
  /** An earlier attempt failed: nobody refreshes for `waitMs`. The first forced refresh does not wait for it. */
  | { kind: 'backing_off'; waitMs: number; answered: Answered }
  /** A forced refresh brought these tokens within the window. */
  | { kind: 'forced_before' }
  | { kind: 'gone' }

/** Once the access token has expired no back-off is longer: that of a grant that alone is rejected. */
const LONGEST_BACK_OFF_MS = 300_000

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
  /** What the token endpoint has answered by now; absent or null leaves what is known. */
  answered?: Answered | null
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

// The rules, as pure steps: what each does with the record, and its reply.

/** What is kept of a session that has ended. */
export interface KeptEnd extends SessionEnd {
  readonly expireAt: number
}

/** What a store has of one session. A step over Redis sees no `end`: run.ts reads records alone. */
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
function pauseMsOf({ livesMs, leaseMs }: Pick<BeginRefreshRequest, 'livesMs' | 'leaseMs'>): number {
  return Math.max(NEW_HISTORY_PAUSE_MS, Math.ceil(Math.min(livesMs, leaseMs)))
}

/** The longest back-off. */
function longestBackOffMsOf({ livesMs }: Pick<BeginRefreshRequest, 'livesMs'>): number {
  return Math.ceil(Math.max(livesMs, LONGEST_BACK_OFF_MS))
}

/** Of a record whose tokens have just been written. */
const FREE = {
  lease: '',
  leaseUntil: 0,
  leasedAt: 0,
  openUntil: 0,
  retryAt: 0,
  retrySetAt: 0,
  doubts: 0,
  doubtAt: 0,
  answer: '',
  answerTimes: 0,
  answerAlone: 0,
}

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
      ...NOTHING,
      ...record,
      createdAt: record.createdAt + ahead,
      seenAt: record.createdAt + ahead,
      endsAt: record.endsAt + ahead,
      gen: 1,
      replacedAt: now,
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
    return [record, { ...record, idleEndsAt: idleEndsAt(record, idleMs) }]
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
    const granted = (doubts: number, openUntil: number): BeginRefreshResult => ({
      kind: 'granted',
      doubts,
      openForMs: Math.max(0, openUntil - now),
      ageMs: msSince(record.replacedAt, now),
      doubtAgeMs: doubts === 0 || record.doubtAt === 0 ? null : msSince(record.doubtAt, now),
      answered: answeredOf(record),
      msSinceAnswer: record.answer === '' ? null : msSince(record.retrySetAt, now),
    })
    // No later than now, where the clock has stepped back since.
    const leasedAt = Math.min(record.leasedAt, now)
    const openBefore = Math.min(record.openUntil, now + openMs)
    if (record.lease === attempt) return [record, granted(record.doubts - 1, openBefore)]
    // Longer than a lease: the clock has stepped back since.
    const waitMs = Math.min(record.leaseUntil - now, leaseMs)
    if (waitMs > 0) {
      const clamped = now + waitMs < record.leaseUntil ? { ...record, leaseUntil: now + waitMs } : record
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
      return [record, { kind: 'backing_off', waitMs: backOffMs, answered: answeredOf(record) }]
    const window = forced ? { forcedAt: now, forcedGen: gen } : {}
    const doubt = { doubts: record.doubts + 1, doubtAt: record.doubts === 0 ? now : record.doubtAt }
    const leased = { lease: attempt, leaseUntil: now + leaseMs, leasedAt: now, openUntil, ...doubt }
    return [{ ...record, ...window, ...leased }, granted(record.doubts, openUntil)]
  })
}

/** null where the clock has stepped back since. */
function msSince(at: number, now: number): number | null {
  return at > now ? null : now - at
}

function answeredOf({ answer, answerTimes: times, answerAlone: alone }: StoredRecord): Answered {
  return { answer, times, alone }
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

function releaseLease({ attempt, inDoubt, retryInMs, answered = null }: ReleaseLeaseRequest): Step<void> {
  const answers =
    answered === null
      ? {}
      : { answer: answered.answer, answerTimes: answered.times, answerAlone: answered.alone }
  return onRecord(undefined, (record, { now }) => {
    const retryAt = now + Math.ceil(retryInMs)
    if (record.lease === attempt) {
      const doubts = record.doubts - (inDoubt === null ? 1 : 0)
      const doubtAt = doubts === 0 ? 0 : record.doubtAt
      const free = { lease: '', leaseUntil: 0, retryAt, retrySetAt: now, doubts, doubtAt }
      return [{ ...record, ...free, ...answers }, undefined]
    }
    // A server that knows fewer doubts than this presentation left has lost its lease.
    if (inDoubt === null || record.gen !== inDoubt.gen || record.doubts >= inDoubt.doubts)
      return [record, undefined]
    const later = { retryAt: Math.max(retryAt, record.retryAt), retrySetAt: now }
    return [{ ...record, ...later, ...answers, doubts: inDoubt.doubts }, undefined]
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

function registerDevice(device: string): Step<RegisterDeviceResult> {
  return onRecord<RegisterDeviceResult>({ kind: 'gone' }, (record) => {
    if (record.device === '') return [{ ...record, device }, { kind: 'registered' }]
    if (record.device !== device) return [record, { kind: 'refused' }]
    return [record, { kind: record.bound ? 'bound' : 'registered' }]
  })
}

function bindDevice(device: string): Step<BindDeviceResult> {
  return onRecord<BindDeviceResult>({ kind: 'gone' }, (record) => {
    if (record.device !== device) return [record, { kind: 'refused' }]
    return record.bound ? [record, { kind: 'was_bound' }] : [{ ...record, bound: true }, { kind: 'bound' }]
  })
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

/** The members of a store that are one step on one record. */
export type RecordMember = keyof RecordStore | keyof RefreshStore | keyof DeviceStore

/** Runs one step on what the store has of this session, and keeps the result. */
export type RunStep = <Reply>(key: RecordKey, member: RecordMember, step: Step<Reply>) => Promise<Reply>

/** Those members, over a store that runs steps. `wall`: the wall clock of the process. */
export function recordMembers(run: RunStep, wall: () => number): RecordStore & RefreshStore & DeviceStore {
  return {
    create: (key, record, provisionalMs) =>
      run(key, 'create', create(record, { provisionalMs, wall: wall() })),
    confirm: (key) => run(key, 'confirm', confirm()),
    read: (key) => run(key, 'read', read()),
    readState: (key) =>
      run(
        key,
        'readState',
        onRecord<SessionState | null>(null, (record, { idleMs }) => [record, stateOf(record, idleMs)]),
      ),
    touch: (key) => run(key, 'touch', touch()),
    end: (key, request = {}) => run(key, 'end', end(request)),
    readEnd: (key) =>
      run(key, 'readEnd', (state) => [
        state,
        state.end === null ? null : { reason: state.end.reason, at: state.end.at },
      ]),
    reseal: (key, was, sealed) => run(key, 'reseal', reseal(was, sealed)),
    registerDevice: (key, device) => run(key, 'registerDevice', registerDevice(device)),
    bindDevice: (key, device) => run(key, 'bindDevice', bindDevice(device)),
    beginRefresh: (key, request) => run(key, 'beginRefresh', beginRefresh(request)),
    renewLease: (key, request) => run(key, 'renewLease', renewLease(request)),
    releaseLease: (key, request) => run(key, 'releaseLease', releaseLease(request)),
    replaceTokens: (key, request) => run(key, 'replaceTokens', replaceTokens(request)),
  }
}
