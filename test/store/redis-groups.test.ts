import t from 'tap'
import type { RecordKey } from '../../src/store/store.ts'
import { startCluster, startSentinelGroup } from '../helpers/redis-groups.ts'
import { until } from '../helpers/wait.ts'
import { callEveryMethod } from './every-method.ts'
import { clusterTarget, newKey, redisStore, sees, sentinelTarget, startSession } from './stores.ts'
import { refusesEveryMethod } from './unavailable.ts'
import { untilItWorks } from './works.ts'

// The tests mostly wait, so they run concurrently.
t.jobs = 2

t.test('after a Sentinel failover sessions continue at the new master', async (t) => {
  const group = await startSentinelGroup(t)
  const target = sentinelTarget(group.sentinelPorts)
  const one = await redisStore(t, target)
  const other = await redisStore(t, target)
  const key = await startSession(one)
  await sees(t, other, one)
  await until('the replica has the session', async () =>
    (await group.replica.cli('exists', `bff:s:${key}`)).includes('1'),
  )
  await group.master.kill()
  await refusesEveryMethod(t, one.store, newKey())
  await untilItWorks(one.store)
  await untilItWorks(other.store)
  t.equal((await one.store.replaceTokens(key, { gen: 1, tokens: 'sealed-2' })).kind, 'replaced')
  await callEveryMethod(one.store)
  await untilItWorks(other.store)
  await sees(t, other, one)
})

t.test('after the death of a Cluster node its sessions continue at its replica', async (t) => {
  const cluster = await startCluster(t, { replicas: 1 })
  const target = clusterTarget(cluster.nodes[1]!.port)
  const one = await redisStore(t, target)
  const other = await redisStore(t, target)
  const keys: RecordKey[] = []
  for (let i = 0; i < 30; i++) keys.push(await startSession(one))
  for (let i = 0; i < 5; i++) await sees(t, other, one)
  await until('every record is on two nodes', async () => {
    const sizes = await Promise.all(cluster.nodes.map(async (node) => Number(await node.cli('dbsize'))))
    return sizes.reduce((sum, size) => sum + size, 0) >= 60
  })

  // The first three nodes are masters.
  await cluster.nodes[0]!.kill()
  const all = () => Promise.allSettled(keys.map((key) => one.store.touch(key)))
  const answers = await all()
  t.ok(
    answers.some(({ status }) => status === 'fulfilled'),
    'sessions of the other nodes stay available',
  )
  await until('all sessions are available', async () =>
    (await all()).every((answer) => answer.status === 'fulfilled' && answer.value),
  )
  await untilItWorks(other.store)
  for (let i = 0; i < 5; i++) await sees(t, other, one)
  await callEveryMethod(one.store)
})
