import t from 'tap'
import { startRedis } from '../helpers/redis.ts'
import { openRedisStore, singleTarget, wait } from './stores.ts'

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
    await wait((round % 20) / 2)
    await store.close()
  }
  await wait(700)
  t.strictSame(thrown, [])
})
