import t from 'tap'
import type { StoreUnavailable } from '../../../src/vault/store/store.ts'
import { startRedis } from '../../helpers/redis.ts'
import { startClusterOfOne } from '../../helpers/redis-groups.ts'
import { until } from '../../helpers/wait.ts'
import { clusterTarget, redisStore, singleTarget } from './stores.ts'

t.test('the error of a command without a connection says why there is none', async (t) => {
  // The client of a Cluster does not say which connection failed.
  for (const [server, target, expected] of [
    [await startRedis(t), singleTarget, /^not connected to Redis: connect ECONNREFUSED /],
    [await startClusterOfOne(t), clusterTarget, /^not connected to Redis$/],
  ] as const) {
    const { store } = await redisStore(t, target(server.port))
    await server.kill()
    const seen = new Set<string>()
    await until('the error says so', async () => {
      const error: unknown = await store.ping().catch((failure: unknown) => failure)
      const { message } = (error as StoreUnavailable).cause as Error
      seen.add(message)
      return expected.test(message)
    })
    t.strictSame(
      [...seen].filter((message) => /Queue|writeable|isn't ready|is closed\.$/.test(message)),
      [],
    )
    await store.close()
  }
})
