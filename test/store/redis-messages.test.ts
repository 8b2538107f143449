import t from 'tap'
import type { RecordKey } from '../../src/store/store.ts'
import { startRedis } from '../helpers/redis.ts'
import { startProxy } from './proxy.ts'
import {
  clusterTarget,
  openRedisStore,
  PREFIX,
  redisStore,
  singleTarget,
  startClusterOfOne,
  startSession,
  until,
  wait,
} from './stores.ts'

/** The longest that messages may be counted on after the last one that came. */
const LOST_WITHIN_MS = 2_500

// Most of the time is spent waiting.
t.jobs = 4

t.test('what one replica changes is told to the other, and under another prefix to nobody', async (t) => {
  const { port } = await startRedis(t)
  const one = await redisStore(t, singleTarget(port))
  const other = await redisStore(t, singleTarget(port))
  const stranger = await redisStore(t, singleTarget(port), { prefix: 'other:' })
  const told: RecordKey[] = []
  const toldToStranger: RecordKey[] = []
  other.store.onChange((key) => void told.push(key))
  stranger.store.onChange((key) => void toldToStranger.push(key))

  const key = await startSession(one)
  const { kind } = await one.store.end(key)
  t.equal(kind, 'ended')
  t.ok((await until('it is reported', () => told.includes(key))) < 200)
  const marker = await startSession(stranger)
  await stranger.store.end(marker)
  await until('the marker is reported', () => toldToStranger.includes(marker))
  t.strictSame(toldToStranger, [marker])
  t.strictSame(told, [key])
})

t.test('messages do not count as arriving before they are proven to', async (t) => {
  const { port } = await startRedis(t)
  const store = openRedisStore(t, singleTarget(port))
  let lost = 0
  store.health.onLive((live) => {
    if (!live) lost += 1
  })
  t.equal(store.health.isLive(), false)
  await until('they arrive', () => store.health.isLive())
  t.equal(lost, 0, 'what never worked is not lost')
})

t.test('a subscriber that is cut off is told at once, comes back, and then hears again', async (t) => {
  const redis = await startRedis(t)
  const made = await redisStore(t, singleTarget(redis.port))
  const { store } = made
  const told: RecordKey[] = []
  store.onChange((key) => void told.push(key))
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
    await until('the change is reported', () => told.includes(key))
  }
  t.equal(arrivedMeanwhile, 0, 'messages do not count as arriving while their loss is told')
})

t.test('a subscriber that is cut off in a Cluster is told at once, comes back and hears again', async (t) => {
  const redis = await startClusterOfOne(t)
  const made = await redisStore(t, clusterTarget(redis.port))
  const { store } = made
  const told: RecordKey[] = []
  store.onChange((key) => void told.push(key))
  let lost = 0
  store.health.onLive((live) => {
    if (!live) lost += 1
  })
  await redis.cli('client', 'kill', 'type', 'pubsub')
  await until('the loss is reported', () => lost === 1, 1_000)
  await until('messages arrive again', () => store.health.isLive())
  const key = await startSession(made)
  await store.end(key)
  await until('the change is reported', () => told.includes(key))
})

t.test('messages that stop coming over an open connection stop counting in 2.5 seconds', async (t) => {
  const redis = await startRedis(t)
  const { store } = await redisStore(t, singleTarget(redis.port))
  let lost = 0
  store.health.onLive((live) => {
    if (!live) lost += 1
  })
  await redis.cli('client', 'pause', '60000', 'all')
  await until('messages stop counting', () => !store.health.isLive(), LOST_WITHIN_MS)
  await until('the loss is reported', () => lost > 0, 1_000)
  await redis.kill()
  await redis.restart()
  await until('messages arrive again', () => store.health.isLive())
  t.equal(lost, 1, 'one loss is told once')
})

t.test('a subscriber that may not subscribe for a while hears again once it may', async (t) => {
  const redis = await startRedis(t)
  const made = await redisStore(t, singleTarget(redis.port))
  const { store } = made
  await redis.cli('acl', 'setuser', 'default', 'resetchannels')
  await redis.cli('client', 'kill', 'type', 'pubsub')
  await until('messages stop counting', () => !store.health.isLive(), LOST_WITHIN_MS)
  await until('it was refused', async () => (await redis.cli('acl', 'log')).includes('channel'))
  await redis.cli('acl', 'setuser', 'default', 'allchannels')
  await until('messages arrive again', () => store.health.isLive())
})

t.test('a subscriber whose connection breaks while it subscribes again hears again', async (t) => {
  const redis = await startRedis(t)
  const proxy = await startProxy(t, redis.port)
  const { store } = await redisStore(t, singleTarget(proxy.port))
  proxy.cutAt('subscribe', 3)
  await redis.cli('client', 'kill', 'type', 'pubsub')
  await until('it was cut three times', () => proxy.cutsLeft() === 0)
  await until('messages arrive again', () => store.health.isLive())
})

t.test('a subscriber whose connection went dead without a word is connected again', async (t) => {
  const redis = await startRedis(t)
  const proxy = await startProxy(t, redis.port)
  const made = await redisStore(t, singleTarget(proxy.port))
  const told: RecordKey[] = []
  made.store.onChange((key) => void told.push(key))
  proxy.freezeOpen()
  await until('messages stop counting', () => !made.store.health.isLive(), LOST_WITHIN_MS)
  await until('messages arrive again', () => made.store.health.isLive())
  const key = await startSession(made)
  await made.store.end(key)
  await until('the change is reported', () => told.includes(key))
})

t.test('nothing is left in Redis, and no connection, when a store is closed', async (t) => {
  const redis = await startRedis(t)
  const { store } = await redisStore(t, singleTarget(redis.port))
  t.match(await redis.cli('client', 'list'), /name=bff-commands/)
  t.match(await redis.cli('pubsub', 'channels'), `${PREFIX}changed`)
  await store.close()
  await until('no connection is left', async () => !(await redis.cli('client', 'list')).includes('name=bff-'))
  t.equal(await redis.cli('pubsub', 'channels'), '')
})

t.test('over a slow network messages stop counting within a second after it is cut', async (t) => {
  const redis = await startRedis(t)
  const proxy = await startProxy(t, redis.port)
  const { store } = await redisStore(t, singleTarget(proxy.port))
  proxy.delayAnswers(400)
  for (const restMs of [0, 90, 180, 270]) {
    await until('messages arrive', () => store.health.isLive())
    await wait(1_000 + restMs)
    proxy.freeze()
    // Heartbeats that are on their way still come back.
    const took = await until('messages stop counting', () => !store.health.isLive(), LOST_WITHIN_MS)
    t.ok(took < 1_000, `after ${Math.round(took)} ms`)
    proxy.thaw()
  }
})
