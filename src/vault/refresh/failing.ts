import type { RecordKey } from '../store/record.ts'

/** Sessions whose refreshes fail, in this process. */
export interface Failing {
  /** A presentation of this session brought no tokens. */
  note(key: RecordKey): void
  /** Forgets the session. Milliseconds since its first failure and the attempts, this one included; null without one. */
  take(key: RecordKey): { ms: number; attempts: number } | null
}

/** Sessions that end while they fail are never taken. */
const MAX_SESSIONS = 10_000

/** Remembers since when the refreshes of sessions fail, so that the log can say when one recovers. */
export function createFailing(monotonic: () => number): Failing {
  const failures = new Map<RecordKey, { since: number; attempts: number }>()
  return {
    note(key) {
      const known = failures.get(key)
      if (known !== undefined) {
        known.attempts += 1
        return
      }
      if (failures.size >= MAX_SESSIONS) failures.delete(failures.keys().next().value!)
      failures.set(key, { since: monotonic(), attempts: 1 })
    },
    take(key) {
      const known = failures.get(key)
      if (known === undefined) return null
      failures.delete(key)
      return { ms: Math.round(monotonic() - known.since), attempts: known.attempts + 1 }
    },
  }
}
