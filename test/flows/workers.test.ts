import t from 'tap'
import { runServer, SERVER_ENV, startServer } from '../helpers/processes.ts'
import { startRedis } from '../helpers/redis.ts'

t.test('two workers serve one port, are replaced when they die, and stop together', async (t) => {
  const redis = await startRedis(t)
  const server = await startServer(t, {
    SESSION_STORE: undefined,
    REDIS_URL: redis.url,
    WORKERS: '2',
    WAC: 'DEMO',
  })

  async function ready(): Promise<number> {
    const answer = await fetch(`${server.opsUrl}/readyz`)
    await answer.text()
    return answer.status
  }
  async function until(holds: () => Promise<boolean>, what: string): Promise<void> {
    const deadline = Date.now() + 10_000
    while (!(await holds())) {
      if (Date.now() > deadline) throw new Error(`not within ten seconds: ${what}`)
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
  }
  const workerPids = (): number[] =>
    server
      .logs()
      .filter((line) => line.msg?.startsWith('Server listening'))
      .map((line) => Number(line.pid))

  await until(async () => (await ready()) === 200, 'ready')
  t.equal(new Set(workerPids()).size, 2, 'two processes besides the primary')

  for (let count = 0; count < 20; count += 1) await (await fetch(`${server.url}/auth/session`)).text()
  const metrics = await (await fetch(`${server.opsUrl}/metrics`)).text()
  const counted =
    /bff_http_request_duration_seconds_count\{route="\/auth\/session",method="GET",status="200"\} (\d+)/
  t.equal(counted.exec(metrics)?.[1], '20', 'the metrics of all workers are summed')

  process.kill(workerPids()[0]!, 'SIGKILL')
  await until(async () => new Set(workerPids()).size === 3, 'a new worker')
  await until(async () => (await ready()) === 200, 'ready again')
  t.equal((await fetch(`${server.url}/auth/session`)).status, 200)
  t.equal(await server.stop('SIGTERM'), 0, 'one signal stops them all')
})

t.test('credentials that the store refuses end the process, workers or not', async (t) => {
  const redis = await startRedis(t, { password: 'right' })
  const REDIS_URL = redis.url.replace('right', 'wrong')
  for (const WORKERS of ['1', '2']) {
    const ports = { PORT: '0', OPS_PORT: '0', PUBLIC_URL: 'http://localhost:3000' }
    const ended = await runServer(t, {
      ...SERVER_ENV,
      ...ports,
      SESSION_STORE: undefined,
      REDIS_URL,
      WORKERS,
    })
    t.equal(ended.code, 1, `WORKERS=${WORKERS}`)
    t.match(ended.stderr, /refuses our credentials/)
    t.notMatch(ended.stderr, /wrong/, 'and the password is not printed')
  }
})
