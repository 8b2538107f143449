import type { TokenSet } from './token-set.ts'

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

/** As many leases as an answer may take and still be heard by the process that asked. */
const LISTENED_LEASES = 4

/**
 * How long an answer is listened for. Once its timeout has passed nobody waits for it any more and the
 * refresh is in doubt, but it may hold the only live refresh token.
 */
export function listenMs(timeoutMs: number): number {
  return LISTENED_LEASES * leaseMs(timeoutMs)
}

/** From this instant on a request refreshes before it uses the access token. Epoch milliseconds. */
export function refreshesFirstAt(tokens: Life, timing: RefreshTiming): number {
  return tokens.expiresAt - marginMs(timing.thresholdSeconds, tokens)
}

/**
 * When the background refreshes: ahead of expiry, and up to a fifth of that later, so that sessions
 * which began together do not come due together. `random` is in [0, 1).
 */
export function dueAt(tokens: Life, timing: RefreshTiming, random: number): number {
  if (tokens.lifeSeconds === 0) return tokens.expiresAt + PAUSE_FOR_DUE_AT_ONCE_MS
  const ahead = marginMs(timing.aheadSeconds, tokens)
  return tokens.expiresAt - ahead + (random * ahead) / 5
}

/**
 * The instant from which a refresh token may be presented that has been presented `doubts` times
 * without a readable answer: in doubt it may be dead, and presenting a dead one can revoke
 * everything (RFC 9700 section 4.14.2). So once more when the access token is about to expire, and
 * freely when it has expired and nothing is left to lose.
 */
export function presentableFrom(tokens: Life, timing: RefreshTiming, doubts: number): number {
  if (doubts === 0) return 0
  return doubts === 1 ? tokens.expiresAt - marginMs(timing.thresholdSeconds, tokens) / 3 : tokens.expiresAt
}

function marginMs(seconds: number, { lifeSeconds }: Life): number {
  return Math.min(seconds, lifeSeconds * MAX_PART_OF_LIFE) * 1_000
}
