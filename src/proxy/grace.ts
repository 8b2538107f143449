import type { SessionCache } from '../store/cache.ts'
import type { Outage } from '../store/outage.ts'
import type { RecordKey, SessionStore } from '../store/port.ts'

/** What has to be known of a caller to serve it without the store. Instants in epoch milliseconds. */
export interface Known {
  readonly key: RecordKey
  /** No outage is borne for longer; the idle limit may end it earlier. */
  readonly graceUntil: number
  /** Last activity that this process knows of. */
  seenAt: number
}

/** Callers while the store cannot be reached. */
export interface Grace<Caller extends Known> {
  /** The caller as it was known before, if the outage is borne and no limit of the session has passed. */
  find(cookie: string): Caller | null
  /** Before a session is read: the store is told what its browser did in the outage. false where it was not taken. */
  settle(key: RecordKey): Promise<boolean>
}

export interface GraceOptions<Caller extends Known> {
  cache: Pick<SessionCache<Caller>, 'getStale'>
  outage: Outage
  store: Pick<SessionStore, 'touch' | 'onMessagesBack'>
  idleMs: number
  now: () => number
}

/**
 * The idle limit goes by what this process has seen of the browser. The store is told of it afterwards,
 * so that nobody who has just worked is signed out for being idle; the record keeps its own limit: what
 * comes later than that is too late.
 */
export function createGrace<Caller extends Known>({
  cache,
  outage,
  store,
  idleMs,
  now,
}: GraceOptions<Caller>): Grace<Caller> {
  const untold = new Map<RecordKey, number>()

  store.onMessagesBack(() => void tellAll())

  /** One after the other: a store that has just come back has enough to do. */
  async function tellAll(): Promise<void> {
    for (const key of [...untold.keys()]) if (!(await settle(key))) return
  }

  async function settle(key: RecordKey): Promise<boolean> {
    const seenAt = untold.get(key)
    if (seenAt === undefined) return true
    try {
      await store.touch(key, seenAt, idleMs)
      if (untold.get(key) === seenAt) untold.delete(key)
      return true
    } catch {
      return false
    }
  }

  return {
    find(cookie) {
      if (!outage.isBorne()) return null
      const caller = cache.getStale(cookie)
      const at = now()
      if (caller === null || at >= caller.graceUntil || at >= caller.seenAt + idleMs) return null
      caller.seenAt = at
      untold.set(caller.key, at)
      return caller
    },
    settle,
  }
}
