import { type GrantedTokens, isAboutClient, type TokenOutcome } from '../../oauth/token-response.ts'
import type { TokenSet } from '../session.ts'
import type { Answered, BeginRefreshResult } from '../store/record.ts'

/**
 * The rules of a refresh, without effects: when one is due, whether a refresh token may be presented, and what follows
 * from the response. docs/architecture.md has the same rules as a table.
 */

// When a refresh is due.

/** When tokens are refreshed; in seconds before they expire. */
export interface RefreshTiming {
  /** In the background. */
  aheadSeconds: number
  /** By the request that needs them. */
  thresholdSeconds: number
}

type Life = Pick<TokenSet, 'expiresAt' | 'lifeSeconds' | 'refreshExpiresAt'>

/** Neither margin may take more than this part of a token's life, or short tokens are refreshed without end. */
const MAX_PART_OF_LIFE = 1 / 3

/** Tokens that expire at once would otherwise be refreshed without a pause, although no request needs them. */
const PAUSE_FOR_DUE_AT_ONCE_MS = 10_000

/** From this instant on a request refreshes before it uses the access token. Epoch milliseconds. */
export function neededAt(tokens: Life, timing: RefreshTiming): number {
  const lifeMs = lifeMsOf(tokens)
  return issuedAtOf(tokens) + lifeMs - marginMs(timing.thresholdSeconds, lifeMs)
}

/**
 * Milliseconds from the issue of tokens to their background refresh: ahead of the earlier of both ends, and up to a fifth
 * of that later, so that sessions which began together do not come due together. `spread` is in [0, 1).
 */
export function dueAfterMs(tokens: Life, timing: RefreshTiming, spread: number): number {
  const lifeMs = lifeMsOf(tokens)
  if (lifeMs === 0) return PAUSE_FOR_DUE_AT_ONCE_MS
  const ahead = marginMs(timing.aheadSeconds, lifeMs)
  return lifeMs - ahead + (spread * ahead) / 5
}

/** When the background refreshes, epoch milliseconds; see `dueAfterMs`. */
export function dueAt(tokens: Life, timing: RefreshTiming, spread: number): number {
  return issuedAtOf(tokens) + dueAfterMs(tokens, timing, spread)
}

function issuedAtOf({ expiresAt, lifeSeconds }: Life): number {
  return expiresAt - lifeSeconds * 1_000
}

/** From the issue of tokens until the access token or the refresh token ends, whichever is earlier. */
function lifeMsOf(tokens: Life): number {
  const end = Math.min(tokens.expiresAt, tokens.refreshExpiresAt ?? tokens.expiresAt)
  return Math.max(0, end - issuedAtOf(tokens))
}

function marginMs(seconds: number, lifeMs: number): number {
  return Math.min(seconds * 1_000, lifeMs * MAX_PART_OF_LIFE)
}

// How long a lease and a presentation last.

/** The lease outlives the token request and the first tries to store its response. */
const LEASE_MARGIN_MS = 5_000
const MIN_RESET_AFTER_MS = 30_000
const RESET_AFTER_TIMEOUTS = 3
/** Time to read the result of what a caller waits for. */
const READ_RESULT_MS = 500

/** Length of a lease, from when it is taken and from each renewal. */
export function leaseMs(timeoutMs: number): number {
  return timeoutMs + LEASE_MARGIN_MS
}

/**
 * How long a presentation may have no response before its connection is reset. Once its timeout has passed no
 * caller waits for it, but its response may hold the only live refresh token.
 */
export function resetAfterMs(timeoutMs: number): number {
  return Math.max(MIN_RESET_AFTER_MS, RESET_AFTER_TIMEOUTS * timeoutMs)
}

/** How long callers wait for a token request, or a pause of the store, that may take `ms`. */
export function patienceMs(ms: number): number {
  return ms + READ_RESULT_MS
}

// Whether a refresh token may be presented.

/** There are no new tokens now. */
export interface Wait {
  kind: 'wait'
  /** Before that, nothing changes as far as is known. */
  ms: number
  why: /** Another attempt holds the lease, and its response may come in time. */
    | 'busy'
    /** The store may lack newer tokens, and their holder has this time to write them again. */
    | 'paused'
    /** A presentation holds the lease and has had no response within its timeout. */
    | 'unanswered'
    /** The token endpoint issues no tokens, or the refresh token may not be presented yet. */
    | 'unavailable'
    /** The token endpoint rejects this grant alone, in words that are not known: a new sign-in would help. */
    | 'rejected'
    /** This process stops, and leaves the refresh to others. */
    | 'stopping'
    /** These tokens are the result of a forced refresh within the last minute, so another one is not made. */
    | 'forced_before'
}

/** Why an attempt brings no new tokens. */
export type NotGranted =
  | Wait
  /** The record was changed elsewhere, or new tokens are in the hands of the store: read it. */
  | { kind: 'changed' }
  /** The session has ended. The store knows why: another process may have ended it. */
  | { kind: 'ended' }

/** This attempt may present the refresh token once. */
interface MayPresent {
  kind: 'present'
  /** Doubts before this presentation. */
  doubts: number
  /** What the token endpoint has answered before. */
  answered: Answered
  /** Since that answer, by the store's clock; null for none. */
  msSinceAnswer: number | null
  /** How long the access token still lives; not above 0 if it has expired. */
  leftMs: number
  /** For so long an earlier presentation, whose lease was never released, may still get its response. */
  earlierOpenMs: number
}

interface LeaseFacts {
  tokens: Pick<TokenSet, 'lifeSeconds'>
  /** How long the access token still lives by the clock of this process. 0 if the resource server has refused it. */
  leftMs: number
  timeoutMs: number
  /** The authorization server grants a used refresh token again for so long; 0: it does not. */
  reuseMs: number
  /** Since this process saw an incident at the store that has the record. */
  msSinceIncident: number
  /**
   * Since the start of this process: it cannot know about incidents before that. Infinite if the last lease was
   * released: then no process holds new tokens.
   */
  msSinceStart: number
  /** The token endpoint answers others late, so it may still come to an earlier presentation. */
  endpointIsLate: boolean
  stopping: boolean
}

/** After an incident a token in doubt is not presented for this long: a process that holds new ones stores them sooner. */
const INCIDENT_PAUSE_MS = 5_000
/**
 * So much older the tokens may seem by the store's clock than they are: the step that stored them went by a time that was late
 * by as long as a reply takes.
 */
const REPLY_MS = 1_000
/** A used refresh token is presented again at least this long before `reuseMs` end: the request needs time to arrive. */
const REUSE_MARGIN_MS = 2_000
/** How long a token in doubt is not presented while the token endpoint answers others late. */
const LATE_PAUSE_MS = 2_000
/** Nothing is due at the end of this wait: callers get the refusal, or refresh a token that has expired meanwhile. */
const FORCED_BEFORE_MS = 1_000

/**
 * Whether the refresh token may be presented, by what the store has replied. In doubt it may be used up, and presenting
 * a used one can revoke the grant (RFC 9700 section 4.14.2). So it is presented again when nothing is left to lose: when
 * the access token has expired. Where the authorization server grants a used one again (`reuseMs`), it is presented once
 * more before that. After `granted` a wait means: release the lease.
 */
export function mayPresent(begun: BeginRefreshResult, facts: LeaseFacts): MayPresent | NotGranted {
  switch (begun.kind) {
    case 'gone':
      return { kind: 'ended' }
    case 'replaced':
      return { kind: 'changed' }
    case 'paused':
      return { kind: 'wait', ms: begun.waitMs, why: 'paused' }
    case 'busy':
      return {
        kind: 'wait',
        ms: begun.waitMs,
        why: begun.ageMs < patienceMs(facts.timeoutMs) ? 'busy' : 'unanswered',
      }
    case 'backing_off':
      return { kind: 'wait', ms: begun.waitMs, why: isRejected(begun.answered) ? 'rejected' : 'unavailable' }
    case 'forced_before':
      return { kind: 'wait', ms: FORCED_BEFORE_MS, why: 'forced_before' }
    case 'granted': {
      if (facts.stopping) return { kind: 'wait', ms: 0, why: 'stopping' }
      const { doubts, openForMs, ageMs, doubtAgeMs, answered, msSinceAnswer } = begun
      // By the clock of this process or by the store's: either may be wrong, and the other one prevents a long wait.
      const leftMs = Math.min(
        facts.leftMs,
        ageMs === null ? Number.POSITIVE_INFINITY : facts.tokens.lifeSeconds * 1_000 - ageMs + REPLY_MS,
      )
      const ms =
        doubts === 0
          ? 0
          : Math.max(
              isGrantedAgain(doubts, doubtAgeMs, facts.reuseMs) ? 0 : leftMs,
              INCIDENT_PAUSE_MS - facts.msSinceIncident,
              INCIDENT_PAUSE_MS - facts.msSinceStart,
              facts.endpointIsLate ? LATE_PAUSE_MS : 0,
            )
      if (ms > 0) return { kind: 'wait', ms, why: 'unavailable' }
      return { kind: 'present', doubts, answered, msSinceAnswer, leftMs, earlierOpenMs: openForMs }
    }
  }
}

/**
 * Whether the authorization server grants a refresh token in doubt again: once, since Keycloak counts. `doubtAgeMs`:
 * since the lease of its first presentation; null if that is not known.
 */
export function isGrantedAgain(doubts: number, doubtAgeMs: number | null, reuseMs: number): boolean {
  return doubts === 1 && doubtAgeMs !== null && doubtAgeMs < reuseMs - REUSE_MARGIN_MS
}

// What the token endpoint answers to one grant.

/** As `STATUS:CODE`, `STATUS:empty` or `STATUS:other`; null for none. 429 and errors about the client concern all. */
function answerOf(outcome: TokenOutcome): string | null {
  if (outcome.kind === 'granted' || outcome.answer === undefined) return null
  const { status, code, isEmpty } = outcome.answer
  if (status === 429 || isAboutClient({ code })) return null
  return `${status}:${code ?? (isEmpty ? 'empty' : 'other')}`
}

/** Whether the grant is probably dead, in words that are not known. A 5xx has to be compared with others first. */
function isRejected({ answer, alone }: Answered): boolean {
  return answer.startsWith('4') || alone >= 2
}

/** Equal answers after which one is no chance any more: Hydra asks to retry in the words that others have for a dead grant. */
const PROVEN_AFTER = 3

/** What the log says of an answer that may mean a dead grant: null where it has a usual reason. */
export interface UnknownAnswer {
  answer: string
  /** The value for OAUTH_REFUSED_GRANT, once it is proven and where one is possible. */
  refusedGrant: string | null
}

function unknownAnswer(answered: Answered): UnknownAnswer | null {
  if (!isRejected(answered)) return null
  const { answer, times, alone } = answered
  const isPossible = /^4\d\d:(?!other$)[a-z_]{1,64}$/.test(answer)
  // Named, a 401 for a wrong secret would end every session: others must have been granted meanwhile.
  const isProven = times >= PROVEN_AFTER && (alone >= 2 || !answer.startsWith('401:'))
  return { answer, refusedGrant: isPossible && isProven ? answer : null }
}

/** After so long without a granted refresh, answers show whether the token endpoint works. */
const GRANTED_LATELY_MS = 60_000

// What follows from one presentation.

interface OutcomeFacts extends Omit<MayPresent, 'kind'> {
  /** The tokens were replaced or presented elsewhere meanwhile. */
  overtaken: boolean
  /** This process was stalled: if it did not send in time, the token endpoint is not the cause. */
  stalled: boolean
  /** The token endpoint answers others late: it is slow, not down. */
  endpointIsLate: boolean
  /** Since this process was granted new tokens of any session. */
  msSinceGranted: number
  reuseMs: number
  /** In [0, 1). */
  random: number
}

/** What follows from a presentation. */
export interface Judgement {
  /** What is written to the record. `doubts`: how many there are, this presentation included; null if it is none. */
  write:
    | { kind: 'tokens'; tokens: GrantedTokens }
    | { kind: 'end' }
    | { kind: 'release'; doubts: number | null; retryInMs: number; answered: Answered | null }
    | { kind: 'nothing' }
  /** What callers get, unless new tokens or the end of the session are written. */
  callers: NotGranted
  /** Whether the token endpoint works; null where this outcome does not show it. */
  works: boolean | null
  /** For the log: why no tokens came. */
  event: 'refresh.unavailable' | 'refresh.in_doubt' | 'refresh.unanswered' | 'refresh.refusal_waits' | null
  /** For one warning. */
  unknown?: UnknownAnswer | null
}

const NOTHING = { kind: 'nothing' } as const
const CHANGED: NotGranted = { kind: 'changed' }
/** Callers come back after this while a presentation has no response. */
const UNANSWERED: Wait = { kind: 'wait', ms: 2_000, why: 'unanswered' }

/** What follows from the outcome of a presentation; null for no response within its timeout. */
export function judge(outcome: TokenOutcome | null, facts: OutcomeFacts): Judgement {
  if (outcome === null)
    return {
      write: NOTHING,
      callers: UNANSWERED,
      works: facts.endpointIsLate ? null : false,
      event: 'refresh.unanswered',
    }
  // Even if overtaken: the store compares generations.
  if (outcome.kind === 'granted') {
    const write = { kind: 'tokens', tokens: outcome.tokens } as const
    return { write, callers: CHANGED, works: true, event: null }
  }
  if (facts.overtaken) return { write: NOTHING, callers: CHANGED, works: null, event: null }
  const doubts = facts.doubts + 1
  if (outcome.kind === 'refused') {
    const ms = facts.earlierOpenMs
    if (ms <= 0) return { write: { kind: 'end' }, callers: CHANGED, works: true, event: null }
    // The refusal may be due to the earlier presentation, whose response then holds the new tokens.
    return { ...backOff(ms, doubts), works: true, event: 'refresh.refusal_waits' }
  }
  const answered = answeredWith(outcome, facts)
  const ms = backOffMs(outcome, answered, facts)
  const unknown = answered === null ? null : unknownAnswer(answered)
  if (outcome.kind === 'in_doubt') {
    const works = isOfThisGrant(answered, facts) ? null : false
    return { ...backOff(ms, doubts, answered), works, event: 'refresh.in_doubt', unknown }
  }
  const event = 'refresh.unavailable'
  if (outcome.timedOut && facts.stalled) return { ...backOff(0, null), callers: CHANGED, works: null, event }
  // After a doubt this one is not taken back: if the store has lost the earlier one, the release writes it again.
  const left = facts.doubts > 0 ? doubts : null
  const works = outcome.ofThisGrant || (isOfThisGrant(answered, facts) ? null : false)
  return { ...backOff(ms, left, answered), works, event, unknown }
}

/** What the record then has of answers; null where this outcome is none that may concern this grant alone. */
function answeredWith(
  outcome: Extract<TokenOutcome, { kind: 'unavailable' | 'in_doubt' }>,
  { answered: before, msSinceAnswer, msSinceGranted }: OutcomeFacts,
): Answered | null {
  const answer = answerOf(outcome)
  if (answer === null) return null
  const again = before.answer === answer
  const ofThisGrant = outcome.kind === 'unavailable' && outcome.ofThisGrant
  // In an outage nothing is granted between two failures of a session, so its back-off stays short.
  const isAlone = ofThisGrant || msSinceGranted < ((again ? msSinceAnswer : null) ?? GRANTED_LATELY_MS)
  const { times, alone } = again ? before : { times: 0, alone: 0 }
  return { answer, times: times + 1, alone: alone + (isAlone ? 1 : 0) }
}

/** Whether an answer says nothing about the token endpoint: that has lately granted others, or grants them meanwhile. */
function isOfThisGrant(answered: Answered | null, { msSinceGranted }: OutcomeFacts): boolean {
  return answered !== null && (msSinceGranted < GRANTED_LATELY_MS || answered.alone >= 2)
}

function backOff(
  ms: number,
  doubts: number | null,
  answered: Answered | null = null,
): Pick<Judgement, 'write' | 'callers'> {
  const isDead = answered !== null && isRejected(answered)
  return {
    write: { kind: 'release', doubts, retryInMs: ms, answered },
    callers: { kind: 'wait', ms, why: isDead ? 'rejected' : 'unavailable' },
  }
}

/** With these bounds a recovery is noticed within five seconds, unless responses are slow. */
const MAX_EXPIRED_MS = 2_000
const MAX_EXPIRED_ALONE_MS = 4_000
const MAX_VALID_MS = 60_000
const MIN_VALID_MS = 1_000
/** The longest back-off of a grant that alone is rejected. */
const MAX_REJECTED_MS = 300_000

/**
 * Milliseconds until a session is refreshed again after a failure: long while its access token lives, short once
 * that has expired, since only the next try shows a recovery. Doubles while its grant alone is rejected.
 */
function backOffMs(
  outcome: Extract<TokenOutcome, { kind: 'unavailable' | 'in_doubt' }>,
  answered: Answered | null,
  { doubts, leftMs, reuseMs, random }: OutcomeFacts,
): number {
  const alone = answered?.alone ?? 0
  // The breaker does not count failures of one grant alone, so their back-off is longer.
  const shortMs = ((alone > 0 ? MAX_EXPIRED_ALONE_MS : MAX_EXPIRED_MS) / 2) * (1 + random)
  const aloneMs = Math.min(MAX_REJECTED_MS, shortMs * 2 ** Math.max(0, alone - 1))
  const requestedMs = outcome.kind === 'unavailable' ? (outcome.retryAfterSeconds ?? 0) * 1_000 : 0
  if (leftMs <= 0) return Math.max(requestedMs, aloneMs)
  if (outcome.kind === 'in_doubt') return doubts === 0 && reuseMs > 0 ? shortMs : Math.max(leftMs, aloneMs)
  const pauseMs = Math.min(MAX_VALID_MS, Math.max(MIN_VALID_MS, leftMs / 4)) * (0.75 + random / 4)
  return Math.max(requestedMs, pauseMs, alone > 1 ? aloneMs : 0)
}
