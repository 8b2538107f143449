import type { Clock } from '../clock.ts'
import type { RecordKey, SessionStore } from './store.ts'

/** Retry interval and batch size for activity that the store did not take. */
const RETRY_EVERY_MS = 2_000
const RETRIED_AT_ONCE = 16
/** A round ends after this many batches of which the store took nothing. */
const FAILED_BATCHES = 16
/** How long a stop waits for the last writes. */
const CLOSING_MS = 1_000

/** Activity of browsers that the store has not taken yet. */
interface PendingActivity {
  /**
   * The browser of this session is active now. Written at once, and again until the store takes it. Where the
   * store has no such session, this process forgets it.
   */
  note(key: RecordKey): void
  /** Writes what is pending of a session, in a command that is sent at once. Never rejects. */
  flush(key: RecordKey): Promise<void>
  /** Writes pending activity once more unless the store is unreached; writes nothing after that. */
  close(): Promise<void>
}

interface PendingActivityOptions {
  store: Pick<SessionStore, 'touch' | 'announceHere' | 'health'>
  idleMs: number
  clock: Pick<Clock, 'monotonic'>
}

/** Keeps activity until the store has taken it, so that one lost command ends no session as idle. */
export function createPendingActivity({ store, idleMs, clock }: PendingActivityOptions): PendingActivity {
  /** When each was active, monotonic milliseconds. */
  const pending = new Map<RecordKey, number>()
  let timer: NodeJS.Timeout | undefined
  let round: Promise<void> | null = null
  let closed = false
  /** Monotonic. */
  let writeUntil = Number.POSITIVE_INFINITY

  store.health.onLive((live) => {
    if (live) void retry()
  })

  async function write(key: RecordKey, activeAt: number): Promise<void> {
    try {
      const exists = await store.touch(key, clock.monotonic() - activeAt)
      if (pending.get(key) === activeAt) pending.delete(key)
      if (!exists) store.announceHere(key)
    } catch {
      if (pending.get(key) !== activeAt) return
      // Moved to the end, so that the next round starts with others.
      pending.delete(key)
      pending.set(key, activeAt)
    }
    if (pending.has(key)) startTimer()
  }

  function retry(): Promise<void> {
    round ??= writePending().finally(() => {
      round = null
    })
    return round
  }

  /** In small batches: a store that has just come back has enough to do. */
  async function writePending(): Promise<void> {
    const oldest = clock.monotonic() - idleMs
    // These sessions have passed their idle limit.
    for (const [key, activeAt] of pending) if (activeAt <= oldest) pending.delete(key)
    const keys = [...pending.keys()]
    let failed = 0
    while (keys.length > 0 && !store.health.isUnreached() && clock.monotonic() < writeUntil) {
      const batch = keys.splice(0, RETRIED_AT_ONCE)
      await Promise.all(batch.map(flush))
      if (batch.some((key) => !pending.has(key))) continue
      // The next round starts with the sessions that this one did not reach.
      failed += 1
      if (failed === FAILED_BATCHES) break
    }
    if (pending.size === 0) stopTimer()
  }

  function startTimer(): void {
    if (!closed) timer ??= setInterval(retry, RETRY_EVERY_MS).unref()
  }

  function stopTimer(): void {
    clearInterval(timer)
    timer = undefined
  }

  async function flush(key: RecordKey): Promise<void> {
    const activeAt = pending.get(key)
    if (activeAt !== undefined && !store.health.isUnreached()) await write(key, activeAt)
  }

  return {
    note(key) {
      const isFirst = !pending.has(key)
      const activeAt = clock.monotonic()
      pending.set(key, activeAt)
      if (store.health.isUnreached()) startTimer()
      else if (isFirst) void write(key, activeAt)
    },
    flush,
    async close() {
      closed = true
      writeUntil = clock.monotonic() + CLOSING_MS
      stopTimer()
      await round
      await retry()
      pending.clear()
    },
  }
}
