import type { Clock } from '../clock.ts'
import type { RecordKey, SessionStore } from '../store/port.ts'

/** How often activity that the store did not take is written again, and how many sessions at once. */
const RETRY_EVERY_MS = 2_000
const RETRIED_AT_ONCE = 16

/** What browsers did and the store has not taken yet. */
export interface Activity {
  /** The browser of this session is active now. Written at once, and again until the store takes it. */
  note(key: RecordKey): void
  /** Writes what is pending of a session; call it before the session is read. Never rejects. */
  flush(key: RecordKey): Promise<void>
  /** Forgets what is pending and writes nothing more. */
  close(): void
}

export interface ActivityOptions {
  store: Pick<SessionStore, 'touch' | 'unreached' | 'onMessagesBack'>
  idleMs: number
  clock: Clock
  /** The store has no such session, or its idle limit has passed. */
  onGone: (key: RecordKey) => void
}

interface Pending {
  /** Epoch milliseconds, as the record keeps it. */
  readonly seenAt: number
  /** Monotonic milliseconds: after the idle limit the store would not take it any more. */
  readonly notedAt: number
}

/** Keeps activity until the store has taken it, so that one lost command ends no session as idle. */
export function createActivity({ store, idleMs, clock, onGone }: ActivityOptions): Activity {
  const pending = new Map<RecordKey, Pending>()
  let timer: NodeJS.Timeout | undefined
  let retrying = false
  let closed = false

  store.onMessagesBack(() => void retry())

  async function write(key: RecordKey, noted: Pending): Promise<void> {
    try {
      const there = await store.touch(key, noted.seenAt, idleMs)
      if (pending.get(key) === noted) pending.delete(key)
      if (!there) onGone(key)
    } catch {
      // It stays pending.
    }
    if (pending.has(key)) startTimer()
  }

  /** In small batches: a store that has just come back has enough to do. */
  async function retry(): Promise<void> {
    if (retrying) return
    retrying = true
    const oldest = clock.monotonic() - idleMs
    for (const [key, { notedAt }] of pending) if (notedAt <= oldest) pending.delete(key)
    const keys = [...pending.keys()]
    while (keys.length > 0 && !store.unreached()) {
      await Promise.all(keys.splice(0, RETRIED_AT_ONCE).map(flush))
    }
    retrying = false
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
    const noted = pending.get(key)
    if (noted !== undefined && !store.unreached()) await write(key, noted)
  }

  return {
    note(key) {
      const isFirst = !pending.has(key)
      const noted = { seenAt: clock.wall(), notedAt: clock.monotonic() }
      pending.set(key, noted)
      if (store.unreached()) startTimer()
      else if (isFirst) void write(key, noted)
    },
    flush,
    close() {
      closed = true
      pending.clear()
      stopTimer()
    },
  }
}
