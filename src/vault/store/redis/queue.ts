import type { RecordKey } from '../record.ts'
import type { DueClaim, DueQueue } from '../store.ts'
import type { Commands } from './commands.ts'

/** The member of a session: its key in base64url, which takes 32 bytes less of Redis' memory than 64 hex digits. */
function memberOf(key: RecordKey): string {
  return Buffer.from(key, 'hex').toString('base64url')
}

function keyOf(member: string): RecordKey {
  return Buffer.from(member, 'base64url').toString('hex')
}

/** The queue of due sessions in Redis, a sorted set at this Redis key. */
export function createRedisQueue({ client, send, script }: Commands, redisKey: string): DueQueue {
  return {
    async schedule(key, inMs) {
      if (inMs === null) await send('zrem', redisKey, () => client.zrem(redisKey, memberOf(key)))
      else await script('schedule', redisKey, 'CH', memberOf(key), Math.round(inMs))
    },

    async scheduleMissing(entries) {
      if (entries.length === 0) return 0
      const members = entries.flatMap(({ key, inMs }) => [memberOf(key), Math.round(inMs)])
      return Number(await script('schedule', redisKey, 'NX', ...members))
    },

    async claimDue(limit, claimMs) {
      const reply = await script('claim-due', redisKey, claimMs, limit)
      const [storeNow, next, ...due] = reply as [number, number, ...(string | number)[]]
      const entries: DueClaim['entries'] = []
      for (let at = 0; at < due.length; at += 2) {
        const member = String(due[at])
        const key = keyOf(member)
        if (memberOf(key) === member) entries.push({ key, lateMs: Number(due[at + 1]) })
        // Nobody else would remove it: no session has this member.
        else await send('zrem', redisKey, () => client.zrem(redisKey, member))
      }
      return { entries, nextInMs: next < 0 ? null : next, storeNow }
    },

    // The clock of the queue has negative scores.
    queueLength: () => send('zcount', redisKey, () => client.zcount(redisKey, 0, '+inf')),
  }
}
