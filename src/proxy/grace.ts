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

/** Activity that could not be told is told so often anew, so many sessions at once. */
const TELL_EVERY_MS = 2_000
const TOLD_AT_ONCE = 16

/** Callers while the store cannot be reached. */
export interface Grace<Caller extends Known> {
  /** The caller as it was known before, if the outage is borne and no limit of the session has passed. */
  find(cookie: string): Caller | null
  /** Before a session is read: the store is told what its browser did in the outage. What fails is tried again later. */
  settle(key: RecordKey): Promise<void>
  /** From now on the store is told nothing more. */
  close(): void
}

export interface GraceOptions<Caller extends Known> {
  cache: Pick<SessionCache<Caller>, 'getStale'>
  outage: Outage
  store: Pick<SessionStore, 'touch' | 'unreached' | 'onMessagesBack'>
  idleMs: number
  now: () => number
}

/**
 * The idle limit goes by what this process has seen of the browser. The store is told of it as soon as
 * it can be reached, so that nobody who has just worked is signed out for being idle; the record keeps
 * its own limit: what comes later than that is too late.
 */
export function createGrace<Caller extends Known>({
  cache,
  outage,
  store,
  idleMs,
  now,
}: GraceOptions<Caller>): Grace<Caller> {
  const untold = new Map<RecordKey, number>()
  let timer: NodeJS.Timeout | undefined
  let telling = false

  store.onMessagesBack(() => void tellAll())

  /** A few at once: a store that has just come back has enough to do. */
  async function tellAll(): Promise<void> {
    if (telling) return
    telling = true
    const goneAt = now() - idleMs
    for (const [key, seenAt] of untold) if (seenAt <= goneAt) untold.delete(key)
    const keys = [...untold.keys()]
    while (keys.length > 0 && !store.unreached()) await Promise.all(keys.splice(0, TOLD_AT_ONCE).map(settle))
    telling = false
    if (untold.size === 0) stopTimer()
  }

  function stopTimer(): void {
    clearInterval(timer)
    timer = undefined
  }

  async function settle(key: RecordKey): Promise<void> {
    const seenAt = untold.get(key)
    if (seenAt === undefined) return
    try {
      await store.touch(key, seenAt, idleMs)
      if (untold.get(key) === seenAt) untold.delete(key)
    } catch {
      // It stays for the next time.
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
      timer ??= setInterval(tellAll, TELL_EVERY_MS).unref()
      return caller
    },
    settle,
    close() {
      untold.clear()
      stopTimer()
    },
  }
}
