interface BreakerOptions {
  /** Monotonic milliseconds: a step of the wall clock must not keep the breaker open. */
  now: () => number
  /** In [0, 1). */
  random: () => number
  /** Called at each change; `failures` counts consecutive ones. */
  onChange: (open: boolean, failures: number) => void
}

export type Admission =
  /** Send the request and report its outcome, however late. `release` if it says nothing about the token endpoint. */
  | {
      kind: 'go'
      /** `retryAfterMs`: from the `Retry-After` of the response. */
      report: (works: boolean, retryAfterMs: number | null) => void
      release: () => void
    }
  | { kind: 'wait'; retryInMs: number }

export interface Breaker {
  admit(): Admission
  /** Milliseconds until a request would be let through; 0 for now. */
  waitMs(): number
  /** Whether the token endpoint counts as down. */
  isOpen(): boolean
  failures(): number
}

const OPENS_AFTER = 3
/** With `PROBE_MS`, a recovery is noticed within five seconds, except by a session whose own request hangs. */
const MAX_PAUSE_MS = 1_600
const MAX_JITTER_MS = 2_000
/** An outage counts as outdated this long after the last failure, if a probe has gone unused for `UNUSED_MS`. */
const OUTDATED_MS = 5_000
const UNUSED_MS = 1_000
/** After this time without a response the next probe may leave. The response to the first one still counts. */
export const PROBE_MS = 2_500

/**
 * The circuit breaker of the token endpoint, one for each process. After consecutive failures it lets one request
 * through at a time, so that callers neither flood a failing endpoint nor all wait for it. After some seconds without
 * a request it lets all through until one fails. It never cuts a request short: a late response may hold the only live
 * refresh token.
 */
export function createBreaker({ now, random, onChange }: BreakerOptions): Breaker {
  let failures = 0
  let nextProbeAt = 0
  let lastProbe = 0
  let failedAt = 0
  /** The last failure is too old: until the next outcome all requests are let through. */
  let outdated = false

  const isOpen = (): boolean => failures >= OPENS_AFTER
  const waitMs = (): number => (isOpen() && !outdated ? Math.max(0, nextProbeAt - now()) : 0)

  function succeeded(): void {
    if (isOpen()) onChange(false, 0)
    failures = 0
    outdated = false
  }

  function failed(probe: number | null, retryAfterMs: number | null): void {
    const wasOpen = isOpen()
    failures += 1
    const pause = retryAfterMs ?? Math.min(MAX_PAUSE_MS, 250 * 2 ** Math.min(failures - OPENS_AFTER, 4))
    const next = now() + pause + random() * Math.min(pause / 4, MAX_JITTER_MS)
    // Requests from before the breaker opened fail late, and say nothing about the present.
    if (!wasOpen || outdated || probe === lastProbe) nextProbeAt = next
    else if (retryAfterMs !== null) nextProbeAt = Math.max(nextProbeAt, next)
    failedAt = now()
    outdated = false
    if (!wasOpen && isOpen()) onChange(true, failures)
  }

  function admit(): Admission {
    const retryInMs = waitMs()
    if (retryInMs > 0) return { kind: 'wait', retryInMs }
    outdated ||= isOpen() && now() >= Math.max(failedAt + OUTDATED_MS, nextProbeAt + UNUSED_MS)
    const probe = isOpen() && !outdated ? lastProbe + 1 : null
    if (probe !== null) {
      lastProbe = probe
      nextProbeAt = now() + PROBE_MS
    }
    return {
      kind: 'go',
      report: (works, retryAfterMs) => (works ? succeeded() : failed(probe, retryAfterMs)),
      release() {
        if (probe !== null && probe === lastProbe) nextProbeAt = now()
      },
    }
  }

  return { admit, waitMs, isOpen, failures: () => failures }
}
