import type { DueClaim, RecordKey, SessionStore } from './port.ts'
import { DUE_SHARDS } from './port.ts'

/** The embedded store's queue of due sessions. */
export function createMemoryQueue({
  now,
}: {
  now: () => number
}): Pick<SessionStore, 'schedule' | 'unschedule' | 'scheduleMissing' | 'claimDue' | 'queueLength'> {
  const due = Array.from({ length: DUE_SHARDS }, () => new Map<RecordKey, number>())

  function shardOf(key: RecordKey): Map<RecordKey, number> {
    return due[Number.parseInt(key[0]!, 16)]!
  }

  return {
    async schedule(key, at) {
      shardOf(key).set(key, Math.round(at))
    },

    async unschedule(key) {
      shardOf(key).delete(key)
    },

    async scheduleMissing(entries) {
      const missing = entries.filter(({ key }) => !shardOf(key).has(key))
      for (const { key, at } of missing) shardOf(key).set(key, Math.round(at))
      return missing.length
    },

    async claimDue(shard, limit, leaseMs): Promise<DueClaim> {
      const entries = due[shard]!
      const at = now()
      const claimed = [...entries]
        .filter(([, when]) => when <= at)
        .sort((a, b) => a[1] - b[1])
        .slice(0, limit)
      for (const [key] of claimed) entries.set(key, Math.round(at + leaseMs))
      let next: number | null = null
      for (const when of entries.values()) if (next === null || when < next) next = when
      return {
        entries: claimed.map(([key, dueAt]) => ({ key, dueAt })),
        nextInMs: next === null ? null : Math.max(0, next - at),
      }
    },

    async queueLength() {
      return due.reduce((sum, entries) => sum + entries.size, 0)
    },
  }
}
