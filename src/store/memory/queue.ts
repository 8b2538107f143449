import { DUE_SHARDS, type DueClaim, type DueQueue, type RecordKey, shardOf } from '../store.ts'

/** The queue of due sessions in the memory of this process. */
export function createMemoryQueue({ now }: { now: () => number }): DueQueue {
  const due = Array.from({ length: DUE_SHARDS }, () => new Map<RecordKey, number>())

  function entriesOf(key: RecordKey): Map<RecordKey, number> {
    return due[shardOf(key)]!
  }

  return {
    async schedule(key, inMs) {
      entriesOf(key).set(key, Math.round(now() + inMs))
    },

    async unschedule(key) {
      entriesOf(key).delete(key)
    },

    async scheduleMissing(entries, latest = false) {
      let added = 0
      for (const { key, inMs } of entries) {
        const shard = entriesOf(key)
        const at = Math.round(now() + inMs)
        const before = shard.get(key)
        if (before === undefined) added += 1
        if (before === undefined || (latest && at < before)) shard.set(key, at)
      }
      return added
    },

    async claimDue(shard, limit, claimMs): Promise<DueClaim> {
      const entries = due[shard]!
      const at = now()
      const claimed = [...entries]
        .filter(([, when]) => when <= at)
        .sort((a, b) => a[1] - b[1])
        .slice(0, limit)
      for (const [key] of claimed) entries.set(key, Math.round(at + claimMs))
      let next: number | null = null
      for (const when of entries.values()) if (next === null || when < next) next = when
      return {
        entries: claimed.map(([key, dueAt]) => ({ key, lateMs: at - dueAt })),
        nextInMs: next === null ? null : Math.max(0, next - at),
        storeNow: at,
      }
    },

    async queueLength() {
      return due.reduce((sum, entries) => sum + entries.size, 0)
    },
  }
}
