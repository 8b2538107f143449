import type { DueClaim, DueQueue } from '../store.ts'
import type { Commands } from './commands.ts'

/** The queue of due sessions in Redis, a sorted set at this Redis key. */
export function createRedisQueue({ client, send, script }: Commands, redisKey: string): DueQueue {
  return {
    async schedule(key, inMs) {
      if (inMs === null) await send('zrem', redisKey, () => client.zrem(redisKey, key))
      else await script('schedule', redisKey, 'CH', key, Math.round(inMs))
    },

    async scheduleMissing(entries) {
      if (entries.length === 0) return 0
      const members = entries.flatMap(({ key, inMs }) => [key, Math.round(inMs)])
      return Number(await script('schedule', redisKey, 'NX', ...members))
    },

    async claimDue(limit, claimMs) {
      const reply = await script('claim-due', redisKey, claimMs, limit)
      const [storeNow, next, ...due] = reply as [number, number, ...(string | number)[]]
      const entries: DueClaim['entries'] = []
      for (let at = 0; at < due.length; at += 2)
        entries.push({ key: String(due[at]), lateMs: Number(due[at + 1]) })
      return { entries, nextInMs: next < 0 ? null : next, storeNow }
    },

    // The clock of the queue has negative scores.
    queueLength: () => send('zcount', redisKey, () => client.zcount(redisKey, 0, '+inf')),
  }
}
