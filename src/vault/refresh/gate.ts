import { resetAfterMs, type Wait } from './rules.ts'

interface GateOptions {
  /** Requests in flight at most. Their number follows the responses. */
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

/** One token request: from its place in the gate to its response. */
export interface Flight {
  /** It leaves now. Without this call it ends with `leave`. */
  sent(): void
  /** Its response has come, or its connection is closed. */
  over(answered: boolean): void
  /** No caller waits for it any more. To be called once. */
  leave(): void
}

interface InFlight {
  add(): Flight
  /** How many more may leave now. */
  room(): number
  /** Whether the newest response took longer than half a timeout, and is not old. */
  isLate(): boolean
  /** Whether a request that left at that instant and has no response may still wait in the token endpoint. */
  mayBeQueued(sentAt: number): boolean
}

interface FlightState {
  readonly addedAt: number
  sentAt: number | null
}

const BEGINS_AT = 8
/** After so long without use of the whole number the endpoint may have become slower, so the number begins again. */
const KEPT_MS = 60_000

/**
 * How many token requests are in flight at once: a number that follows the responses, as TCP's congestion window does
 * (RFC 5681). A slow token endpoint still works through requests that this process has given up, and nobody receives what
 * it grants. So no more leave than it answers in time. All instants are monotonic milliseconds.
 */
export function createInFlight({
  max,
  timeoutMs,
  now,
}: {
  max: number
  timeoutMs: number
  now: () => number
}): InFlight {
  const lateMs = timeoutMs / 2
  const flights = new Set<FlightState>()
  /** Those with a caller that waits. */
  let awaited = 0
  let limit = Math.min(BEGINS_AT, max)
  let halvedAt = Number.NEGATIVE_INFINITY
  /** When the last place was taken. */
  let fullAt = Number.NEGATIVE_INFINITY
  let newest = { sentAt: 0, at: Number.NEGATIVE_INFINITY, ms: 0 }

  const isLate = (): boolean => newest.ms > lateMs && now() - newest.at < resetAfterMs(timeoutMs)
  // A queue answers in its order: where one that left a timeout later has its response, this one was lost.
  const mayBeQueued = (sentAt: number): boolean => isLate() && newest.sentAt <= sentAt + timeoutMs

  function room(): number {
    for (const { sentAt } of flights) if (sentAt !== null && now() - sentAt > lateMs) halve(sentAt)
    return Math.max(0, Math.floor(limit) - awaited)
  }

  /** Once for all requests that had left before. */
  function halve(sentAt: number): void {
    if (sentAt < halvedAt) return
    limit = Math.max(1, limit / 2)
    halvedAt = now()
  }

  /** Doubles from one round of responses to the next while they come fast, else grows by one. */
  function grow(ms: number): void {
    limit = Math.min(max, limit + (ms < lateMs / 4 ? 1 : 1 / limit))
  }

  return {
    add() {
      if (now() - fullAt > KEPT_MS) limit = Math.min(BEGINS_AT, max)
      const flight: FlightState = { addedAt: now(), sentAt: null }
      flights.add(flight)
      awaited += 1
      if (room() === 0) fullAt = now()
      return {
        sent() {
          flight.sentAt = now()
        },
        over(answered) {
          const { sentAt, addedAt } = flight
          flights.delete(flight)
          if (sentAt === null) return
          const ms = now() - sentAt
          if (answered) newest = { sentAt, at: now(), ms }
          if (ms > lateMs) halve(sentAt)
          // Where there was room left, the responses show nothing about more requests at once.
          else if (answered && fullAt >= addedAt) grow(ms)
        },
        leave() {
          awaited -= 1
          if (flight.sentAt === null) flights.delete(flight)
        },
      }
    },
    room,
    isLate,
    mayBeQueued,
  }
}
