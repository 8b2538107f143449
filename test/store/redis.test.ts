import t from 'tap'
import { startRedis } from '../helpers/redis.ts'
import { startClusterOfOne } from '../helpers/redis-groups.ts'
import { storeContract } from './contract.ts'
import { clusterTarget, redisStore, singleTarget } from './stores.ts'

// The tests mostly wait, so they run concurrently.
t.jobs = 2

t.test('the Redis store passes the store contract', async (t) => {
  await storeContract(t, async (t) => redisStore(t, singleTarget((await startRedis(t)).port)))
})

t.test(
  'the Redis store passes the store contract over a Cluster, where a script may use only one slot',
  async (t) => {
    await storeContract(t, async (t) => {
      const { port } = await startClusterOfOne(t)
      return redisStore(t, clusterTarget(port))
    })
  },
)
