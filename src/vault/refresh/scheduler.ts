import type { Clock } from '../../clock.ts'
import type { Logger } from '../../log.ts'
import type { Sessions } from '../lifecycle.ts'
import type { LiveSession, TokenSet } from '../session.ts'
import type { RecordKey, SessionRecord } from '../store/record.ts'
import { type DueQueue, StoreUnavailable } from '../store/store.ts'
import type { Gate } from './gate.ts'
import type { RefreshEvents, RefreshResult } from './refresh.ts'
import type { JoinAttempt } from './renewals.ts'
import { dueAfterMs, dueAt, isGrantedAgain, type RefreshTiming } from './rules.ts'

interface SchedulerOptions {
  store: Pick<DueQueue, 'claimDue' | 'schedule'>
  sessions: Pick<Sessions, 'look'>
  joinAttempt: JoinAttempt
  gate: Pick<Gate, 'room' | 'isDown'>
  timing: RefreshTiming
  /** The authorization server grants a used refresh token again for so long; 0: it does not. */
  reuseMs: number
  /** A claimed session comes back after this if its replica dies. */
  claimMs: number
  clock: Clock
  random: () => number
  log: Logger
  events: Pick<RefreshEvents, 'lagged'>
}

type Times = Pick<SchedulerOptions, 'timing' | 'reuseMs' | 'clock' | 'random'>

/** When the session ends if its browser stays away. */
type IdleLimit = Pick<SessionRecord, 'idleEndsAt'>

export interface Scheduler {
  start(): void
  /** Puts a session into the queue for when it next needs attention. */
  schedule(key: RecordKey, tokens: TokenSet, record: IdleLimit): Promise<void>
  /** Stops claiming and waits for what is under way. */
  stop(): Promise<void>
}

/** Unless an entry is due sooner. Another replica may put one in that is. */
export const POLL_EVERY_MS = 2_000
const FIRST_POLL_WITHIN_MS = 1_000
const BLOCKED_PAUSE_MS = 250
/** While every slot is taken: short, since one may become free at any moment. */
const FULL_PAUSE_MS = 25
const UNREADABLE_PAUSE_MS = 600_000
/** Shortest pause before a session is looked at again, and the pause of the queue after a failure. */
const LOOK_AGAIN_MS = 1_000

/**
 * Refreshes sessions in the background. Every replica claims due sessions from the same queue. The queue is a hint
 * of when to look; the record decides.
 */
export function createScheduler(options: SchedulerOptions): Scheduler {
  const { store, sessions, gate, clock, random, log, events } = options
  let pollAt = clock.monotonic() + random() * FIRST_POLL_WITHIN_MS
  const working = new Set<Promise<void>>()
  /** Sessions that were claimed and have not reached the gate yet. */
  let arriving = 0
  let timer: NodeJS.Timeout | undefined
  let polling: Promise<void> | null = null
  let stopped = true

  function sleep(): void {
    // A poll under way calls this function at its end: there is never more than one.
    if (stopped || polling !== null) return
    clearTimeout(timer)
    timer = setTimeout(wake, Math.max(10, pollAt - clock.monotonic()))
  }

  function wake(): void {
    polling = poll()
      .catch((error: unknown) => {
        pollAt = clock.monotonic() + LOOK_AGAIN_MS
        log.error({ event: 'schedule.failed', err: error }, 'the queue of due sessions could not be read')
      })
      .finally(() => {
        polling = null
        sleep()
      })
  }

  async function poll(): Promise<void> {
    // One, as a probe, while the token endpoint is down.
    const limit = gate.room() - arriving
    if (limit <= 0) {
      pollAt = clock.monotonic() + (gate.isDown() ? BLOCKED_PAUSE_MS : FULL_PAUSE_MS)
      return
    }
    pollAt = clock.monotonic() + POLL_EVERY_MS
    try {
      const { entries, nextInMs, storeNow } = await store.claimDue(limit, options.claimMs)
      for (const { key, lateMs } of entries) work(key, lateMs, storeNow)
      if (nextInMs !== null) pollAt = Math.min(pollAt, clock.monotonic() + nextInMs)
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error
      pollAt = clock.monotonic() + LOOK_AGAIN_MS * (1 + random())
    }
  }

  function work(key: RecordKey, lateMs: number, storeNow: number): void {
    const run = handle(key, lateMs, storeNow).catch((error: unknown) => {
      // The queue hands the session out again when the claim expires.
      if (error instanceof StoreUnavailable) return
      log.error(
        { event: 'schedule.failed', err: error },
        'a background refresh failed and is tried again: please report it',
      )
    })
    working.add(run)
    void run.then(() => working.delete(run))
  }

  async function handle(key: RecordKey, lateMs: number, storeNow: number): Promise<void> {
    arriving += 1
    const found = await sessions.look(key).finally(() => {
      arriving -= 1
    })
    switch (found.kind) {
      case 'ended':
        return await store.schedule(key, null)
      case 'unreadable':
        return await store.schedule(key, UNREADABLE_PAUSE_MS)
      case 'live': {
        const { session } = found
        const inMs = msUntilLook(session, storeNow, options)
        if (inMs > 0) return await put(key, inMs)
        // This process stops: another replica refreshes the session.
        if (stopped) return await store.schedule(key, 0)
        events.lagged(lateMs / 1_000)
        const againInMs = await refresh(session, options)
        if (againInMs !== null) await put(key, againInMs)
      }
    }
  }

  /** As `store.schedule`. This process polls in time for the entry. */
  async function put(key: RecordKey, inMs: number): Promise<void> {
    await store.schedule(key, inMs)
    const at = clock.monotonic() + inMs
    if (at >= pollAt) return
    pollAt = at
    sleep()
  }

  return {
    start() {
      stopped = false
      sleep()
    },
    schedule: (key, tokens, record) => put(key, msUntilFirstLook(tokens, record, options)),
    async stop() {
      stopped = true
      clearTimeout(timer)
      await polling
      while (working.size > 0) await Promise.all(working)
    },
  }
}

/** Refreshes a session. Returns when to look at it again; null where its entry is right already. */
async function refresh(session: LiveSession, options: SchedulerOptions): Promise<number | null> {
  const { joinAttempt, clock, random } = options
  let result: RefreshResult
  try {
    result = await joinAttempt(session, 'schedule').result
  } catch (error) {
    if (!(error instanceof StoreUnavailable)) throw error
    result = { kind: 'wait', ms: LOOK_AGAIN_MS, why: 'unavailable' }
  }
  switch (result.kind) {
    // The session was scheduled when its tokens were stored.
    case 'granted':
    // Its entry is claimed once more, which shows why it ended.
    case 'ended':
      return null
    case 'changed':
      return LOOK_AGAIN_MS
    case 'wait': {
      const retryInMs = result.ms + random() * Math.min(result.ms / 4, 500)
      // Not later than the end of the session, so that the end is counted.
      return Math.max(LOOK_AGAIN_MS, Math.min(retryInMs, msUntilIdleEnd(session.record, clock)))
    }
  }
}

/** 0 if the session is due. Else spread as at first: sessions that were put back together must not come due together. */
function msUntilLook(
  { tokens, record }: LiveSession,
  storeNow: number,
  { timing, reuseMs, clock, random }: Times,
): number {
  // Its refresh was begun by a process that is gone, perhaps long before it was due.
  if (isGrantedAgain(record.doubts, storeNow - record.doubtAt, reuseMs)) return 0
  // By this process's clock or by the store's, whichever is earlier: a clock that is wrong then delays no refresh.
  const msUntilDue = (spread: number): number => {
    if (tokens.refreshToken === null) return Number.POSITIVE_INFINITY
    const byOwnClock = dueAt(tokens, timing, spread) - clock.wall()
    if (record.replacedAt === 0) return byOwnClock
    return Math.min(byOwnClock, dueAfterMs(tokens, timing, spread) - (storeNow - record.replacedAt))
  }
  if (msUntilDue(0) <= 0) return 0
  return Math.max(Math.min(msUntilDue(random()), msUntilIdleEnd(record, clock)), LOOK_AGAIN_MS)
}

/** A session is looked at once more at its end, so that the end is counted. */
function msUntilFirstLook(tokens: TokenSet, record: IdleLimit, { timing, clock, random }: Times): number {
  const refreshAt = tokens.refreshToken === null ? Number.POSITIVE_INFINITY : dueAt(tokens, timing, random())
  return Math.max(0, Math.min(refreshAt - clock.wall(), msUntilIdleEnd(record, clock)))
}

function msUntilIdleEnd({ idleEndsAt }: IdleLimit, clock: Clock): number {
  return Math.max(0, idleEndsAt - clock.wall())
}
