import type { TokenOutcome } from '../oauth/token-response.ts'
import type { TokenSet } from '../session/sealed-tokens.ts'

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

/** The lease outlives the token request and the first tries to store its response. */
const LEASE_MARGIN_MS = 5_000

/** Length of a lease, from when it is taken and from each renewal. */
export function leaseMs(timeoutMs: number): number {
  return timeoutMs + LEASE_MARGIN_MS
}

const MIN_RESET_AFTER_MS = 30_000
const RESET_AFTER_TIMEOUTS = 3

/**
 * How long a presentation may have no response before its connection is reset. Once its timeout has passed no
 * caller waits for it, but its response may hold the only live refresh token.
 */
export function resetAfterMs(timeoutMs: number): number {
  return Math.max(MIN_RESET_AFTER_MS, RESET_AFTER_TIMEOUTS * timeoutMs)
}

/** From this instant on a request refreshes before it uses the access token. Epoch milliseconds. */
export function neededAt(tokens: Life, timing: RefreshTiming): number {
  return tokens.expiresAt - marginMs(timing.thresholdSeconds, tokens)
}

/**
 * Milliseconds from the issue of tokens to their background refresh: ahead of expiry, and up to a fifth of that
 * later, so that sessions which began together do not come due together. `random` is in [0, 1).
 */
export function dueAfterMs(tokens: Pick<Life, 'lifeSeconds'>, timing: RefreshTiming, random: number): number {
  if (tokens.lifeSeconds === 0) return PAUSE_FOR_DUE_AT_ONCE_MS
  const ahead = marginMs(timing.aheadSeconds, tokens)
  return tokens.lifeSeconds * 1_000 - ahead + (random * ahead) / 5
}

/** When the background refreshes, epoch milliseconds; see `dueAfterMs`. */
export function dueAt(tokens: Life, timing: RefreshTiming, random: number): number {
  return tokens.expiresAt - tokens.lifeSeconds * 1_000 + dueAfterMs(tokens, timing, random)
}

/**
 * Milliseconds until a refresh token with `doubts` may be presented, while its access token lives for `leftMs` more.
 * In doubt it may be used up, and presenting a used one can revoke the grant (RFC 9700 section 4.14.2). So it is
 * presented once more when the access token is about to expire, and freely when that has expired and nothing is
 * left to lose.
 */
export function presentableInMs(
  tokens: Pick<Life, 'lifeSeconds'>,
  timing: RefreshTiming,
  { doubts, leftMs }: { doubts: number; leftMs: number },
): number {
  if (doubts === 0) return 0
  const beforeExpiryMs = doubts === 1 ? marginMs(timing.thresholdSeconds, tokens) / 3 : 0
  return Math.max(0, leftMs - beforeExpiryMs)
}

/** With these bounds a recovery is noticed within five seconds, unless responses are slow. */
const MAX_EXPIRED_MS = 2_000
const MAX_EXPIRED_ALONE_MS = 4_000
const MAX_VALID_MS = 60_000
const MIN_VALID_MS = 1_000

interface BackOffInput {
  tokens: Pick<TokenSet, 'lifeSeconds'>
  /** How long the access token still lives, in milliseconds; not above 0 once it has expired. */
  leftMs: number
  outcome: Extract<TokenOutcome, { kind: 'unavailable' | 'in_doubt' }>
  /** Doubts after this failure. */
  doubts: number
  timing: RefreshTiming
  /** In [0, 1). */
  random: number
}

/**
 * Milliseconds until a session is refreshed again after a failure: long while its access token lives, short once
 * that has expired, since only the next try shows a recovery.
 */
export function backOffMs({ tokens, leftMs, outcome, doubts, timing, random }: BackOffInput): number {
  // The breaker does not count failures of one grant alone, so their back-off is longer.
  const alone = outcome.kind === 'unavailable' && outcome.ofThisGrant
  const expiredMs = alone ? MAX_EXPIRED_ALONE_MS : MAX_EXPIRED_MS
  const pauseMs = leftMs > 0 ? Math.min(MAX_VALID_MS, Math.max(MIN_VALID_MS, leftMs / 4)) : expiredMs / 2
  const requestedMs = outcome.kind === 'unavailable' ? (outcome.retryAfterSeconds ?? 0) * 1_000 : 0
  const jitteredMs = leftMs > 0 ? pauseMs * (0.75 + random / 4) : pauseMs * (1 + random)
  return Math.max(requestedMs, presentableInMs(tokens, timing, { doubts, leftMs }), jitteredMs)
}

function marginMs(seconds: number, { lifeSeconds }: Pick<Life, 'lifeSeconds'>): number {
  return Math.min(seconds, lifeSeconds * MAX_PART_OF_LIFE) * 1_000
}
