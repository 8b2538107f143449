import type { Logger } from '../log.ts'
import type { Sessions } from '../session/lifecycle.ts'
import type { LiveSession } from '../session/session.ts'
import { type RecordKey, StoreUnavailable } from '../store/store.ts'
import type { Refresh, RefreshResult, RefreshTrigger } from './refresh.ts'

/** A refresh of this process until its callers have a result. A presentation without a response outlives it. */
export interface Flight {
  /** Monotonic. */
  readonly startedAt: number
  readonly trigger: RefreshTrigger
  /** Resolves early if the session ends: the response no longer matters. Rejects with `StoreUnavailable`. */
  readonly result: Promise<RefreshResult>
}

export interface SingleFlight {
  /** The flight of this session, begun with `trigger` if there is none. */
  join(session: LiveSession, trigger: RefreshTrigger): Flight
  /** Resolves when no refresh of this process is under way, not even one whose response is late. */
  settled(): Promise<void>
}

interface SingleFlightOptions {
  refresh: Refresh
  sessions: Pick<Sessions, 'readState'>
  monotonic: () => number
  log: Logger
  /** Puts a session with new tokens into the due queue. */
  schedule: (session: LiveSession) => Promise<void>
}

/** How often a flight looks whether its session has ended. */
const LOOK_EVERY_MS = 250

/** One flight for each session and process at a time. Puts sessions with new tokens into the due queue. */
export function createSingleFlight(options: SingleFlightOptions): SingleFlight {
  const { refresh, sessions, monotonic, log, schedule } = options
  const flights = new Map<RecordKey, Flight>()
  const working = new Set<Promise<unknown>>()

  function begin(session: LiveSession, trigger: RefreshTrigger): Flight {
    const { key } = session
    let endEarly: (result: RefreshResult) => void = () => {}
    const endedEarly = new Promise<RefreshResult>((resolve) => {
      endEarly = resolve
    })
    const timer = setInterval(() => lookForEnd().catch(() => {}), LOOK_EVERY_MS)

    async function lookForEnd(): Promise<void> {
      if ((await sessions.readState(key)) === null) endEarly({ kind: 'ended' })
    }

    const work = refresh.refresh(session, trigger).finally(() => {
      clearInterval(timer)
      flights.delete(key)
      working.delete(work)
    })
    working.add(work)
    scheduleWhenGranted(work)
    const result = Promise.race([work, endedEarly])
    // Callers handle the rejection. Without a caller it must not end the process.
    result.catch(() => {})
    return { startedAt: monotonic(), trigger, result }
  }

  /** Schedules the next refresh when new tokens have come, late ones too. */
  function scheduleWhenGranted(work: Promise<RefreshResult>): void {
    work
      .then(async (result) => {
        if ('late' in result && result.late !== undefined) scheduleWhenGranted(result.late)
        // The queue still holds an older entry of this session, so a failure is harmless.
        if (result.kind === 'granted') await schedule(result.session)
      })
      .catch((error: unknown) => {
        if (!(error instanceof StoreUnavailable))
          log.error(
            { event: 'refresh.failed', err: error },
            'a refresh failed unexpectedly: please report it',
          )
      })
  }

  return {
    join(session, trigger) {
      const flight = flights.get(session.key) ?? begin(session, trigger)
      flights.set(session.key, flight)
      return flight
    },
    async settled() {
      while (working.size > 0) await Promise.allSettled(working)
      await refresh.settled()
    },
  }
}
