import type { Clock } from '../clock.ts'
import type { Logger } from '../log.ts'
import type { ReliableStore } from '../store/reliable.ts'
import type { RecordKey } from '../store/store.ts'
import type { SessionCache } from './cache.ts'

/** What must be known of a session to serve it without the store. Instants in monotonic milliseconds. */
export interface CachedSession {
  readonly key: RecordKey
  /**
   * The session is not served without the store after this: its access token expires, its absolute limit passes, or
   * it was read too long ago. Its idle limit may end it earlier.
   */
  readonly graceUntil: number
  /** The last recorded activity: up to `touchIntervalMs` behind the browser's last request. */
  activeAt: number
}

/** The outage grace: when cached sessions may be served without the store. */
export interface OutageGrace<Entry extends CachedSession> {
  /**
   * Whether the grace may be used: no node of the store replied when it began, and change messages stopped less than
   * the grace ago and are not back. Also true before their loss is noticed, and after the store replies with errors:
   * callers first check that it is unreached.
   */
  isActive(): boolean
  /** The session as last known, while the grace is active and the session has passed no limit. Counts as activity. */
  find(cookie: string): Entry | null
}

interface OutageGraceOptions<Entry extends CachedSession> {
  store: Pick<ReliableStore, 'health' | 'touch'>
  cache: Pick<SessionCache<Entry>, 'getForOutage'>
  /** 0: there is no grace. */
  graceMs: number
  idleMs: number
  clock: Pick<Clock, 'monotonic'>
  log: Logger
}

/** The last proof that change messages arrive may be this much older than the start of the outage. */
const PROOF_AGE_MS = 500

/**
 * The grace runs from the loss of change messages, by the monotonic clock. It also ends `graceMs` after the last proof
 * of them, because a process that was stopped has missed messages without noticing. It ends early when messages are
 * back: sessions may have changed meanwhile.
 */
export function createOutageGrace<Entry extends CachedSession>({
  store,
  cache,
  graceMs,
  idleMs,
  clock,
  log,
}: OutageGraceOptions<Entry>): OutageGrace<Entry> {
  if (graceMs === 0) return { isActive: () => false, find: () => null }
  const { health } = store
  /** Change messages have stopped, and are not back. */
  let lost = false
  /** `graceMs` have passed since they stopped. */
  let over = false
  /** Sessions may have been served without the store since they stopped. */
  let begun = false
  let timer: NodeJS.Timeout | undefined

  health.onLive((live) => {
    lost = !live
    over = false
    clearTimeout(timer)
    if (live) end('Redis is back')
    else timer = setTimeout(expire, graceMs).unref()
  })

  function expire(): void {
    over = true
    end('the grace is over')
  }

  function end(reason: string): void {
    if (!begun) return
    begun = false
    log.warn({ event: 'grace.ended', reason }, 'cached sessions are no longer served without Redis')
  }

  function isActive(): boolean {
    if (over || !(begun || health.isUnreached())) return false
    if (health.msSinceLive() >= graceMs + PROOF_AGE_MS) return false
    // Before the loss of messages is noticed, sessions are served too; the log waits for the loss.
    if (lost && !begun) {
      begun = true
      log.warn(
        { event: 'grace.begun', graceSeconds: graceMs / 1_000 },
        'Redis cannot be reached: cached sessions are served without it',
      )
    }
    return true
  }

  return {
    isActive,
    find(cookie) {
      if (!isActive()) return null
      const session = cache.getForOutage(cookie)
      const at = clock.monotonic()
      if (session === null || at >= session.graceUntil || at >= session.activeAt + idleMs) return null
      session.activeAt = at
      store.touch(session.key)
      return session
    },
  }
}
