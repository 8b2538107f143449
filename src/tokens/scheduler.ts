import type { Logger } from '../log.ts'
import { idleEndsAt } from '../store/limits.ts'
import type { RecordKey, SessionStore } from '../store/port.ts'
import { DUE_SHARDS, StoreUnavailable } from '../store/port.ts'
import type { TokenAccess } from './access.ts'
import type { Breaker } from './breaker.ts'
import type { TokenEvents } from './events.ts'
import type { FindSession, LiveSession } from './live.ts'
import type { Slots } from './slots.ts'
import type { RefreshTiming } from './timing.ts'
import { dueAt } from './timing.ts'
import type { TokenSet } from './token-set.ts'

export interface SchedulerOptions {
  store: SessionStore
  findSession: FindSession
  access: TokenAccess
  breaker: Breaker
  slots: Slots
  timing: RefreshTiming
  idleMs: number
  /** A claimed session comes back after this if its replica dies. */
  leaseMs: number
  now: () => number
  random: () => number
  log: Logger
  events: TokenEvents
}

export interface Scheduler {
  start(): void
  /** Puts a session into the queue at the instant when it next needs attention. */
  plan(key: RecordKey, tokens: TokenSet, limits: { seenAt: number; endsAt: number }): Promise<void>
  /** Stops claiming and waits for what is under way. */
  stop(): Promise<void>
}

/** An empty shard is asked this often: 16 shards make about three commands a second. */
const POLL_EVERY_MS = 5_000
const FIRST_POLL_WITHIN_MS = 1_000
const BLOCKED_PAUSE_MS = 250
const UNREADABLE_PAUSE_MS = 600_000

/**
 * Refreshes without any browser's help. Every replica claims due sessions from the same queue; the
 * queue is only a hint of when to look, the record decides.
 */
export function createScheduler(options: SchedulerOptions): Scheduler {
  const { store, findSession, access, breaker, slots, timing, idleMs, now, random, log, events } = options
  const pollAt = Array.from({ length: DUE_SHARDS }, () => now() + random() * FIRST_POLL_WITHIN_MS)
  const working = new Set<Promise<void>>()
  let timer: NodeJS.Timeout | null = null
  let polling: Promise<void> = Promise.resolve()
  let stopped = true

  function sleep(): void {
    if (stopped) return
    if (timer !== null) clearTimeout(timer)
    const inMs = Math.max(10, Math.min(...pollAt) - now())
    timer = setTimeout(() => {
      polling = poll().then(sleep)
    }, inMs)
  }

  async function poll(): Promise<void> {
    for (const [shard, at] of pollAt.entries()) {
      if (stopped || at > now()) continue
      const room = breaker.room(slots.free())
      if (room === 0) {
        pollAt[shard] = now() + BLOCKED_PAUSE_MS
        continue
      }
      try {
        pollAt[shard] = now() + POLL_EVERY_MS
        const { entries, nextInMs } = await store.claimDue(shard, room, options.leaseMs)
        for (const entry of entries) work(entry.key, entry.dueAt)
        if (nextInMs !== null) pollAt[shard] = Math.min(pollAt[shard]!, now() + nextInMs)
      } catch (error) {
        if (!(error instanceof StoreUnavailable)) throw error
        pollAt[shard] = now() + 1_000 * (1 + random())
      }
    }
  }

  function work(key: RecordKey, due: number): void {
    const run = attend(key, due).catch((error: unknown) => {
      // What could not be written is handed out again when the claim lapses.
      if (!(error instanceof StoreUnavailable))
        log.error({ event: 'schedule.failed', err: error }, 'a refresh failed')
    })
    working.add(run)
    void run.then(() => working.delete(run))
  }

  async function attend(key: RecordKey, due: number): Promise<void> {
    const found = await findSession(key)
    switch (found.kind) {
      case 'ended':
        return await store.unschedule(key)
      case 'unreadable':
        return await put(key, now() + UNREADABLE_PAUSE_MS)
      case 'store_unavailable':
        return
      case 'live': {
        const { tokens, record } = found.session
        if (tokens.refreshToken === null || now() < dueAt(tokens, timing, 0))
          return await plan(key, tokens, record)
        return await refresh(found.session, due)
      }
    }
  }

  async function refresh(session: LiveSession, due: number): Promise<void> {
    events.lagged(Math.max(0, now() - due) / 1_000)
    const result = await access.refreshDue(session)
    switch (result?.kind) {
      case 'ended':
        return await store.unschedule(session.key)
      case 'later':
        return await put(session.key, now() + result.retryInMs * (1 + random() / 4))
      case 'busy':
        return await put(session.key, now() + result.waitMs)
      case 'changed':
      case 'forced_before':
        return await put(session.key, now() + 1_000)
      // Granted tokens were planned when they were stored.
      case 'granted':
      case undefined:
    }
  }

  function plan(key: RecordKey, tokens: TokenSet, limits: { seenAt: number; endsAt: number }): Promise<void> {
    const refreshAt =
      tokens.refreshToken === null ? Number.POSITIVE_INFINITY : dueAt(tokens, timing, random())
    // At its end a session is looked at once more, so that the end is counted.
    return put(key, Math.min(refreshAt, idleEndsAt(limits, idleMs)))
  }

  async function put(key: RecordKey, at: number): Promise<void> {
    await store.schedule(key, at)
    const shard = Number.parseInt(key[0]!, 16)
    if (at >= pollAt[shard]!) return
    pollAt[shard] = at
    sleep()
  }

  return {
    start() {
      stopped = false
      sleep()
    },
    plan,
    async stop() {
      stopped = true
      if (timer !== null) clearTimeout(timer)
      await polling
      await Promise.all(working)
    },
  }
}
