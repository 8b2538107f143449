import type { Redis } from 'ioredis'
import t, { type Test } from 'tap'
import { createMemoryQueue } from '../../../src/vault/store/memory/queue.ts'
import type { RecordKey } from '../../../src/vault/store/record.ts'
import { createRedisKeys } from '../../../src/vault/store/redis/keys.ts'
import { createRedisQueue } from '../../../src/vault/store/redis/queue.ts'
import type { DueQueue } from '../../../src/vault/store/store.ts'
import { startRedis } from '../../helpers/redis.ts'
import { scriptsAt } from './scripts-at.ts'
import { newKey, openCommands, singleTarget, untilConnected } from './stores.ts'

const MINUTE = 60_000
const HOUR = 60 * MINUTE

/** An empty queue, with a clock that only the test moves. */
interface Setup {
  readonly queue: DueQueue
  readonly clock: { now: number }
  /** The keys that are due, as they are claimed. */
  readonly claim: (limit?: number, claimMs?: number) => Promise<RecordKey[]>
}

/** One Redis for all queues. */
const redis = (async () => {
  const client = openCommands(t, singleTarget((await startRedis(t)).port)) as Redis
  await untilConnected(client)
  return client
})()

const QUEUES: Record<string, () => Promise<Omit<Setup, 'claim'>>> = {
  async Redis() {
    // Ten years ahead, so that Redis deletes nothing by its own clock.
    const clock = { now: Date.now() + 10 * 365 * 24 * HOUR, history: 'aaaaaaaa' }
    const scripts = scriptsAt(await redis, clock)
    return { queue: createRedisQueue(scripts, createRedisKeys(newKey()).due), clock }
  },
  async memory() {
    const clock = { now: Date.now() }
    return { queue: createMemoryQueue({ now: () => clock.now }), clock }
  },
}

/** A test of each queue. */
function test(name: string, run: (t: Test, setup: Setup) => Promise<void>): void {
  for (const [store, makeQueue] of Object.entries(QUEUES))
    t.test(`in ${store} ${name}`, async (t) => {
      const made = await makeQueue()
      const claim: Setup['claim'] = async (limit = 10, claimMs = HOUR) =>
        (await made.queue.claimDue(limit, claimMs)).entries.map(({ key }) => key)
      await run(t, { ...made, claim })
    })
}

test('an empty queue returns no entries, with the clock of the store', async (t, { queue, clock }) => {
  t.strictSame(await queue.claimDue(10, HOUR), { entries: [], nextInMs: null, storeNow: clock.now })
  t.equal(await queue.queueLength(), 0)
})

test('due entries come with their delay, the longest due first, up to the limit', async (t, {
  queue,
  claim,
}) => {
  const [late, later, latest, future] = [newKey(), newKey(), newKey(), newKey()]
  await queue.schedule(late, -1_000)
  await queue.schedule(latest, -3_000)
  await queue.schedule(later, -2_000)
  await queue.schedule(future, MINUTE)
  const { entries, nextInMs } = await queue.claimDue(2, HOUR)
  t.strictSame(entries, [
    { key: latest, lateMs: 3_000 },
    { key: later, lateMs: 2_000 },
  ])
  t.equal(nextInMs, 0, 'the rest stays due')
  t.strictSame(await claim(), [late], 'a claimed entry is not returned again')
  t.equal((await queue.claimDue(10, HOUR)).nextInMs, MINUTE)
})

test('a claimed entry is due again after the claim, unless it is rescheduled', async (t, {
  queue,
  clock,
  claim,
}) => {
  const [left, moved] = [newKey(), newKey()]
  await queue.schedule(left, 0)
  await queue.schedule(moved, 0)
  await claim(10, MINUTE)
  await queue.schedule(moved, HOUR)
  clock.now += MINUTE - 1
  t.match(await queue.claimDue(10, HOUR), { entries: [], nextInMs: 1 })
  clock.now += 1
  t.strictSame(await claim(), [left])
})

test('scheduling a key again moves its only entry, or removes it', async (t, { queue, clock, claim }) => {
  const key = newKey()
  await queue.schedule(key, HOUR)
  await queue.schedule(key, 30_000.6)
  t.equal((await queue.claimDue(10, HOUR)).nextInMs, 30_001)
  t.equal(await queue.queueLength(), 1)
  clock.now += 30_001
  t.strictSame(await claim(10, 0.5), [key], 'due at its exact millisecond')
  await queue.schedule(key, null)
  await queue.schedule(newKey(), null)
  clock.now += HOUR
  t.strictSame(await claim(), [])
})

test('missing entries are added, and existing ones stay unchanged', async (t, { queue, claim }) => {
  const [there, missing, another] = [newKey(), newKey(), newKey()]
  await queue.schedule(there, HOUR)
  const entries = [
    { key: there, inMs: -5_000 },
    { key: missing, inMs: -1_000.4 },
    { key: another, inMs: -2_000 },
  ]
  t.equal(await queue.scheduleMissing(entries), 2)
  t.equal(await queue.queueLength(), 3)
  t.strictSame(await claim(), [another, missing])
  t.equal(await queue.scheduleMissing(entries), 0, 'a claimed entry is not missing')
  t.equal(await queue.scheduleMissing([]), 0)
})

test('of 20 replicas claiming at once each entry goes to one', async (t, { queue, claim }) => {
  for (let round = 0; round < 20; round++) {
    const keys = Array.from({ length: 30 }, newKey)
    await Promise.all(keys.map((key) => queue.schedule(key, 0)))
    const claims = await Promise.all(Array.from({ length: 20 }, () => claim(2)))
    t.strictSame(claims.flat().sort(), keys.sort())
  }
})

test('a clock that steps back delays no entry by more than a minute', async (t, { queue, clock, claim }) => {
  const [due, later] = [newKey(), newKey()]
  await queue.schedule(due, 5 * MINUTE)
  await queue.schedule(later, 90 * MINUTE)
  await claim()
  for (let step = 0; step < 3; step += 1) {
    clock.now -= HOUR
    t.strictSame(await claim(), [])
  }
  clock.now += 6 * MINUTE
  t.strictSame(await claim(), [due], 'not an hour later for each step')
  const after = newKey()
  await queue.schedule(after, 10 * MINUTE)
  clock.now += 10 * MINUTE
  t.strictSame(await claim(), [after], 'one that was put in after the steps')
  for (const key of [due, later, after]) await queue.schedule(key, null)
  t.equal(await queue.queueLength(), 0)
})

test('a clock that steps forward makes entries due early, and loses none', async (t, {
  queue,
  clock,
  claim,
}) => {
  const key = newKey()
  await queue.schedule(key, 30 * MINUTE)
  await claim()
  clock.now += HOUR
  t.match((await queue.claimDue(10, MINUTE)).entries, [{ key, lateMs: 30 * MINUTE }])
  clock.now -= HOUR
  await queue.schedule(key, 5 * MINUTE)
  clock.now += 5 * MINUTE + MINUTE
  t.strictSame(await claim(), [key], 'and a step back is not waited for')
})
