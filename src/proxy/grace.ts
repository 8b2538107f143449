import type { Clock } from '../clock.ts'
import type { SessionCache } from '../session/cache.ts'
import type { Outage } from '../session/outage.ts'
import type { RecordKey } from '../store/store.ts'
import type { Activity } from './activity.ts'

/** What has to be known of a caller to serve it without the store. Instants in monotonic milliseconds. */
export interface Known {
  readonly key: RecordKey
  /** The session is not served without the store after this; its idle limit may end it earlier. */
  readonly graceUntil: number
  /** Last activity that this process knows of. */
  seenAt: number
}

/** Callers while the store cannot be reached. */
export interface Grace<Caller extends Known> {
  /** The caller as last known, if an outage is being bridged and no limit of the session has passed. */
  find(cookie: string): Caller | null
}

export interface GraceOptions<Caller extends Known> {
  cache: Pick<SessionCache<Caller>, 'getStale'>
  outage: Outage
  activity: Pick<Activity, 'note'>
  idleMs: number
  clock: Pick<Clock, 'monotonic'>
}

/**
 * The idle limit counts from what this process has seen of the browser. The store gets that activity as soon
 * as it can be reached; a session whose own idle limit has passed by then has ended.
 */
export function createGrace<Caller extends Known>({
  cache,
  outage,
  activity,
  idleMs,
  clock,
}: GraceOptions<Caller>): Grace<Caller> {
  return {
    find(cookie) {
      if (!outage.isInGrace()) return null
      const caller = cache.getStale(cookie)
      const at = clock.monotonic()
      if (caller === null || at >= caller.graceUntil || at >= caller.seenAt + idleMs) return null
      caller.seenAt = at
      activity.note(caller.key)
      return caller
    },
  }
}
