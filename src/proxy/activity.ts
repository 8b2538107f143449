import type { Clock } from '../clock.ts'
import type { RecordKey, SessionStore } from '../store/store.ts'

/** How often activity that the store did not take is written again, and how many sessions at once. */
const RETRY_EVERY_MS = 2_000
const RETRIED_AT_ONCE = 16
/** A round ends after so many batches of which nothing was taken. */
const FAILED_BATCHES = 16
/** Time that a stop gives to the last writes. */
const CLOSING_MS = 1_000

/** What browsers did and the store has not taken yet. */
export interface Activity {
  /** The browser of this session is active now. Written at once, and again until the store takes it. */
  note(key: RecordKey): void
  /** Writes what is pending of a session, in a command that is sent at once. Never rejects. */
  flush(key: RecordKey): Promise<void>
  /** Writes what is pending once more, unless the store is away, and then nothing any more. */
  close(): Promise<void>
}

export interface ActivityOptions {
  store: Pick<SessionStore, 'touch' | 'unreached' | 'onMessagesBack'>
  idleMs: number
  clock: Pick<Clock, 'monotonic'>
  /** The store has no such session. */
  onGone: (key: RecordKey) => void
}

/** Keeps activity until the store has taken it, so that one lost command ends no session as idle. */
export function createActivity({ store, idleMs, clock, onGone }: ActivityOptions): Activity {
  /** When each was active, monotonic milliseconds. */
  const pending = new Map<RecordKey, number>()
  let timer: NodeJS.Timeout | undefined
  let round: Promise<void> | null = null
  let closed = false
  /** Monotonic. */
  let writeUntil = Number.POSITIVE_INFINITY

  store.onMessagesBack(() => void retry())

  async function write(key: RecordKey, activeAt: number): Promise<void> {
    try {
      const there = await store.touch(key, clock.monotonic() - activeAt, idleMs)
      if (pending.get(key) === activeAt) pending.delete(key)
      if (!there) onGone(key)
    } catch {
      if (pending.get(key) !== activeAt) return
      // It stays pending, as the last one.
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
    // The store would not take these any more.
    for (const [key, activeAt] of pending) if (activeAt <= oldest) pending.delete(key)
    const keys = [...pending.keys()]
    let failed = 0
    while (keys.length > 0 && !store.unreached() && clock.monotonic() < writeUntil) {
      const batch = keys.splice(0, RETRIED_AT_ONCE)
      await Promise.all(batch.map(flush))
      if (batch.some((key) => !pending.has(key))) continue
      // The store seems to take none: the next round goes on where this one ends.
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
    if (activeAt !== undefined && !store.unreached()) await write(key, activeAt)
  }

  return {
    note(key) {
      const isFirst = !pending.has(key)
      const activeAt = clock.monotonic()
      pending.set(key, activeAt)
      if (store.unreached()) startTimer()
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
