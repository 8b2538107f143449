import type { TokenOutcome } from '../oauth/token-response.ts'
import type { TokenSet } from '../session/sealed-tokens.ts'
import type { RefreshTiming } from './refresh-policy.ts'
import { presentableInMs } from './refresh-policy.ts'

/** So that "it is back" is noticed within five seconds wherever answers are not slow to come. */
const MAX_EXPIRED_MS = 2_000
const MAX_EXPIRED_ALONE_MS = 4_000
const MAX_VALID_MS = 60_000
const MIN_VALID_MS = 1_000

export interface BackoffInput {
  tokens: Pick<TokenSet, 'lifeSeconds'>
  /** How long the access token still lives, in milliseconds; not above 0 once it has expired. */
  leftMs: number
  outcome: Extract<TokenOutcome, { kind: 'unavailable' | 'in_doubt' }>
  /** Presentations of this refresh token that leave a doubt, the one that has just failed included. */
  doubts: number
  timing: RefreshTiming
  /** In [0, 1). */
  random: number
}

/**
 * Milliseconds until a session is refreshed again after a failure. While its access token lives there
 * is time; once that has expired not much, since only the next try shows that all is well.
 */
export function backoffMs({ tokens, leftMs, outcome, doubts, timing, random }: BackoffInput): number {
  // No breaker spares the endpoint these.
  const alone = outcome.kind === 'unavailable' && outcome.ofThisGrant
  const expiredMs = alone ? MAX_EXPIRED_ALONE_MS : MAX_EXPIRED_MS
  const patience = leftMs > 0 ? Math.min(MAX_VALID_MS, Math.max(MIN_VALID_MS, leftMs / 4)) : expiredMs / 2
  const asked = outcome.kind === 'unavailable' ? (outcome.retryAfterSeconds ?? 0) * 1_000 : 0
  const jittered = leftMs > 0 ? patience * (0.75 + random / 4) : patience * (1 + random)
  return Math.max(asked, presentableInMs(tokens, timing, doubts, leftMs), jittered)
}
