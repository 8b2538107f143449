import type { RecordKey } from '../record.ts'
import type { DueClaim, DueQueue } from '../store.ts'

/** How often the clock of the queue is written down; a step back delays entries by no more. */
const SEEN_EVERY_MS = 60_000

/**
 * The due queue of one server. Its clock never goes back: `seen` is what it has shown, `ahead` what the server's own has
 * lost by stepping back.
 */
export interface DueEntries {
  dueAt: Map<RecordKey, number>
  seen: number
  ahead: number
}

export function emptyQueue(): DueEntries {
  return { dueAt: new Map(), seen: 0, ahead: 0 }
}

/** Hands out due entries, as claim-due.lua does; `now` by the server's clock. */
export function claimEntries(
  queue: DueEntries,
  now: number,
  { limit, claimMs }: { limit: number; claimMs: number },
): DueClaim {
  if (queue.dueAt.size === 0) {
    Object.assign(queue, emptyQueue())
    return { entries: [], nextInMs: null, storeNow: now }
  }
  queue.ahead = Math.max(queue.ahead, queue.seen - now)
  const clock = now + queue.ahead
  if (clock >= queue.seen + SEEN_EVERY_MS) queue.seen = clock
  const claimed = [...queue.dueAt]
    .filter(([, dueAt]) => dueAt <= clock)
    .sort((a, b) => a[1] - b[1])
    .slice(0, limit)
  for (const [key] of claimed) queue.dueAt.set(key, Math.round(clock + claimMs))
  let next = Number.POSITIVE_INFINITY
  for (const dueAt of queue.dueAt.values()) next = Math.min(next, dueAt)
  return {
    entries: claimed.map(([key, dueAt]) => ({ key, lateMs: clock - dueAt })),
    nextInMs: Math.max(0, next - clock),
    storeNow: now,
  }
}

/** Makes a session due in `inMs`, by the clock of the queue. */
export function putEntry(
  queue: DueEntries,
  now: number,
  { key, inMs }: { key: RecordKey; inMs: number },
): void {
  queue.dueAt.set(key, Math.round(now + queue.ahead + inMs))
}

/** The queue of due sessions in the memory of this process. */
export function createMemoryQueue({ now }: { now: () => number }): DueQueue {
  const queue = emptyQueue()

  return {
    async schedule(key, inMs) {
      if (inMs === null) queue.dueAt.delete(key)
      else putEntry(queue, now(), { key, inMs })
    },

    async scheduleMissing(entries) {
      const missing = entries.filter(({ key }) => !queue.dueAt.has(key))
      for (const entry of missing) putEntry(queue, now(), entry)
      return missing.length
    },

    claimDue: async (limit, claimMs) => claimEntries(queue, now(), { limit, claimMs }),
    queueLength: async () => queue.dueAt.size,
  }
}
