import type { Redis } from 'ioredis'
import t, { type Test } from 'tap'
import { createMemoryQueue } from '../../src/store/memory/queue.ts'
import { createRedisKeys } from '../../src/store/redis/keys.ts'
import { createRedisQueue } from '../../src/store/redis/queue.ts'
import type { DueQueue } from '../../src/store/store.ts'
import { startRedis } from '../helpers/redis.ts'
import { scriptsAt } from './scripts-at.ts'
import { newKey, openCommands, PREFIX, singleTarget } from './stores.ts'
import { untilConnected } from './works.ts'

const MINUTE = 60_000
const HOUR = 60 * MINUTE

/** A queue with a clock that only the test moves, ten years ahead. */
type MakeQueue = (t: Test) => Promise<{ queue: DueQueue; seen: { now: number } }>

const QUEUES: Record<string, MakeQueue> = {
  async Redis(t) {
    const client = openCommands(t, singleTarget((await startRedis(t)).port)) as Redis
    await untilConnected(client)
    const seen = { now: Date.now() + 10 * 365 * 24 * HOUR, history: 'aaaaaaaa' }
    return { queue: createRedisQueue(scriptsAt(client, seen), createRedisKeys(PREFIX).due), seen }
  },
  async memory() {
    const seen = { now: Date.now() }
    return { queue: createMemoryQueue({ now: () => seen.now }), seen }
  },
}

for (const [name, makeQueue] of Object.entries(QUEUES)) {
  t.test(`in ${name} a clock that steps back delays no entry by more than a minute`, async (t) => {
    const { queue, seen } = await makeQueue(t)
    const [due, later] = [newKey(), newKey()]
    await queue.schedule(due, 5 * MINUTE)
    await queue.schedule(later, 90 * MINUTE)
    await queue.claimDue(10, MINUTE)
    for (let step = 0; step < 3; step += 1) {
      seen.now -= HOUR
      t.strictSame((await queue.claimDue(10, MINUTE)).entries, [])
    }
    seen.now += 6 * MINUTE
    t.match((await queue.claimDue(10, HOUR)).entries, [{ key: due }], 'not an hour later for each step')
    const after = newKey()
    await queue.schedule(after, 10 * MINUTE)
    seen.now += 10 * MINUTE
    t.match((await queue.claimDue(10, HOUR)).entries, [{ key: after }], 'one that was put in after the steps')
    for (const key of [due, later, after]) await queue.schedule(key, null)
    t.equal(await queue.queueLength(), 0)
  })

  t.test(`in ${name} a clock that steps forward makes entries due early, and loses none`, async (t) => {
    const { queue, seen } = await makeQueue(t)
    const key = newKey()
    await queue.schedule(key, 30 * MINUTE)
    await queue.claimDue(10, MINUTE)
    seen.now += HOUR
    t.match((await queue.claimDue(10, MINUTE)).entries, [{ key, lateMs: 30 * MINUTE }])
    seen.now -= HOUR
    await queue.schedule(key, 5 * MINUTE)
    seen.now += 5 * MINUTE + MINUTE
    t.match((await queue.claimDue(10, MINUTE)).entries, [{ key }], 'and a step back is not waited for')
  })
}
