import t from 'tap'
import { startRedis } from '../../helpers/redis.ts'
import { elapsed } from '../../helpers/wait.ts'
import { openRedisStore, singleTarget } from './stores.ts'

t.test('a store that is closed during TLS handshakes throws nothing', async (t) => {
  const redis = await startRedis(t, { tls: true })
  const target = { ...singleTarget(redis.port), tls: true }
  const thrown: unknown[] = []
  const note = (error: unknown): void => void thrown.push(error)
  process.on('uncaughtException', note)
  t.teardown(() => process.off('uncaughtException', note))
  // At any point of the handshake.
  for (let round = 0; round < 100; round += 1) {
    const store = openRedisStore(t, target)
    await elapsed((round % 20) / 2)
    await store.close()
  }
  await elapsed(700)
  t.strictSame(thrown, [])
})
