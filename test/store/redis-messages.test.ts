import t from 'tap'
import type { RecordKey } from '../../src/store/store.ts'
import { startRedis } from '../helpers/redis.ts'
import { startClusterOfOne } from '../helpers/redis-groups.ts'
import { elapsed, until } from '../helpers/wait.ts'
import { startProxy } from './proxy.ts'
import { clusterTarget, openRedisStore, PREFIX, redisStore, singleTarget, startSession } from './stores.ts'

/** Messages are no longer trusted this long after the last heartbeat. */
const LOST_WITHIN_MS = 2_500

// The tests mostly wait, so they run concurrently.
t.jobs = 4

t.test('a change is announced to other replicas with the same prefix, and to no others', async (t) => {
  const { port } = await startRedis(t)
  const one = await redisStore(t, singleTarget(port))
  const other = await redisStore(t, singleTarget(port))
  const stranger = await redisStore(t, singleTarget(port), { prefix: 'other:' })
  const reported: RecordKey[] = []
  const reportedToStranger: RecordKey[] = []
  other.store.onChange((key) => void reported.push(key))
  stranger.store.onChange((key) => void reportedToStranger.push(key))

  const key = await startSession(one)
  const { kind } = await one.store.end(key)
  t.equal(kind, 'ended')
  t.ok((await until('it is reported', () => reported.includes(key))) < 200)
  const marker = await startSession(stranger)
  await stranger.store.end(marker)
  await until('the marker is reported', () => reportedToStranger.includes(marker))
  t.strictSame(reportedToStranger, [marker])
  t.strictSame(reported, [key])
})

t.test('messages are not trusted before a heartbeat proves that they arrive', async (t) => {
  const { port } = await startRedis(t)
  const store = openRedisStore(t, singleTarget(port))
  let lost = 0
  store.health.onLive((live) => {
    if (!live) lost += 1
  })
  t.equal(store.health.isLive(), false)
  await until('they arrive', () => store.health.isLive())
  t.equal(lost, 0, 'messages that never arrived are no loss')
})

t.test('a forged heartbeat from the future proves nothing', async (t) => {
  const redis = await startRedis(t)
  const { store } = await redisStore(t, singleTarget(redis.port))
  const channels = (await redis.cli('PUBSUB', 'CHANNELS')).split('\n')
  const beats = channels.find((name) => name.includes(':beat:'))!
  t.equal(await redis.cli('PUBLISH', beats, '1e300'), '1')
  redis.pause()
  t.teardown(() => redis.resume())
  await until('messages are no longer trusted', () => !store.health.isLive(), LOST_WITHIN_MS)
})

t.test(
  'a subscriber reports a reset connection at once, reconnects and receives messages again',
  async (t) => {
    const redis = await startRedis(t)
    const made = await redisStore(t, singleTarget(redis.port))
    const { store } = made
    const reported: RecordKey[] = []
    store.onChange((key) => void reported.push(key))
    let lost = 0
    let arrivedMeanwhile = 0
    store.health.onLive((live) => {
      if (live) return
      lost += 1
      if (store.health.isLive()) arrivedMeanwhile += 1
    })
    for (const round of [1, 2]) {
      await redis.cli('client', 'kill', 'type', 'pubsub')
      await until('the loss is reported', () => lost === round, LOST_WITHIN_MS)
      await until('messages arrive again', () => store.health.isLive())
      const key = await startSession(made)
      await store.end(key)
      await until('the change is reported', () => reported.includes(key))
    }
    t.equal(arrivedMeanwhile, 0, 'messages are not trusted while their loss is reported')
  },
)

t.test(
  'in a Cluster a subscriber reports a reset connection at once, reconnects and receives messages again',
  async (t) => {
    const redis = await startClusterOfOne(t)
    const made = await redisStore(t, clusterTarget(redis.port))
    const { store } = made
    const reported: RecordKey[] = []
    store.onChange((key) => void reported.push(key))
    let lost = 0
    store.health.onLive((live) => {
      if (!live) lost += 1
    })
    await redis.cli('client', 'kill', 'type', 'pubsub')
    await until('the loss is reported', () => lost === 1, 1_000)
    await until('messages arrive again', () => store.health.isLive())
    const key = await startSession(made)
    await store.end(key)
    await until('the change is reported', () => reported.includes(key))
  },
)

t.test('messages that stop on an open connection are no longer trusted after 2.5 seconds', async (t) => {
  const redis = await startRedis(t)
  const { store } = await redisStore(t, singleTarget(redis.port))
  let lost = 0
  store.health.onLive((live) => {
    if (!live) lost += 1
  })
  await redis.cli('client', 'pause', '60000', 'all')
  await until('messages are no longer trusted', () => !store.health.isLive(), LOST_WITHIN_MS)
  await until('the loss is reported', () => lost > 0, 1_000)
  await redis.kill()
  await redis.restart()
  await until('messages arrive again', () => store.health.isLive())
  t.equal(lost, 1, 'one loss is reported once')
})

t.test('a subscriber without permission receives messages again once it has permission', async (t) => {
  const redis = await startRedis(t)
  const made = await redisStore(t, singleTarget(redis.port))
  const { store } = made
  await redis.cli('acl', 'setuser', 'default', 'resetchannels')
  await redis.cli('client', 'kill', 'type', 'pubsub')
  await until('messages are no longer trusted', () => !store.health.isLive(), LOST_WITHIN_MS)
  await until('it was refused', async () => (await redis.cli('acl', 'log')).includes('channel'))
  await redis.cli('acl', 'setuser', 'default', 'allchannels')
  await until('messages arrive again', () => store.health.isLive())
})

t.test('a subscriber whose connection breaks while it resubscribes receives messages again', async (t) => {
  const redis = await startRedis(t)
  const proxy = await startProxy(t, redis.port)
  const { store } = await redisStore(t, singleTarget(proxy.port))
  proxy.cutAt('subscribe', 3)
  await redis.cli('client', 'kill', 'type', 'pubsub')
  await until('it was reset three times', () => proxy.cutsLeft() === 0)
  await until('messages arrive again', () => store.health.isLive())
})

t.test('a subscriber replaces a connection that silently died', async (t) => {
  const redis = await startRedis(t)
  const proxy = await startProxy(t, redis.port)
  const made = await redisStore(t, singleTarget(proxy.port))
  const reported: RecordKey[] = []
  made.store.onChange((key) => void reported.push(key))
  proxy.freezeOpen()
  await until('messages are no longer trusted', () => !made.store.health.isLive(), LOST_WITHIN_MS)
  await until('messages arrive again', () => made.store.health.isLive())
  const key = await startSession(made)
  await made.store.end(key)
  await until('the change is reported', () => reported.includes(key))
})

t.test('a closed store leaves no key and no connection in Redis', async (t) => {
  const redis = await startRedis(t)
  const { store } = await redisStore(t, singleTarget(redis.port))
  t.match(await redis.cli('client', 'list'), /name=bff-commands/)
  t.match(await redis.cli('pubsub', 'channels'), `${PREFIX}changed`)
  await store.close()
  await until('no connection is left', async () => !(await redis.cli('client', 'list')).includes('name=bff-'))
  t.equal(await redis.cli('pubsub', 'channels'), '')
})

t.test('over a slow network messages are no longer trusted within a second after it is cut', async (t) => {
  const redis = await startRedis(t)
  // At other moments between two heartbeats.
  const cuts = [0, 90, 180, 270].map(async (restMs) => {
    const proxy = await startProxy(t, redis.port)
    const { store } = await redisStore(t, singleTarget(proxy.port))
    proxy.delayAnswers(400)
    await until('messages arrive', () => store.health.isLive())
    await elapsed(1_000 + restMs)
    proxy.freeze()
    // Heartbeats in flight still arrive.
    const took = await until('messages are no longer trusted', () => !store.health.isLive(), LOST_WITHIN_MS)
    t.ok(took < 1_000, `after ${Math.round(took)} ms`)
    proxy.thaw()
    await until('messages arrive again', () => store.health.isLive())
  })
  await Promise.all(cuts)
})
