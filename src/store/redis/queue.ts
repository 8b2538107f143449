import type { DueClaim, RecordKey, SessionStore } from '../store.ts'
import { DUE_SHARDS } from '../store.ts'
import type { RedisClient } from './connection.ts'
import type { RunScript } from './scripts.ts'

export interface RedisQueueOptions {
  prefix: string
  commands: RedisClient
  /** Runs a command under this name; rejects with `StoreUnavailable`. */
  ask: <T>(command: string, work: () => Promise<T>) => Promise<T>
  script: RunScript
}

/** The queue of due sessions in Redis: sorted sets, one a shard. */
export function createRedisQueue({
  prefix,
  commands,
  ask,
  script,
}: RedisQueueOptions): Pick<
  SessionStore,
  'schedule' | 'unschedule' | 'scheduleMissing' | 'claimDue' | 'queueLength'
> {
  const shardName = (shard: number): string => `${prefix}due:{${shard.toString(16)}}`
  const shardOf = (key: RecordKey): string => shardName(Number.parseInt(key[0]!, 16))

  return {
    async schedule(key, inMs) {
      await script('schedule', shardOf(key), key, Math.round(inMs))
    },

    async unschedule(key) {
      await ask('zrem', () => commands.zrem(shardOf(key), key))
    },

    async scheduleMissing(entries, latest = false) {
      const shards = new Map<string, (string | number)[]>()
      for (const { key, inMs } of entries) {
        const members = shards.get(shardOf(key)) ?? []
        shards.set(shardOf(key), members)
        members.push(key, Math.round(inMs))
      }
      const how = latest ? 'LT' : 'NX'
      const added = await Promise.all(
        [...shards].map(([name, members]) => script('schedule-missing', name, how, ...members)),
      )
      return added.reduce<number>((sum, count) => sum + Number(count), 0)
    },

    async claimDue(shard, limit, leaseMs) {
      const answer = await script('claim-due', shardName(shard), leaseMs, limit)
      const [storeNow, next, ...due] = answer as [number, number, ...(string | number)[]]
      const entries: DueClaim['entries'] = []
      for (let at = 0; at < due.length; at += 2)
        entries.push({ key: String(due[at]), lateMs: Number(due[at + 1]) })
      return { entries, nextInMs: next < 0 ? null : next, storeNow }
    },

    async queueLength() {
      const shards = Array.from({ length: DUE_SHARDS }, (_, shard) => shardName(shard))
      const lengths = await ask('zcard', () => Promise.all(shards.map((name) => commands.zcard(name))))
      return lengths.reduce((sum, length) => sum + length, 0)
    },
  }
}
