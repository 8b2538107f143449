import t from 'tap'
import type { RedisTarget } from '../../src/config/redis-url.ts'
import type { RecordKey } from '../../src/store/store.ts'
import type { RedisServer } from '../helpers/redis.ts'
import { type RedisCluster, startCluster } from '../helpers/redis-groups.ts'
import { elapsed, timeOf, until } from '../helpers/wait.ts'
import { newKey, redisStore, startSession, type TestStore } from './stores.ts'

// The tests mostly wait, so they run concurrently.
t.jobs = 2

function targetOf({ nodes }: RedisCluster): RedisTarget {
  return {
    kind: 'cluster',
    nodes: nodes.map(({ port }) => ({ host: '127.0.0.1', port })),
    login: { username: null, password: null },
    tls: false,
  }
}

/** Ends a session through one store. Returns the milliseconds until the other store reports it, at most 1,000. */
async function endedAt(one: TestStore, other: TestStore, key: RecordKey): Promise<number> {
  const reported = new Promise<void>((resolve) => {
    other.store.onChange((changed) => {
      if (changed === key) resolve()
    })
  })
  return await timeOf(async () => {
    await one.store.end(key)
    await Promise.race([reported, elapsed(1_000)])
  })
}

async function subscribersAt(node: RedisServer): Promise<number> {
  return (await node.cli('client', 'list', 'type', 'pubsub')).split('name=bff-messages').length - 1
}

async function slotOf(cluster: RedisCluster, key: RecordKey): Promise<number> {
  return Number(await cluster.cli('cluster', 'keyslot', `bff:s:${key}`))
}

/** The node that holds a key of this slot. */
async function ownerOf(cluster: RedisCluster, slot: number): Promise<RedisServer> {
  for (const node of cluster.nodes)
    if ((await node.cli('cluster', 'countkeysinslot', String(slot))) !== '0') return node
  throw new Error('no node has a key in that slot')
}

t.test('a change on any master is announced within 200 ms while the cluster bus is silent', async (t) => {
  const cluster = await startCluster(t, { proxiedBus: true })
  const one = await redisStore(t, targetOf(cluster))
  const other = await redisStore(t, targetOf(cluster))
  const keys = await Promise.all(Array.from({ length: 20 }, () => startSession(one)))
  cluster.silenceBus()
  for (const key of keys) t.ok((await endedAt(one, other, key)) < 200, 'reported')
  t.ok(other.store.health.isLive())
})

t.test('messages are no longer trusted within a second after one master falls silent', async (t) => {
  const cluster = await startCluster(t)
  const { store } = await redisStore(t, targetOf(cluster))
  for (const node of cluster.nodes) {
    node.pause()
    const took = await until('messages are no longer trusted', () => !store.health.isLive(), 2_000)
    t.ok(took < 1_000, `after ${took} ms`)
    node.resume()
    await until('messages arrive again', () => store.health.isLive())
  }
})

t.test('stores subscribe at a new master once it has a slot, and leave when it has none', async (t) => {
  const cluster = await startCluster(t, { proxiedBus: true })
  const one = await redisStore(t, targetOf(cluster))
  const other = await redisStore(t, targetOf(cluster))
  let lost = 0
  other.store.health.onLive((live) => {
    if (!live) lost += 1
  })
  const key = await startSession(one)
  const slot = await slotOf(cluster, key)
  const owner = await ownerOf(cluster, slot)
  const added = await cluster.addMaster()
  const move = await cluster.beginMove(slot, added)
  await move.end()
  // Neither store sends a command on that slot, so no redirect names its new master.
  await until('both subscribe there', async () => (await subscribersAt(added)) === 2, 3_000)
  t.ok(lost >= 1, 'changes may have been missed, so the cache is dropped')
  await until('messages arrive', () => other.store.health.isLive(), 2_000)
  const second = await startSession(one)
  t.ok((await endedAt(one, other, second)) < 200)

  const back = await cluster.beginMove(slot, owner)
  await back.end()
  await until('both have left it', async () => (await subscribersAt(added)) === 0, 3_000)
  await until('messages arrive', () => other.store.health.isLive(), 2_000)

  const again = await cluster.beginMove(slot, added)
  await again.end()
  await until('both subscribe there again', async () => (await subscribersAt(added)) === 2, 3_000)
  for (const { store } of [one, other]) await until('messages arrive', () => store.health.isLive(), 2_000)
  cluster.silenceBus()
  t.ok((await endedAt(one, other, key)) < 200, 'and receive messages that are published only there')
})

t.test(
  'after a failover messages are trusted again once the stores subscribe at the promoted master',
  async (t) => {
    const cluster = await startCluster(t, { replicas: 1 })
    const one = await redisStore(t, targetOf(cluster))
    const other = await redisStore(t, targetOf(cluster))
    let lost = 0
    other.store.health.onLive((live) => {
      if (!live) lost += 1
    })
    const [old] = cluster.nodes
    const id = await old!.cli('cluster', 'myid')
    let replicas = ''
    await until('the master knows its replica', async () => {
      replicas = await old!.cli('cluster', 'replicas', id)
      return replicas.includes('slave')
    })
    const promoted = cluster.nodes.find(({ port }) => replicas.includes(`127.0.0.1:${port}@`))!
    await until('the replica is in sync', async () =>
      (await promoted.cli('info', 'replication')).includes('master_link_status:up'),
    )
    await promoted.cli('cluster', 'failover')
    await until('it is a master', async () => (await promoted.cli('role')).startsWith('master'))
    await until('the subscribers follow', async () => (await subscribersAt(promoted)) === 2, 2_000)
    await until('they leave the demoted one', async () => (await subscribersAt(old!)) === 0, 4_000)
    t.ok(lost >= 1, 'the cache is dropped')
    for (const { store } of [one, other]) await until('messages arrive', () => store.health.isLive(), 10_000)
    for (let count = 0; count < 10; count += 1) {
      t.ok((await endedAt(one, other, await startSession(one))) < 200)
    }

    // Then back, because the promoted master is killed.
    await promoted.kill()
    await until('messages are no longer trusted', () => !other.store.health.isLive(), 2_000)
    await until('its replica has its slots', () => cluster.hasReplaced(promoted))
    const took = await until('messages arrive', () => other.store.health.isLive(), 10_000)
    t.ok(took < 8_000, `after ${took} ms`)
    await until('both subscribe there', async () => (await subscribersAt(old!)) === 2, 2_000)
  },
)

t.test('slots that move between known masters interrupt no messages', async (t) => {
  const cluster = await startCluster(t)
  const one = await redisStore(t, targetOf(cluster))
  let lost = 0
  one.store.health.onLive((live) => {
    if (!live) lost += 1
  })
  for (let count = 0; count < 8; count += 1) {
    const move = await cluster.beginMove(await slotOf(cluster, newKey()))
    await move.end()
  }
  t.ok(one.store.health.isLive())
  t.equal(lost, 0)
})
