import t from 'tap'
import { createLog } from '../../src/log.ts'
import { createOpsServer } from '../../src/ops/routes.ts'
import { startRedis } from '../helpers/redis.ts'
import { type Bff, metricsOf, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { ask, portOf } from '../http/wire.ts'

async function health(bff: Bff, path: string): Promise<{ status: number; body: Record<string, unknown> }> {
  const response = await fetch(bff.opsUrl + path)
  return { status: response.status, body: (await response.json()) as Record<string, unknown> }
}

async function untilStatus(bff: Bff, status: number): Promise<Record<string, unknown>> {
  let last = await health(bff, '/readyz')
  await until(`/readyz is ${status}`, async () => {
    last = await health(bff, '/readyz')
    return last.status === status
  })
  return last.body
}

t.test('a route of the ops port that fails is a 500 and logged, and the process goes on', async (t) => {
  const lines: string[] = []
  const server = createOpsServer({
    readiness: {
      async missing() {
        throw new Error('unforeseen')
      },
      warnings: () => [],
    },
    metrics: { text: async () => '', contentType: 'text/plain' },
    log: createLog('info', { write: (line) => lines.push(line) }),
  })
  const url = await server.listen({ host: '127.0.0.1', port: 0 })
  t.teardown(() => server.close())
  t.equal((await fetch(`${url}/readyz`)).status, 500)
  t.match(
    lines.map((line) => JSON.parse(line)),
    [{ level: 'error', event: 'ops.failed', path: '/readyz', err: { message: 'unforeseen' } }],
  )
  t.equal((await fetch(`${url}/livez`)).status, 200)
})

t.test('a process whose store does not take writes is alive but not ready, and says why', async (t) => {
  const redis = await startRedis(t)
  await redis.stop()
  const bff = await startBff(t, await startSandbox(t), { REDIS_URL: redis.url })
  const storeUp = async () => /^bff_store_up (\d)$/m.exec(await metricsOf(bff))?.[1]
  const without = await untilStatus(bff, 503)
  t.strictSame(without, { status: 'not ready', missing: ['the store does not answer'] })
  t.equal((await health(bff, '/livez')).status, 200)
  await redis.restart()
  t.strictSame(await untilStatus(bff, 200), { status: 'ready', missing: [] })
  t.equal(await storeUp(), '1')

  await redis.cli('config', 'set', 'maxmemory', '1')
  t.strictSame((await untilStatus(bff, 503)).missing, ['the store takes no writes'])
  // A read that succeeds, as those of browsers do.
  t.equal((await fetch(`${bff.publicUrl}/auth/session`)).status, 200)
  t.equal(await storeUp(), '0')
  await redis.cli('config', 'set', 'maxmemory', '0')
  await untilReady(bff)
  t.equal(await storeUp(), '1')
})

t.test('the public port serves no health or metrics, and the ops port serves nothing else', async (t) => {
  const bff = await startBff(t, await startSandbox(t))
  for (const path of ['/livez', '/readyz', '/metrics'])
    t.equal((await ask(portOf(bff), { target: path })).status, 404, path)
  for (const path of ['/auth/session', '/flux/a', '/'])
    t.equal((await fetch(bff.opsUrl + path)).status, 404, path)

  await t.test('a process whose public port is closed is not ready', async (t) => {
    await new Promise((resolve) => bff.app.server.server.close(resolve))
    t.match(await health(bff, '/readyz'), { status: 503, body: { missing: [/port/] } })
  })
})
