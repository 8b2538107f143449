import { Cluster } from 'ioredis'
import t from 'tap'
import { createCommandHealth } from '../../../src/vault/store/redis/health.ts'
import type { StoreUnavailable } from '../../../src/vault/store/store.ts'
import { startRedis } from '../../helpers/redis.ts'
import { startClusterOfOne } from '../../helpers/redis-groups.ts'
import { until } from '../../helpers/wait.ts'
import { clusterTarget, ONE_SERVER, openCommands, redisStore, singleTarget } from './stores.ts'

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

for (const [name, start] of Object.entries(ONE_SERVER)) {
  t.test(`${name}: a connection that is being closed counts as closed`, async (t) => {
    const client = openCommands(t, await start(t))
    const health = createCommandHealth(client)
    await until('it is connected', () => client.status === 'ready')
    t.equal(await client.set('a', '1'), 'OK')
    health.noteSuccess()
    t.equal(health.noteFailure(new Error('a command found no connection'), 'a'), false, 'it is connected')
    for (const node of client instanceof Cluster ? client.nodes() : [client]) {
      node.stream.end()
      t.equal(node.status, 'ready')
    }
    t.equal(health.noteFailure(new Error('a command found no connection'), 'a'), true)
  })
}
