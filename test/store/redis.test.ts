import t from 'tap'
import { startRedis } from '../helpers/redis.ts'
import { storeContract } from './contract.ts'
import { clusterTarget, redisStore, singleTarget, startClusterOfOne } from './stores.ts'

// Most of the time is spent waiting.
t.jobs = 2

t.test('the Redis store keeps the promises of a store', async (t) => {
  await storeContract(t, async (t) => redisStore(t, singleTarget((await startRedis(t)).port)))
})

t.test('the Redis store keeps them over a Cluster, where a script may touch one slot only', async (t) => {
  await storeContract(t, async (t) => {
    const { port } = await startClusterOfOne(t)
    return redisStore(t, clusterTarget(port))
  })
})
