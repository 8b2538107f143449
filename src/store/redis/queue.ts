import { DUE_SHARDS, type DueClaim, type DueQueue, type RecordKey, shardOf } from '../store.ts'
import type { Commands } from './commands.ts'

/** The queue of due sessions in Redis: sorted sets, one for each shard. */
export function createRedisQueue({ client, send, script }: Commands, prefix: string): DueQueue {
  const shardName = (shard: number): string => `${prefix}due:{${shard.toString(16)}}`
  const nameOf = (key: RecordKey): string => shardName(shardOf(key))

  return {
    async schedule(key, inMs) {
      await script('schedule', nameOf(key), key, Math.round(inMs))
    },

    async unschedule(key) {
      await send('zrem', () => client.zrem(nameOf(key), key))
    },

    async scheduleMissing(entries, latest = false) {
      const shards = new Map<string, (string | number)[]>()
      for (const { key, inMs } of entries) {
        const members = shards.get(nameOf(key)) ?? []
        shards.set(nameOf(key), members)
        members.push(key, Math.round(inMs))
      }
      const how = latest ? 'LT' : 'NX'
      const added = await Promise.all(
        [...shards].map(([name, members]) => script('schedule-missing', name, how, ...members)),
      )
      return added.reduce<number>((sum, count) => sum + Number(count), 0)
    },

    async claimDue(shard, limit, claimMs) {
      const answer = await script('claim-due', shardName(shard), claimMs, limit)
      const [storeNow, next, ...due] = answer as [number, number, ...(string | number)[]]
      const entries: DueClaim['entries'] = []
      for (let at = 0; at < due.length; at += 2)
        entries.push({ key: String(due[at]), lateMs: Number(due[at + 1]) })
      return { entries, nextInMs: next < 0 ? null : next, storeNow }
    },

    async queueLength() {
      const shards = Array.from({ length: DUE_SHARDS }, (_, shard) => shardName(shard))
      const lengths = await send('zcard', () => Promise.all(shards.map((name) => client.zcard(name))))
      return lengths.reduce((sum, length) => sum + length, 0)
    },
  }
}
