import type { SessionRecord } from './store.ts'

type Lifetimes = Pick<SessionRecord, 'seenAt' | 'endsAt'>

/** Epoch milliseconds at which the session ends if its browser stays away. */
export function idleEndsAt(record: Lifetimes, idleMs: number): number {
  return Math.min(record.seenAt + idleMs, record.endsAt)
}

/** Which limit the session has passed, or null while it lives. */
export function passedLimit(record: Lifetimes, now: number, idleMs: number): 'idle' | 'absolute' | null {
  if (now >= record.endsAt) return 'absolute'
  return now >= record.seenAt + idleMs ? 'idle' : null
}

/** Activity is written when the last written one is older than this, in milliseconds. */
export function touchInterval(idleMs: number): number {
  return Math.min(60_000, idleMs / 10)
}
