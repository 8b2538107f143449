import { isIPv4, isIPv6 } from 'node:net'
import { LRUCache } from 'lru-cache'
import type { Clock } from '../clock.ts'
import { problem } from '../errors.ts'

export interface RateLimitOptions {
  /** 0: no limit. */
  perMinute: number
  clock: Pick<Clock, 'monotonic'>
}

const MINUTE_MS = 60_000
/** Beyond this many names a minute the quietest are forgotten: memory stays bounded. */
const NAMES = 50_000

/** Counts one more try of this client or user; throws `rate_limited` (RFC 6585 section 4) when there are too many. */
export type RateLimit = (name: string) => void

/** Counts tries by name and minute; this process counts for itself. */
export function createRateLimit({ perMinute, clock }: RateLimitOptions): RateLimit {
  const tries = new LRUCache<string, { count: number; since: number }>({ max: NAMES })

  return function count(name) {
    if (perMinute === 0) return
    const at = clock.monotonic()
    const known = tries.get(name)
    if (known === undefined || at - known.since >= MINUTE_MS) {
      tries.set(name, { count: 1, since: at })
      return
    }
    known.count += 1
    if (known.count <= perMinute) return
    const seconds = Math.max(1, Math.ceil((known.since + MINUTE_MS - at) / 1_000))
    throw problem('rate_limited', { headers: { 'retry-after': String(seconds) } })
  }
}

/**
 * One client: an IPv4 address, or the /64 network of an IPv6 address, which one household has whole; all that
 * is no address counts as one.
 */
export function networkOf(given: string): string {
  // As some proxies write it into X-Forwarded-For, with the port.
  const address = given.replace(/^\[(.*)\](:\d+)?$/, '$1').replace(/^([\d.]+):\d+$/, '$1')
  if (isIPv4(address)) return address
  if (!isIPv6(address)) return 'unknown'
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)
  if (mapped !== null) return mapped[1]!
  const [head = '', tail] = (address.split('%')[0] ?? '').split('::')
  const before = head === '' ? [] : head.split(':')
  const after = tail === undefined || tail === '' ? [] : tail.split(':')
  const zeros = tail === undefined ? 0 : 8 - before.length - after.length
  const groups = [...before, ...Array.from({ length: zeros }, () => '0'), ...after].map((group) =>
    Number.parseInt(group, 16),
  )
  const [high = 0, low = 0] = groups.slice(6)
  if (groups.slice(0, 6).join(' ') === '0 0 0 0 0 65535') {
    return [high >> 8, high & 255, low >> 8, low & 255].join('.')
  }
  return groups
    .slice(0, 4)
    .map((group) => group.toString(16))
    .join(':')
}
