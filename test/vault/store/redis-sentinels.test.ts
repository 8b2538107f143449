import t, { type Test } from 'tap'
import { freePort } from '../../helpers/ports.ts'
import type { RedisServer } from '../../helpers/redis.ts'
import { redisCommand } from '../../helpers/redis-command.ts'
import { type SentinelGroup, startSentinelGroup } from '../../helpers/redis-groups.ts'
import { elapsed, until, watchLateness } from '../../helpers/wait.ts'
import {
  openRedisStore,
  redisStore,
  sees,
  sentinelTarget,
  startSession,
  type TestStore,
  untilItWorks,
} from './stores.ts'

// The tests mostly wait, so they run concurrently.
t.jobs = 3

/** Time limit for a store to follow a promotion, in milliseconds. */
const FOLLOWED_WITHIN_MS = 4_000

async function clientsAt(node: RedisServer): Promise<number> {
  return (await node.cli('client', 'list')).split('name=bff-').length - 1
}

/** Whether a store is connected to the Sentinel at this port. */
async function isAsked(port: number): Promise<boolean> {
  return (await redisCommand(port, ['client', 'list'])).includes('name=bff-sentinels')
}

/** Waits until this Sentinel names that node as the master, and each store has asked for it since. */
async function promoted(group: SentinelGroup, node: RedisServer, sentinel = 0): Promise<void> {
  await until('it is promoted', async () => (await group.masterPort(sentinel)) === node.port)
  // Stores ask at its announcement. A master that thaws before that is trusted for as long.
  await elapsed(700)
}

/** Waits until every store has its one connection to that node. */
async function followed(t: Test, stores: TestStore[], node: RedisServer, other: RedisServer): Promise<void> {
  const [startedAt, endWatch] = [performance.now(), watchLateness()]
  await until('no connection is left elsewhere', async () => (await clientsAt(other)) === 0)
  for (const { store } of stores) await untilItWorks(store)
  const took = performance.now() - startedAt
  const { lateMs, longestMs } = endWatch()
  t.equal(await clientsAt(node), stores.length)
  // One that was held up has to begin again.
  const limitMs = FOLLOWED_WITHIN_MS * (longestMs > 100 ? 2 : 1)
  t.ok(took - lateMs < limitMs, `after ${Math.round(took)} ms, ${Math.round(lateMs)} ms of these late`)
}

t.test(
  'stores leave a frozen and superseded master within 4 seconds after it thaws, twice in a row',
  async (t) => {
    const group = await startSentinelGroup(t)
    const target = sentinelTarget(group.sentinelPorts)
    const stores = [await redisStore(t, target), await redisStore(t, target)]
    const key = await startSession(stores[0]!)
    await until('the replica has it', async () => (await group.replica.cli('exists', `bff:s:${key}`)) === '1')
    for (const [old, next] of [
      [group.master, group.replica],
      [group.replica, group.master],
    ] as const) {
      old.pause()
      await promoted(group, next)
      old.resume()
      t.match(await old.cli('role'), /^master/, 'it still reports itself as a master')
      await followed(t, stores, next, old)
      await sees(t, stores[0]!, stores[1]!)
      t.ok(await stores[0]!.store.read(key))
      await group.demote(old)
    }
  },
)

t.test('a Sentinel that was frozen with the old master, and still names it, is not trusted', async (t) => {
  const group = await startSentinelGroup(t)
  const stores = [await redisStore(t, sentinelTarget(group.sentinelPorts))]
  // A client that asks the Sentinels in sequence begins with the first of the list.
  group.pauseSentinels(0)
  group.master.pause()
  await promoted(group, group.replica, 1)
  group.resumeSentinels(0)
  group.master.resume()
  await followed(t, stores, group.replica, group.master)
  const late = await redisStore(t, sentinelTarget(group.sentinelPorts))
  await until(
    'a store that starts now follows the promotion too',
    async () => (await clientsAt(group.replica)) === 2,
  )
  await sees(t, stores[0]!, late)
})

t.test(
  'without any Sentinel a store keeps its master, and asks the Sentinels again when they are back',
  async (t) => {
    const group = await startSentinelGroup(t)
    const stores = [await redisStore(t, sentinelTarget(group.sentinelPorts))]
    const { store } = stores[0]!
    let lost = 0
    store.health.onIncident(() => {
      lost += 1
    })
    group.pauseSentinels(0, 1, 2)
    // Longer than a silent connection stays open.
    for (let count = 0; count < 50; count += 1) {
      await store.ping()
      await elapsed(100)
    }
    t.equal(lost, 0)
    group.resumeSentinels(0, 1, 2)
    for (const port of group.sentinelPorts) {
      await until('it is asked again', () => isAsked(port))
    }
    t.equal(lost, 0)
  },
)

t.test('Sentinels that are unreachable at the start have no effect, nor when they come back', async (t) => {
  const group = await startSentinelGroup(t)
  const unusedPort = await freePort()
  group.pauseSentinels(1, 2)
  const store = openRedisStore(t, sentinelTarget([unusedPort, ...group.sentinelPorts]))
  await untilItWorks(store)
  group.resumeSentinels(1, 2)
  await elapsed(2_000)
  group.pauseSentinels(0)
  await group.master.kill()
  await promoted(group, group.replica, 1)
  await untilItWorks(store)
  t.equal(await clientsAt(group.replica), 1)
  group.resumeSentinels(0)
})

t.test('a store discovers Sentinels that the configuration does not name', async (t) => {
  const group = await startSentinelGroup(t)
  const store = openRedisStore(t, sentinelTarget(group.sentinelPorts.slice(0, 1)))
  await untilItWorks(store)
  // A Sentinel may name none for its first seconds.
  for (const port of group.sentinelPorts.slice(1)) {
    await until('it is asked', () => isAsked(port))
  }
  group.pauseSentinels(0)
  group.master.pause()
  await promoted(group, group.replica, 1)
  group.master.resume()
  await until('it follows', async () => (await clientsAt(group.replica)) === 1)
  group.resumeSentinels(0)
})
