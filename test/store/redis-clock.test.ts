import t from 'tap'
import { startRedis } from '../helpers/redis.ts'
import { until } from '../helpers/wait.ts'
import { redisStore, singleTarget } from './stores.ts'

// Alone in its file: the test changes the clock of the whole process.
t.test('a clock that is set back does not hide a loss of messages', async (t) => {
  const redis = await startRedis(t)
  const { store } = await redisStore(t, singleTarget(redis.port))
  const { now } = Date
  t.teardown(() => {
    Date.now = now
  })
  redis.pause()
  Date.now = () => now() - 3_600_000
  await until('messages are no longer trusted', () => !store.health.isLive())
  redis.resume()
  await until('messages arrive again', () => store.health.isLive())
})
