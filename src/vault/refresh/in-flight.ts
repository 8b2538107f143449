import { resetAfterMs } from './rules.ts'

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
 * (RFC 5681). A token endpoint that needs its time for each request still works through those that this process has given
 * up, and grants them to nobody; so no more leave than it answers in time. All instants are monotonic milliseconds.
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
