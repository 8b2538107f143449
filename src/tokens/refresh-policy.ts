import type { TokenSet } from '../session/sealed-tokens.ts'

export interface RefreshTiming {
  aheadSeconds: number
  thresholdSeconds: number
}

type Life = Pick<TokenSet, 'expiresAt' | 'lifeSeconds'>

/** Neither margin may eat more than this part of a token's life, or short tokens are refreshed without end. */
const MAX_PART_OF_LIFE = 1 / 3

/** A token that is due at once would be refreshed without a pause if nobody waited. */
const PAUSE_FOR_DUE_AT_ONCE_MS = 10_000

/** The lease outlives the token call and the first tries to store its answer. */
const LEASE_MARGIN_MS = 5_000

/** How long one process has the right to refresh a session. */
export function leaseMs(timeoutMs: number): number {
  return timeoutMs + LEASE_MARGIN_MS
}

const MIN_ANSWER_MS = 30_000
const ANSWER_TIMEOUTS = 3

/**
 * How long a presentation may stay unanswered before its connection is reset. Once its timeout has passed no
 * caller waits for it, but its answer may hold the only live refresh token.
 */
export function answerMs(timeoutMs: number): number {
  return Math.max(MIN_ANSWER_MS, ANSWER_TIMEOUTS * timeoutMs)
}

/** From this instant on a request refreshes before it uses the access token. Epoch milliseconds. */
export function refreshesFirstAt(tokens: Life, timing: RefreshTiming): number {
  return tokens.expiresAt - marginMs(timing.thresholdSeconds, tokens)
}

/**
 * How long after they were issued tokens are refreshed in the background, in milliseconds: ahead of expiry, and
 * up to a fifth of that later, so that sessions which began together do not come due together. `random` is in [0, 1).
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
 * Milliseconds until a refresh token may be presented that has been presented `doubts` times without a readable
 * answer, where its access token lives for `leftMs` more. In doubt it may be dead, and presenting a dead one can
 * revoke everything (RFC 9700 section 4.14.2). So once more when the access token is about to expire, and freely
 * when it has expired and nothing is left to lose.
 */
export function presentableInMs(
  tokens: Pick<Life, 'lifeSeconds'>,
  timing: RefreshTiming,
  doubts: number,
  leftMs: number,
): number {
  if (doubts === 0) return 0
  const lastChanceMs = doubts === 1 ? marginMs(timing.thresholdSeconds, tokens) / 3 : 0
  return Math.max(0, leftMs - lastChanceMs)
}

function marginMs(seconds: number, { lifeSeconds }: Pick<Life, 'lifeSeconds'>): number {
  return Math.min(seconds, lifeSeconds * MAX_PART_OF_LIFE) * 1_000
}
