import t from 'tap'
import { createLog } from '../../src/log.ts'
import { createOpsServer } from '../../src/ops/routes.ts'
import { startRedis } from '../helpers/redis.ts'
import { type Bff, signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'
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

t.test('a process without its store is alive but not ready, and says why', { timeout: 60_000 }, async (t) => {
  const redis = await startRedis(t)
  const bff = await startBff(t, await startSandbox(t), { REDIS_URL: redis.url })
  await untilReady(bff)
  await redis.stop()
  const down = await untilStatus(bff, 503)
  t.match(down, { status: 'not ready', missing: [/store/] })
  t.equal((await health(bff, '/livez')).status, 200)
  await redis.restart()
  await untilStatus(bff, 200)
  redis.pause()
  t.teardown(() => redis.resume())
  t.match((await untilStatus(bff, 503)).missing, [/store/])
  t.equal((await health(bff, '/livez')).status, 200, 'liveness does not ask the store')
  redis.resume()
  t.strictSame((await untilStatus(bff, 200)).missing, [])

  await t.test('a Redis that refuses writes is neither ready nor up, although it can be read', async (t) => {
    const storeUp = async (): Promise<string | undefined> =>
      /^bff_store_up (\d)$/m.exec(await (await fetch(`${bff.opsUrl}/metrics`)).text())?.[1]
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
})

t.test(
  'a process that started without its store becomes ready when the store is up',
  { timeout: 60_000 },
  async (t) => {
    const redis = await startRedis(t)
    await redis.stop()
    const bff = await startBff(t, await startSandbox(t), { REDIS_URL: redis.url })
    const { missing } = await untilStatus(bff, 503)
    t.strictSame(missing, ['the store does not answer'])
    t.equal((await health(bff, '/livez')).status, 200)
    await redis.restart()
    t.strictSame((await untilStatus(bff, 200)).missing, [])
  },
)

t.test(
  'a process with the embedded store is ready until the stop signal, and then still serves',
  async (t) => {
    const sandbox = await startSandbox(t)
    const bff = await startBff(t, sandbox)
    const browser = bff.browser()
    await signIn(browser, sandbox)
    t.strictSame(await health(bff, '/readyz'), { status: 200, body: { status: 'ready', missing: [] } })
    bff.app.readiness.announceStop()
    t.match(await health(bff, '/readyz'), { status: 503, body: { missing: [/stopping/] } })
    t.equal((await health(bff, '/livez')).status, 200)
    t.equal((await browser.fetch('/flux/a')).status, 200)
  },
)

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
