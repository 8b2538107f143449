import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import net from 'node:net'
import { text } from 'node:stream/consumers'
import t, { type Test } from 'tap'
import { cookieHeader, createBrowser } from '../helpers/browser.ts'
import { accepts, listenOnLoopback, portOfUrl } from '../helpers/ports.ts'
import { startRedis } from '../helpers/redis.ts'
import { presentations } from '../helpers/replicas.ts'
import { type Env, type ServerProcess, startServer } from '../helpers/server-process.ts'
import { platformEnv, signInSurely, startSandbox, untilReady } from '../helpers/system.ts'
import { unlessHeldUp, until } from '../helpers/wait.ts'
import { startCollector } from './collector.ts'

// Most of the time is spent waiting.
t.jobs = 3

/** A server in front of a sandbox, and a browser that has signed in. */
async function start(t: Test, env: Env, tokenLifeSeconds = 3_600) {
  const sandbox = await startSandbox(t, { tokenLifeSeconds })
  const all = { ...platformEnv(sandbox), ...env }
  const server = await startServer(t, all)
  const browser = createBrowser(server.publicUrl)
  await signInSurely(browser, sandbox)
  return { sandbox, server, browser, env: all }
}

async function logged(server: ServerProcess, event: string): Promise<void> {
  await until(event, () => server.logs().some((line) => line.event === event))
}

t.test('an open request is answered, and no idle connection delays the stop', async (t) => {
  const { sandbox, server, browser } = await start(t, { SHUTDOWN_SECONDS: '3600' })
  const gate = sandbox.hold('resource')
  // It never sends a request.
  const idle = net.connect(portOfUrl(server.url), '127.0.0.1').on('error', () => {})
  t.teardown(() => idle.destroy())
  await once(idle, 'connect')
  // Its connection is kept after the response.
  const headers = { cookie: cookieHeader(browser), 'sec-fetch-site': 'same-origin' }
  const answer = fetch(`${server.url}/flux/temperature`, { headers })
  await gate.arrived
  server.send('SIGTERM')
  await logged(server, 'stopping')
  gate.release()
  t.match(await (await answer).json(), { wType: 'Flux' })
  t.equal((await server.ended).code, 0)
})

for (const [second, code] of [
  ['SIGTERM', 143],
  ['SIGINT', 130],
] as const) {
  t.test(`a ${second} during the stop ends the process at once with ${code}`, async (t) => {
    // Below `npm test` and its like, which send no copy of a signal.
    const env = { SHUTDOWN_SECONDS: '3600', npm_lifecycle_event: 'test' }
    const { sandbox, server, browser } = await start(t, env)
    const gate = sandbox.hold('resource')
    const open = browser.fetch('/flux/temperature').catch(() => null)
    await gate.arrived
    server.send('SIGTERM')
    await logged(server, 'stopping')
    // The gate stays closed: only the second signal can end this process.
    server.send(second)
    t.strictSame(await server.ended, { code, signal: null })
    t.match(server.logs().at(-1), { event: 'stop.incomplete', level: 'error', msg: new RegExp(second) })
    gate.release()
    t.equal(await open, null, 'its request gets no response')
  })
}

t.test('a request that is open at the end of a stop gets 503 shutting_down and its log line', async (t) => {
  const { sandbox, server, browser } = await start(t, { SHUTDOWN_SECONDS: '1', ACCESS_LOG: 'errors' })
  const gate = sandbox.hold('resource')
  const cookie = cookieHeader(browser)
  const ask = async (path: string, init: RequestInit, own: Record<string, string> = {}) => {
    const headers = { cookie, 'sec-fetch-site': 'same-origin', ...own }
    const response = await fetch(`${server.url}${path}`, { ...init, headers })
    return { response, body: await response.text() }
  }
  const put = { method: 'PUT', body: '{"name":"x"}' }
  const answers = [ask('/site/1', put, { 'content-type': 'application/json' }), ask('/flux/read', {})]
  const raw = (request: string, ...more: string[]) => {
    const socket = net.connect(portOfUrl(server.url), '127.0.0.1').on('error', () => {})
    t.teardown(() => socket.destroy())
    const fields = ['Host: a', `Cookie: ${cookie}`, ...more]
    socket.write(`${request} HTTP/1.1\r\n${fields.join('\r\n')}\r\n\r\n`)
    return socket
  }
  const uploads = raw(
    'PUT /site/2',
    ...['Sec-Fetch-Site: same-origin', 'Content-Type: application/json', 'Content-Length: 99'],
    'Expect: 100-continue',
  )
  await once(uploads, 'data')
  uploads.write('{')
  const half = text(uploads)
  const opened = text(raw('GET /flux/opened', 'Sec-Fetch-Site: none', 'Sec-Fetch-Mode: navigate'))
  await gate.arrivals(3)
  t.equal(await server.stop('SIGTERM'), 0)
  const [update, read] = await Promise.all(answers)
  for (const { response } of [update!, read!]) {
    t.equal(response.status, 503)
    t.equal(response.headers.get('connection'), 'close')
  }
  t.match(JSON.parse(update!.body), { code: 'shutting_down', detail: /may have been done/ })
  t.match(JSON.parse(read!.body), { code: 'shutting_down' })
  t.match(await opened, /^HTTP\/1\.1 503 [\s\S]*<!doctype html>/i)
  t.match(await half, /^HTTP\/1\.1 503 [\s\S]*"shutting_down"/)
  const lines = server.logs().filter(({ event }) => event === 'request')
  t.strictSame(
    lines.map(({ code }) => code),
    Array(4).fill('shutting_down'),
  )
  t.strictSame(
    lines.slice(0, 2).map(({ method }) => method),
    ['PUT', 'PUT'],
    'updates first',
  )
  t.match(server.logs().at(-1), { event: 'stop.incomplete', level: 'warn', unsaved: 0 })
  gate.release()
})

t.test('a response that a late stop cuts off has its line and its span', async (t) => {
  const collector = await startCollector(t)
  const upstream = createServer((_, response) => {
    response.writeHead(200, { 'content-type': 'text/csv', 'content-length': '9' }).write('half')
  })
  const { server, browser } = await start(t, {
    BASE_URL: `http://127.0.0.1:${await listenOnLoopback(t, upstream)}`,
    ...{ SHUTDOWN_SECONDS: '1', ACCESS_LOG: 'all' },
    ...{ OTEL_EXPORTER_OTLP_ENDPOINT: collector.url, OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json' },
    // Only the stop exports.
    OTEL_BSP_SCHEDULE_DELAY: '3600000',
  })
  const headers = { cookie: cookieHeader(browser), 'sec-fetch-site': 'same-origin' }
  const answer = await fetch(`${server.url}/flux/cut`, { headers })
  t.equal(answer.status, 200)
  t.equal(await server.stop('SIGTERM'), 0)
  await t.rejects(answer.text())
  const line = server.logs().find(({ path }) => path === '/flux/cut')
  t.match(line, { event: 'request', status: 200, complete: false })
  t.match(server.logs().at(-1), { event: 'stop.incomplete' })
  const spans = collector.spans().filter(({ traceId }) => traceId === line?.traceId)
  t.strictSame(spans.map(({ name }) => name).sort(), ['GET /flux/:fluxId', 'GetFlux'])
})

t.test('the last request of a stop has its line, also if its browser leaves', async (t) => {
  const { server, browser } = await start(t, { SHUTDOWN_SECONDS: '3600', ACCESS_LOG: 'all' })
  const socket = net.connect(portOfUrl(server.url), '127.0.0.1').on('error', () => {})
  const fields = ['Host: a', 'Sec-Fetch-Site: same-origin', `Cookie: ${cookieHeader(browser)}`]
  const body = ['Content-Type: application/json', 'Content-Length: 99', 'Expect: 100-continue']
  socket.write(`PUT /site/7 HTTP/1.1\r\n${[...fields, ...body].join('\r\n')}\r\n\r\n`)
  await once(socket, 'data')
  socket.write('{')
  server.send('SIGTERM')
  await logged(server, 'stopping')
  await until('the port is closed', async () => !(await accepts(portOfUrl(server.url))))
  socket.destroy()
  t.equal((await server.ended).code, 0)
  t.match(
    server.logs().find(({ path }) => path === '/site/7'),
    { event: 'request', code: 'client_gone' },
  )
})

t.test('an update that waits for its turn at the end of a stop gets 503, and was not sent', async (t) => {
  const { sandbox, server, browser } = await start(t, { SHUTDOWN_SECONDS: '1' })
  const gate = sandbox.hold('resource')
  const update = { method: 'PUT', headers: { 'content-type': 'application/json' }, body: '{"name":"x"}' }
  // A session has 32 at once.
  const answers = Array.from({ length: 33 }, () => browser.fetch('/site/1', update))
  await gate.arrivals(32)
  t.equal(await server.stop('SIGTERM'), 0)
  for (const answer of await Promise.all(answers)) t.match(answer.json(), { code: 'shutting_down' })
  gate.release()
  t.equal(sandbox.journal.entries({ endpoint: 'resource' }).length, 32)
})

t.test(
  'a request that waits for new tokens when the stop cuts the token request off gets 503 shutting_down',
  async (t) => {
    const { sandbox, server, browser } = await start(t, { SHUTDOWN_SECONDS: '3' })
    sandbox.expireAccessTokens()
    const gate = sandbox.hold('token', { only: 'refresh_token' })
    const answer = browser.fetch('/flux/temperature')
    await gate.arrived
    t.equal(await server.stop('SIGTERM'), 0)
    t.match((await answer).json(), { status: 503, code: 'shutting_down' })
    gate.release()
  },
)

t.test('a stop exits with 1 if refreshed tokens could not be stored', async (t) => {
  const redis = await startRedis(t)
  const env = { SESSION_STORE: 'redis', REDIS_URL: redis.url, SHUTDOWN_SECONDS: '1' }
  const { sandbox, server } = await start(t, env, 6)
  const gate = sandbox.hold('token', { point: 'after', only: 'refresh_token' })
  await gate.arrived
  await redis.cli('config', 'set', 'maxmemory', '1')
  gate.release()
  await logged(server, 'refresh.unsaved')
  t.equal(await server.stop('SIGTERM'), 1)
  t.match(server.logs().at(-1), { event: 'stop.incomplete', level: 'error', unsaved: 1 })
})

t.test('a token response that is already late is stored before the process ends', async (t) => {
  const redis = await startRedis(t)
  const { sandbox, server, browser, env } = await start(
    t,
    { SESSION_STORE: 'redis', REDIS_URL: redis.url, SHUTDOWN_SECONDS: '15', TOKEN_TIMEOUT_MS: '3000' },
    6,
  )
  const gate = sandbox.hold('token', { point: 'after', only: 'refresh_token' })
  await gate.arrived
  await logged(server, 'refresh.unanswered')
  server.send('SIGTERM')
  await logged(server, 'stopping')
  gate.release()
  t.equal((await server.ended).code, 0)

  const next = await startServer(t, { ...env, PUBLIC_URL: server.publicUrl })
  await untilReady(next)
  const headers = { cookie: cookieHeader(browser), 'sec-fetch-site': 'same-origin' }
  // On a slow machine the stored tokens may have to be refreshed first.
  await until('a good answer', async () => (await fetch(`${next.url}/flux/temperature`, { headers })).ok)
  const [first, ...others] = presentations(sandbox)
  t.ok(first)
  for (const { form } of others) t.not(form?.refresh_token, first!.form?.refresh_token, 'presented once')
  t.equal(sandbox.counters().reuseDetected, 0)
})

t.test('a stop waits for a hanging revocation, but not until SHUTDOWN_SECONDS have passed', async (t) => {
  const silent = net.createServer((socket) => void socket.on('error', () => {}))
  const port = await listenOnLoopback(t, silent)
  const env = { SHUTDOWN_SECONDS: '9', OAUTH_REVOCATION_URL: `http://127.0.0.1:${port}/revoke` }
  const took = await unlessHeldUp(200, async () => {
    const { server, browser } = await start(t, env)
    const { status } = await browser.fetch('/auth/logout', { method: 'POST' })
    const begin = performance.now()
    const code = await server.stop('SIGTERM')
    assert.deepEqual([status, code], [204, 0], 'a stop that takes longer exits with 1')
    return performance.now() - begin
  })
  // Half of the last three seconds is kept for closing.
  t.ok(took > 7_000)
})
