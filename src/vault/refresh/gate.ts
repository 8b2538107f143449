import { createInFlight, type Flight } from './in-flight.ts'
import type { Wait } from './rules.ts'

interface GateOptions {
  /** Requests in flight at most. Their number follows the responses (in-flight.ts). */
  max: number
  /** How long callers wait for a response. */
  timeoutMs: number
  /** Monotonic milliseconds: a step of the wall clock must not keep the breaker open. */
  now: () => number
  /** In [0, 1). */
  random: () => number
  /** The token endpoint begins or ceases to count as down; `failures` counts consecutive ones. */
  onChange: (down: boolean, failures: number) => void
}

/** The permission to send one token request. */
export interface Pass {
  kind: 'pass'
  /** The request leaves now. */
  sent(): void
  /** Its response has come, however late, or its connection is closed. `answered`: a response came, of whatever kind. */
  over(answered: boolean): void
  /**
   * Says whether the token endpoint works, however late: a second report counts if it works. `retryAfterMs`: from the
   * `Retry-After` of the response.
   */
  report(works: boolean, retryAfterMs: number | null): void
  /** No caller waits for this request any more. To be called once. */
  leave(): void
}

/** The one door to the token endpoint: a bound on requests in flight, and a circuit breaker. */
export interface Gate {
  /** Waits for room, first come first served. A wait while the token endpoint counts as down. */
  enter(): Promise<Pass | Wait>
  /** How many requests would be let through at once. */
  room(): number
  /** Whether the token endpoint counts as down. */
  isDown(): boolean
  /** Token requests that failed in a row. */
  failures(): number
  /** Whether the token endpoint answers late: what it has not answered yet may wait there. */
  isLate(): boolean
  /** Whether a request that left at that instant (monotonic) and has no response may still wait in the token endpoint. */
  mayBeQueued(sentAt: number): boolean
}

/** After so many consecutive failures the breaker is open: the token endpoint counts as down. */
const OPENS_AFTER = 3
/** With `PROBE_MS`, a recovery is noticed within five seconds, except by a session whose own request hangs. */
const MAX_PAUSE_MS = 1_600
const MAX_JITTER_MS = 2_000
/** An outage counts as outdated this long after the last failure, if a probe has gone unused for `UNUSED_MS`. */
const OUTDATED_MS = 5_000
const UNUSED_MS = 1_000
/** After this time without a response the next probe may leave. The response to the first one still counts. */
const PROBE_MS = 2_500

/**
 * A gate for each process and kind of token. After consecutive failures it lets one request through at a time, so that
 * callers neither flood a failing endpoint nor all wait for it. After some seconds without a request it lets all through
 * until one fails. It never cuts a request short: a late response may hold the only live refresh token.
 */
export function createGate({ max, timeoutMs, now, random, onChange }: GateOptions): Gate {
  const inFlight = createInFlight({ max, timeoutMs, now })
  const waiting: ((entered: Pass | Wait) => void)[] = []
  let failures = 0
  let nextProbeAt = 0
  let lastProbe = 0
  let failedAt = 0
  /** The last failure is too old: until the next outcome all requests are let through. */
  let outdated = false

  const isDown = (): boolean => failures >= OPENS_AFTER
  const waitMs = (): number => (isDown() && !outdated ? Math.max(0, nextProbeAt - now()) : 0)
  const wait = (ms: number): Wait => ({ kind: 'wait', ms, why: 'unavailable' })

  /** Those that wait get a place while there is room. They wait no longer once the token endpoint is down. */
  function admit(): void {
    while (waiting.length > 0) {
      const ms = waitMs()
      if (ms === 0 && inFlight.room() === 0) return
      waiting.shift()!(ms > 0 ? wait(ms) : pass(inFlight.add()))
    }
  }

  function succeeded(): void {
    if (isDown()) onChange(false, 0)
    failures = 0
    outdated = false
  }

  function failed(probe: number | null, retryAfterMs: number | null): void {
    const wasDown = isDown()
    failures += 1
    const pause = retryAfterMs ?? Math.min(MAX_PAUSE_MS, 250 * 2 ** Math.min(failures - OPENS_AFTER, 4))
    const next = now() + pause + random() * Math.min(pause / 4, MAX_JITTER_MS)
    // Requests from before the breaker opened fail late, and say nothing about the present.
    if (!wasDown || outdated || probe === lastProbe) nextProbeAt = next
    else if (retryAfterMs !== null) nextProbeAt = Math.max(nextProbeAt, next)
    failedAt = now()
    outdated = false
    if (!wasDown && isDown()) onChange(true, failures)
  }

  function pass(flight: Flight): Pass {
    outdated ||= isDown() && now() >= Math.max(failedAt + OUTDATED_MS, nextProbeAt + UNUSED_MS)
    const probe = isDown() && !outdated ? lastProbe + 1 : null
    if (probe !== null) {
      lastProbe = probe
      nextProbeAt = now() + PROBE_MS
    }
    let reported = false
    return {
      kind: 'pass',
      sent: flight.sent,
      over(answered) {
        flight.over(answered)
        admit()
      },
      report(works, retryAfterMs) {
        if (works) succeeded()
        else if (!reported) failed(probe, retryAfterMs)
        reported = true
      },
      leave() {
        flight.leave()
        // It has shown nothing, so the next probe need not wait for it.
        if (!reported && probe !== null && probe === lastProbe) nextProbeAt = now()
        admit()
      },
    }
  }

  return {
    enter: () =>
      new Promise((resolve) => {
        waiting.push(resolve)
        admit()
      }),
    room: () => (isDown() ? Math.min(inFlight.room(), waitMs() === 0 ? 1 : 0) : inFlight.room()),
    isDown,
    failures: () => failures,
    isLate: inFlight.isLate,
    mayBeQueued: inFlight.mayBeQueued,
  }
}
