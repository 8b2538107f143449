import type { Clock } from '../clock.ts'
import { problem } from '../errors.ts'
import type { Keyring } from '../keyring.ts'
import { withTimeout } from '../timeout.ts'
import type { Vault } from '../vault/vault.ts'
import type { Members } from './sign-in.ts'

interface RateLimitOptions {
  /** Limits of different kinds count apart. */
  kind: 'sign-in' | 'callback' | 'password-address' | 'password-name-address' | 'password-username'
  /** 0: no limit. */
  perMinute: number
  vault: Pick<Vault, 'countTry'>
  keyring: Pick<Keyring, 'digitsOf'>
  clock: Pick<Clock, 'monotonic'>
}

const MINUTE_MS = 60_000
/** 16 bits: however many names a flood has, memory and store keep at most 65,536 counts of a kind. */
const BUCKET_DIGITS = 4
/** Two of these and a command that times out are less than the second within which a sign-in learns of an outage. */
const PATIENCE_MS = 50

/**
 * Counts one more try of this client or user. Rejects with `rate_limited` (RFC 6585 section 4), with these members, when
 * there are too many.
 */
export type RateLimit = (name: string, members?: Members) => Promise<void>

/** Counts tries by name and minute, over all processes of the store. This process counts alone while the store is away. */
export function createRateLimit({ kind, perMinute, vault, keyring, clock }: RateLimitOptions): RateLimit {
  /** `own`: tries of this process. `others`: how many more the store had, as far as known. */
  const windows = new Map<string, { own: number; others: number; endsAt: number }>()

  function windowOf(bucket: string) {
    const at = clock.monotonic()
    const known = windows.get(bucket)
    if (known !== undefined && at < known.endsAt) return known
    const begun = { own: 0, others: 0, endsAt: at + MINUTE_MS }
    windows.set(bucket, begun)
    return begun
  }

  return async function count(name, members = {}) {
    if (perMinute === 0) return
    const bucket = `${kind}:${keyring.digitsOf('tries', name).slice(0, BUCKET_DIGITS)}`
    const window = windowOf(bucket)
    window.own += 1
    const { own } = window
    const isPermitted = (): boolean => own + window.others <= perMinute
    // A client that is over its limit costs the store nothing more.
    if (isPermitted()) {
      const counted = vault.countTry(bucket, MINUTE_MS).then(
        (shared) => {
          if (shared === null) return
          // Also after the timeout: the next try then knows of those in other processes.
          window.others = shared.count - own
          window.endsAt = clock.monotonic() + shared.leftMs
        },
        () => {},
      )
      await withTimeout(counted, PATIENCE_MS)
    }
    if (isPermitted()) return
    const seconds = Math.max(1, Math.ceil((window.endsAt - clock.monotonic()) / 1_000))
    throw problem('rate_limited', { headers: { 'retry-after': String(seconds) }, members })
  }
}
