import t from 'tap'
import { isNoFault } from '../helpers/no-fault.ts'
import { startRedis } from '../helpers/redis.ts'
import { opsStatus, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'

t.test(
  '/auth/ready is 204 while the replica is ready, and 503 with the store away or from the stop signal on',
  async (t) => {
    const redis = await startRedis(t)
    const bff = await startBff(t, await startSandbox(t), { REDIS_URL: redis.url })
    await untilReady(bff)
    const ask = (method = 'GET') => bff.browser().fetch('/auth/ready', { method })
    for (const method of ['GET', 'HEAD']) {
      const { status, headers } = await ask(method)
      t.equal(status, 204)
      t.equal(headers['cache-control'], 'no-store')
    }
    await redis.stop()
    await until('it is not ready', async () => (await opsStatus(bff)) === 503)
    const away = await ask()
    t.match([away.status, away.json()], [503, { code: 'store_unavailable' }])
    bff.app.announceStop()
    const stopping = await ask()
    t.match([stopping.status, stopping.json()], [503, { code: 'shutting_down' }])
    t.equal((await ask('HEAD')).status, 503)
    await isNoFault(t, bff, { path: '/auth/ready', responses: 3 })
  },
)
