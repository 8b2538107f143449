import { DUE_SHARDS, type DueClaim, type DueQueue, type RecordKey, shardOf } from '../store.ts'
import type { Commands } from './commands.ts'

/** The queue of due sessions in Redis: sorted sets, one for each shard. */
export function createRedisQueue({ client, send, script }: Commands, prefix: string): DueQueue {
  const redisKey = (shard: number): string => `${prefix}due:{${shard.toString(16)}}`
  const redisKeyOf = (key: RecordKey): string => redisKey(shardOf(key))

  return {
    async schedule(key, inMs) {
      await script('schedule', redisKeyOf(key), key, Math.round(inMs))
    },

    async unschedule(key) {
      await send('zrem', () => client.zrem(redisKeyOf(key), key))
    },

    async scheduleMissing(entries, latest = false) {
      const additions = new Map<string, (string | number)[]>()
      for (const { key, inMs } of entries) {
        const members = additions.get(redisKeyOf(key)) ?? []
        additions.set(redisKeyOf(key), members)
        members.push(key, Math.round(inMs))
      }
      const how = latest ? 'LT' : 'NX'
      const added = await Promise.all(
        [...additions].map(([shard, members]) => script('schedule-missing', shard, how, ...members)),
      )
      return added.reduce<number>((sum, count) => sum + Number(count), 0)
    },

    async claimDue(shard, limit, claimMs) {
      const reply = await script('claim-due', redisKey(shard), claimMs, limit)
      const [storeNow, next, ...due] = reply as [number, number, ...(string | number)[]]
      const entries: DueClaim['entries'] = []
      for (let at = 0; at < due.length; at += 2)
        entries.push({ key: String(due[at]), lateMs: Number(due[at + 1]) })
      return { entries, nextInMs: next < 0 ? null : next, storeNow }
    },

    async queueLength() {
      const shards = Array.from({ length: DUE_SHARDS }, (_, shard) => redisKey(shard))
      const lengths = await send('zcard', () => Promise.all(shards.map((shard) => client.zcard(shard))))
      return lengths.reduce((sum, length) => sum + length, 0)
    },
  }
}
