import t from 'tap'
import { startRedis } from '../helpers/redis.ts'
import { storeContract } from './contract.ts'
import { redisStore, singleTarget } from './stores.ts'

t.test('the Redis store passes the store contract', async (t) => {
  await storeContract(t, async (t) => redisStore(t, singleTarget((await startRedis(t)).port)))
})
