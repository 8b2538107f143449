import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { get, type IncomingMessage } from 'node:http'
import { connect } from 'node:net'
import t from 'tap'
import { createBrowser } from '../helpers/browser.ts'
import { portOfUrl } from '../helpers/ports.ts'
import { startRedis } from '../helpers/redis.ts'
import {
  runServer,
  SERVER_ENV,
  type ServerProcess,
  startBuilt,
  startServer,
} from '../helpers/server-process.ts'
import { platformEnv, signIn, startSandbox } from '../helpers/system.ts'
import { elapsed, until } from '../helpers/wait.ts'

// Most of the time is spent waiting for processes.
t.jobs = 2

/** Of all workers so far. */
function workerPids(server: ServerProcess): number[] {
  const lines = server.logs().filter(({ event }) => event === 'worker.listening')
  return [...new Set(lines.map(({ pid }) => Number(pid)))]
}

function childrenOf(pid: number): number[] {
  const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim()
  return text === '' ? [] : text.split(' ').map(Number)
}

/** Whether a worker is past `exec`: stopped before it, it would block its primary. */
function runsItsProgram(pid: number): boolean {
  return readFileSync(`/proc/${pid}/environ`, 'utf8').includes('NODE_UNIQUE_ID=')
}

/** The response to a GET on a connection of its own. */
function askOnce(url: string, headers: Record<string, string>): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    get(url, { headers, agent: false }, (response) => resolve(response.resume())).on('error', reject)
  })
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

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
  await until('ready', async () => (await ready()) === 200)
  t.equal(workerPids(server).length, 2, 'two processes besides the primary')

  for (let count = 0; count < 20; count += 1) await (await fetch(`${server.url}/auth/session`)).text()
  const metrics = await (await fetch(`${server.opsUrl}/metrics`)).text()
  const counted =
    /bff_http_request_duration_seconds_count\{route="\/auth\/session",method="GET",status="200"\} (\d+)/
  t.equal(counted.exec(metrics)?.[1], '20', 'the metrics of all workers are summed')

  t.match(metrics, '# TYPE bff_store_retries_total counter')

  const served = new Set<string>()
  await until('both workers have warned', async () => {
    const { headers } = await askOnce(`${server.url}/auth/login`, { 'x-forwarded-for': '192.0.2.1' })
    served.add(String(headers['x-request-id']).split('-')[0]!)
    return served.size === 2
  })
  // The primary has read what a worker sent before its reply.
  t.equal(await ready(), 200)
  for (const event of ['proxy.untrusted', 'login.other_host']) {
    await until(event, () => server.logs().some((line) => line.event === event))
    t.equal(server.logs().filter((line) => line.event === event).length, 1, `${event} is logged once`)
  }

  process.kill(workerPids(server)[0]!, 'SIGKILL')
  const known = workerPids(server)
  let starting: number | undefined
  await until('a new process', () => {
    starting = childrenOf(server.pid).find((pid) => !known.includes(pid) && runsItsProgram(pid))
    return starting !== undefined
  })
  process.kill(starting!, 'SIGSTOP')
  const askedAt = performance.now()
  const { missing } = (await (await fetch(`${server.opsUrl}/readyz`)).json()) as { missing: string[] }
  t.strictSame(missing, ['a worker is starting'])
  t.ok(performance.now() - askedAt < 1_500, '/readyz does not wait for a worker that starts')
  const scrape = fetch(`${server.opsUrl}/metrics`)
  process.kill(starting!, 'SIGCONT')
  t.equal((await scrape).status, 200, 'a scrape waits for a worker that starts')
  await until('a new worker', () => workerPids(server).length === 3)
  await until('ready again', async () => (await ready()) === 200)
  t.equal((await fetch(`${server.url}/auth/session`)).status, 200)
  t.equal(await server.stop('SIGTERM'), 0, 'one signal stops them all')
})

t.test('a stop during the start of workers succeeds, and metrics report a hanging worker', async (t) => {
  const redis = await startRedis(t)
  const shared = { SESSION_STORE: 'redis', REDIS_URL: redis.url, WORKERS: '2' }
  const starting = startBuilt(t, 'main.js', {
    ...SERVER_ENV,
    ...shared,
    PORT: '0',
    OPS_PORT: '0',
    PUBLIC_URL: 'http://localhost',
  })
  await until('there are workers', () => childrenOf(starting.pid).length === 2)
  t.strictSame(await starting.stop('SIGTERM'), { code: 0, signal: null })

  const server = await startServer(t, shared)
  await until('both workers', () => workerPids(server).length === 2)
  const [hanging] = workerPids(server)
  process.kill(hanging!, 'SIGSTOP')
  t.teardown(() => isAlive(hanging!) && process.kill(hanging!, 'SIGCONT'))
  const metrics = await fetch(`${server.opsUrl}/metrics`)
  t.equal(metrics.status, 503)
  t.equal(await metrics.text(), 'A worker does not answer.\n')
  process.kill(hanging!, 'SIGCONT')
  t.equal(await server.stop('SIGTERM'), 0)
})

t.test('the metrics of several workers say that the queue is not known, when Redis is away', async (t) => {
  const redis = await startRedis(t)
  const server = await startServer(t, { SESSION_STORE: undefined, REDIS_URL: redis.url, WORKERS: '2' })
  await until('both workers', () => workerPids(server).length === 2)
  await redis.stop()
  const metrics = await (await fetch(`${server.opsUrl}/metrics`)).text()
  t.match(metrics, /^bff_refresh_due Nan$/m)
  t.match(metrics, /^bff_store_up 0$/m)
})

t.test('no scrape gets an empty page while all workers are dead', async (t) => {
  const redis = await startRedis(t)
  const server = await startServer(t, { SESSION_STORE: undefined, REDIS_URL: redis.url, WORKERS: '2' })
  await until('both workers', () => workerPids(server).length === 2)
  for (const pid of workerPids(server)) process.kill(pid, 'SIGKILL')
  const scrapes: Promise<{ status: number; text: string }>[] = []
  for (let count = 0; count < 20; count += 1) {
    const scrape = fetch(`${server.opsUrl}/metrics`)
    scrapes.push(scrape.then(async (answer) => ({ status: answer.status, text: await answer.text() })))
    await elapsed(10)
  }
  for (const { status, text } of await Promise.all(scrapes))
    t.ok(status === 503 || text.includes('bff_build_info'), `${status}, ${text.length} bytes`)
  await until('new workers', () => workerPids(server).length === 4)
  t.equal(await server.stop('SIGTERM'), 0)
})

t.test('workers whose primary is killed finish what is open and end', async (t) => {
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t)
  const server = await startServer(t, {
    SESSION_STORE: undefined,
    REDIS_URL: redis.url,
    WORKERS: '2',
    ...platformEnv(sandbox),
  })
  await until('both workers', () => workerPids(server).length === 2)
  const pids = workerPids(server)
  t.teardown(() => {
    for (const pid of pids.filter(isAlive)) process.kill(pid, 'SIGKILL')
  })
  const browser = createBrowser(server.publicUrl)
  await signIn(browser, sandbox)
  const gate = sandbox.hold('resource', { only: 'GetFlux' })
  const open = browser.fetch('/flux/temperature')
  await gate.arrived

  server.send('SIGKILL')
  const runs = (): number => pids.filter(isAlive).length
  await until('the end of the idle worker', () => runs() === 1)
  gate.release()
  t.equal((await open).status, 200, 'the other one answers first')
  await until('the end of the other', () => runs() === 0)
})

t.test('credentials that the store refuses end the process, with and without workers', async (t) => {
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
    t.match(ended.stderr, /refused the credentials/)
    t.notMatch(ended.stderr, /wrong/, 'and the password is not printed')
  }
})

t.test('a scrape that waits while a worker is killed does not end the primary', async (t) => {
  const redis = await startRedis(t)
  const server = await startServer(t, { SESSION_STORE: undefined, REDIS_URL: redis.url, WORKERS: '2' })
  await until('both workers', () => workerPids(server).length === 2)
  const scrape = connect(portOfUrl(server.opsUrl!), '127.0.0.1').on('error', () => {})
  t.teardown(() => scrape.destroy())
  scrape.write('GET /livez HTTP/1.1\r\nHost: a\r\n\r\n')
  await once(scrape, 'data')
  server.send('SIGSTOP')
  scrape.write('GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n')
  await elapsed(50)
  process.kill(workerPids(server)[0]!, 'SIGKILL')
  await elapsed(50)
  server.send('SIGCONT')
  await until('it is replaced', () => workerPids(server).length === 3)
  t.equal(await server.stop('SIGTERM'), 0)
})

t.test('a worker that Redis refuses at its replacement leaves the others alone', async (t) => {
  const redis = await startRedis(t)
  const change = (...rules: string[]) => redis.cli('acl', 'setuser', 'app', ...rules)
  await change('on', '>one', '~*', '&*', '+@all')
  const url = `redis://app:one@127.0.0.1:${redis.port}`
  const server = await startServer(t, { SESSION_STORE: undefined, REDIS_URL: url, WORKERS: '2' })
  await until('both workers', () => workerPids(server).length === 2)
  // Connections that stand stay authenticated.
  await change('resetpass', '>two')
  process.kill(workerPids(server)[0]!, 'SIGKILL')
  await until('its successors are refused', () => {
    const deaths = server.logs().filter(({ event }) => event === 'worker.died')
    return deaths.some(({ code }) => code === 78)
  })
  t.equal((await fetch(`${server.url}/auth/session`)).status, 200, 'the other one serves')
  await change('>one')
  await until('a new worker', () => workerPids(server).length === 3)
  t.equal(await server.stop('SIGTERM'), 0)
})

t.test('a worker that hangs does not hold up the stop', async (t) => {
  const redis = await startRedis(t)
  const env = { SESSION_STORE: undefined, REDIS_URL: redis.url, WORKERS: '2', SHUTDOWN_SECONDS: '1' }
  const server = await startServer(t, env)
  await until('both workers', () => workerPids(server).length === 2)
  const [hanging] = workerPids(server)
  process.kill(hanging!, 'SIGSTOP')
  t.equal(await server.stop('SIGTERM'), 1)
  t.notOk(isAlive(hanging!))
  t.match(server.logs().at(-1), { event: 'stop.incomplete' })
})
