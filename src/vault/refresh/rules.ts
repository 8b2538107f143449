import type { GrantedTokens, TokenOutcome } from '../../oauth/token-response.ts'
import type { TokenSet } from '../sealed-tokens.ts'
import type { BeginRefreshResult } from '../store/record.ts'

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

type Life = Pick<TokenSet, 'expiresAt' | 'lifeSeconds'>

/** Neither margin may take more than this part of a token's life, or short tokens are refreshed without end. */
const MAX_PART_OF_LIFE = 1 / 3

/** Tokens that expire at once would otherwise be refreshed without a pause, although no request needs them. */
const PAUSE_FOR_DUE_AT_ONCE_MS = 10_000

/** From this instant on a request refreshes before it uses the access token. Epoch milliseconds. */
export function neededAt(tokens: Life, timing: RefreshTiming): number {
  return tokens.expiresAt - marginMs(timing.thresholdSeconds, tokens)
}

/**
 * Milliseconds from the issue of tokens to their background refresh: ahead of expiry, and up to a fifth of that
 * later, so that sessions which began together do not come due together. `spread` is in [0, 1).
 */
export function dueAfterMs(tokens: Pick<Life, 'lifeSeconds'>, timing: RefreshTiming, spread: number): number {
  if (tokens.lifeSeconds === 0) return PAUSE_FOR_DUE_AT_ONCE_MS
  const ahead = marginMs(timing.aheadSeconds, tokens)
  return tokens.lifeSeconds * 1_000 - ahead + (spread * ahead) / 5
}

/** When the background refreshes, epoch milliseconds; see `dueAfterMs`. */
export function dueAt(tokens: Life, timing: RefreshTiming, spread: number): number {
  return tokens.expiresAt - tokens.lifeSeconds * 1_000 + dueAfterMs(tokens, timing, spread)
}

function marginMs(seconds: number, { lifeSeconds }: Pick<Life, 'lifeSeconds'>): number {
  return Math.min(seconds, lifeSeconds * MAX_PART_OF_LIFE) * 1_000
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
  /** How long the access token still lives; not above 0 if it has expired. */
  leftMs: number
  /** For so long an earlier presentation, whose lease was never released, may still get its response. */
  earlierOpenMs: number
}

interface LeaseFacts {
  tokens: Pick<Life, 'lifeSeconds'>
  /** How long the access token still lives by the clock of this process. 0 if the resource server has refused it. */
  leftMs: number
  timeoutMs: number
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
/** How long a token in doubt is not presented while the token endpoint answers others late. */
const LATE_PAUSE_MS = 2_000
/** Nothing is due at the end of this wait: callers get the refusal, or refresh a token that has expired meanwhile. */
const FORCED_BEFORE_MS = 1_000

/**
 * Whether the refresh token may be presented, by what the store has replied. In doubt it may be used up, and presenting
 * a used one can revoke the grant (RFC 9700 section 4.14.2). So it is presented again when nothing is left to lose: when
 * the access token has expired. After `granted` a wait means: release the lease.
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
      return { kind: 'wait', ms: begun.waitMs, why: 'unavailable' }
    case 'forced_before':
      return { kind: 'wait', ms: FORCED_BEFORE_MS, why: 'forced_before' }
    case 'granted': {
      if (facts.stopping) return { kind: 'wait', ms: 0, why: 'unavailable' }
      const { doubts, openForMs, ageMs } = begun
      // By the clock of this process or by the store's: either may be wrong, and the other one prevents a long wait.
      const leftMs = Math.min(
        facts.leftMs,
        ageMs === null ? Number.POSITIVE_INFINITY : facts.tokens.lifeSeconds * 1_000 - ageMs,
      )
      const ms =
        doubts === 0
          ? 0
          : Math.max(
              leftMs,
              INCIDENT_PAUSE_MS - facts.msSinceIncident,
              INCIDENT_PAUSE_MS - facts.msSinceStart,
              facts.endpointIsLate ? LATE_PAUSE_MS : 0,
            )
      if (ms > 0) return { kind: 'wait', ms, why: 'unavailable' }
      return { kind: 'present', doubts, leftMs, earlierOpenMs: openForMs }
    }
  }
}

// What follows from one presentation.

interface OutcomeFacts extends Omit<MayPresent, 'kind'> {
  /** The tokens were replaced or presented elsewhere meanwhile. */
  overtaken: boolean
  /** This process was stalled: if it did not send in time, the token endpoint is not the cause. */
  stalled: boolean
  /** The token endpoint answers others late: it is slow, not down. */
  endpointIsLate: boolean
  /** In [0, 1). */
  random: number
}

/** What follows from a presentation. */
export interface Judgement {
  /** What is written to the record. `doubts`: how many there are, this presentation included; null if it is none. */
  write:
    | { kind: 'tokens'; tokens: GrantedTokens }
    | { kind: 'end' }
    | { kind: 'release'; doubts: number | null; retryInMs: number }
    | { kind: 'nothing' }
  /** What callers get, unless new tokens or the end of the session are written. */
  callers: NotGranted
  /** Whether the token endpoint works; null where this outcome does not show it. */
  works: boolean | null
  /** For the log: why no tokens came. */
  event: 'refresh.unavailable' | 'refresh.in_doubt' | 'refresh.unanswered' | 'refresh.refusal_waits' | null
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
  if (outcome.kind === 'in_doubt')
    return { ...backOff(backOffMs(outcome, facts), doubts), works: false, event: 'refresh.in_doubt' }
  const event = 'refresh.unavailable'
  if (outcome.timedOut && facts.stalled) return { ...backOff(0, null), callers: CHANGED, works: null, event }
  // After a doubt this one is not taken back: if the store has lost the earlier one, the release writes it again.
  const left = facts.doubts > 0 ? doubts : null
  return { ...backOff(backOffMs(outcome, facts), left), works: outcome.ofThisGrant, event }
}

function backOff(ms: number, doubts: number | null): Pick<Judgement, 'write' | 'callers'> {
  return {
    write: { kind: 'release', doubts, retryInMs: ms },
    callers: { kind: 'wait', ms, why: 'unavailable' },
  }
}

/** With these bounds a recovery is noticed within five seconds, unless responses are slow. */
const MAX_EXPIRED_MS = 2_000
const MAX_EXPIRED_ALONE_MS = 4_000
const MAX_VALID_MS = 60_000
const MIN_VALID_MS = 1_000

/**
 * Milliseconds until a session is refreshed again after a failure: long while its access token lives, short once
 * that has expired, since only the next try shows a recovery.
 */
function backOffMs(
  outcome: Extract<TokenOutcome, { kind: 'unavailable' | 'in_doubt' }>,
  { leftMs, random }: OutcomeFacts,
): number {
  const requestedMs = outcome.kind === 'unavailable' ? (outcome.retryAfterSeconds ?? 0) * 1_000 : 0
  if (leftMs > 0) {
    const pauseMs = Math.min(MAX_VALID_MS, Math.max(MIN_VALID_MS, leftMs / 4)) * (0.75 + random / 4)
    return Math.max(requestedMs, pauseMs, outcome.kind === 'in_doubt' ? leftMs : 0)
  }
  // The breaker does not count failures of one grant alone, so their back-off is longer.
  const alone = outcome.kind === 'unavailable' && outcome.ofThisGrant
  return Math.max(requestedMs, ((alone ? MAX_EXPIRED_ALONE_MS : MAX_EXPIRED_MS) / 2) * (1 + random))
}
