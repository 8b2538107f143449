import type { FindSession, LiveSession } from '../session/find.ts'
import type { RecordKey } from '../store/store.ts'
import type { Watch, WatchChanges } from './changes.ts'
import type { RefreshTrigger } from './events.ts'
import type { Refresh } from './refresh.ts'
import type { RefreshResult } from './refresh-terms.ts'

/** A refresh under way in this process, shared by all who need it. */
export interface Flight {
  /** Monotonic. */
  readonly startedAt: number
  readonly trigger: RefreshTrigger
  /** Comes early where the session ends meanwhile: what the authorization server says matters no more. */
  readonly result: Promise<RefreshResult>
  /** Whether the record has changed since this flight began. */
  changed(): boolean
}

export interface Flights {
  /** The flight of this session, begun with `trigger` if there is none. */
  join(session: LiveSession, trigger: RefreshTrigger): Flight
  /** Resolves when no refresh of this process is under way. */
  settled(): Promise<void>
}

export interface FlightsOptions {
  refresh: Refresh
  findSession: FindSession
  watchChanges: WatchChanges
  monotonic: () => number
}

/** The refresh that ended a session itself says why; it is given this long to do so. */
const OWN_END_MS = 50

/** One refresh for each session and process at a time. */
export function createFlights({ refresh, findSession, watchChanges, monotonic }: FlightsOptions): Flights {
  const flights = new Map<RecordKey, Flight>()
  const working = new Set<Promise<unknown>>()

  function begin(session: LiveSession, trigger: RefreshTrigger): Flight {
    const { key } = session
    let changed = false
    let over = false
    let timer: NodeJS.Timeout | undefined
    let endEarly: (result: RefreshResult) => void = () => {}
    const ended = new Promise<RefreshResult>((resolve) => {
      endEarly = resolve
    })
    const watch: Watch = watchChanges(key, () => {
      changed = true
      look().catch(() => {})
    })

    async function look(): Promise<void> {
      const found = await findSession(key)
      if (found.kind !== 'ended' || over) return
      timer = setTimeout(() => endEarly({ kind: 'ended', reason: found.reason }), OWN_END_MS)
    }

    const work = refresh.refresh(session, trigger).finally(() => {
      over = true
      clearTimeout(timer)
      watch.stop()
      flights.delete(key)
      working.delete(work)
    })
    working.add(work)
    const result = Promise.race([work, ended])
    // Whoever waits sees it fail; that nobody may be waiting is no reason for the process to end.
    result.catch(() => {})
    return { startedAt: monotonic(), trigger, result, changed: () => changed }
  }

  return {
    join(session, trigger) {
      const flight = flights.get(session.key) ?? begin(session, trigger)
      flights.set(session.key, flight)
      return flight
    },
    async settled() {
      await refresh.settled()
      await Promise.allSettled(working)
    },
  }
}
