import type { Clock } from '../clock.ts'
import { problem } from '../errors.ts'
import type { Members } from './sign-in.ts'

interface RateLimitOptions {
  /** 0: no limit. */
  perMinute: number
  clock: Pick<Clock, 'monotonic'>
}

const MINUTE_MS = 60_000
/** Bounds the memory: with more names the least recent ones are forgotten. */
const MAX_NAMES = 50_000

/**
 * Counts one more try of this client or user. Throws `rate_limited` (RFC 6585 section 4), with these members, when there
 * are too many.
 */
export type RateLimit = (name: string, members?: Members) => void

/** Counts tries by name and minute. Each process counts for itself. */
export function createRateLimit({ perMinute, clock }: RateLimitOptions): RateLimit {
  // In the order of their last try.
  const tries = new Map<string, { count: number; since: number }>()

  return function count(name, members = {}) {
    if (perMinute === 0) return
    const at = clock.monotonic()
    const known = tries.get(name)
    tries.delete(name)
    if (known === undefined || at - known.since >= MINUTE_MS) {
      tries.set(name, { count: 1, since: at })
      if (tries.size > MAX_NAMES) tries.delete(tries.keys().next().value!)
      return
    }
    tries.set(name, known)
    known.count += 1
    if (known.count <= perMinute) return
    const seconds = Math.max(1, Math.ceil((known.since + MINUTE_MS - at) / 1_000))
    throw problem('rate_limited', { headers: { 'retry-after': String(seconds) }, members })
  }
}
