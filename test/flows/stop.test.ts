import { once } from 'node:events'
import net from 'node:net'
import t from 'tap'
import { createBrowser } from '../helpers/browser.ts'
import { listenOnLoopback, portOfUrl } from '../helpers/ports.ts'
import { startRedis } from '../helpers/redis.ts'
import { presentations } from '../helpers/replicas.ts'
import { startServer } from '../helpers/server-process.ts'
import { platformEnv, signIn, startSandbox } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { readAnswers } from '../http/wire.ts'

// Most of the time is spent waiting.
t.jobs = 3

t.test('a connection without a request does not delay the stop', async (t) => {
  const server = await startServer(t, { SHUTDOWN_SECONDS: '3600' })
  const silent = net.connect(portOfUrl(server.url), '127.0.0.1')
  t.teardown(() => silent.destroy())
  silent.on('error', () => {})
  await once(silent, 'connect')
  t.equal(await server.stop('SIGTERM'), 0)
})

t.test('an open request is answered, and its keep-alive connection does not delay the stop', async (t) => {
  const sandbox = await startSandbox(t)
  const server = await startServer(t, {
    SHUTDOWN_SECONDS: '3600',
    ...platformEnv(sandbox),
  })
  const browser = createBrowser(server.publicUrl)
  await signIn(browser, sandbox)
  const gate = sandbox.hold('resource')
  const socket = net.connect(portOfUrl(server.url), '127.0.0.1')
  t.teardown(() => socket.destroy())
  const cookie = [...browser.cookies].map(([name, { value }]) => `${name}=${value}`).join('; ')
  const request = `GET /flux/temperature HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\nCookie: ${cookie}\r\n\r\n`
  socket.write(request)
  const chunks: Buffer[] = []
  socket.on('data', (chunk: Buffer) => chunks.push(chunk))
  await gate.arrived
  server.send('SIGTERM')
  await until('it stops', () => server.logs().some((line) => line.event === 'stopping'))
  gate.release()
  t.equal((await server.ended).code, 0)
  const { answers } = readAnswers(portOfUrl(server.url), request, Buffer.concat(chunks))
  t.match(answers, [{ status: 200, body: /"wType":"Flux"/ }])
})

t.test('a second stop signal ends the process at once with 128 plus its number', async (t) => {
  for (const [second, code] of [
    ['SIGTERM', 143],
    ['SIGINT', 130],
  ] as const) {
    const sandbox = await startSandbox(t)
    const server = await startServer(t, { SHUTDOWN_SECONDS: '3600', ...platformEnv(sandbox) })
    const browser = createBrowser(server.publicUrl)
    await signIn(browser, sandbox)
    const gate = sandbox.hold('resource')
    const open = browser.fetch('/flux/temperature').catch(() => null)
    await gate.arrived
    server.send('SIGTERM')
    await until('it stops', () => server.logs().some(({ event }) => event === 'stopping'))
    // The gate stays closed: only the second signal can end this process.
    server.send(second)
    t.strictSame(await server.ended, { code, signal: null })
    t.match(server.logs().at(-1), { event: 'stop.incomplete', level: 'error' })
    t.match(server.logs().at(-1)?.msg, second)
    gate.release()
    t.equal(await open, null, 'its request gets no response')
  }
})

t.test('a token response that is already late is stored before the process ends', async (t) => {
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t, { tokenLifeSeconds: 6 })
  const env = {
    SESSION_STORE: 'redis',
    REDIS_URL: redis.url,
    SHUTDOWN_SECONDS: '15',
    TOKEN_TIMEOUT_MS: '1000',
    ...platformEnv(sandbox),
  }
  const server = await startServer(t, env)
  const browser = createBrowser(server.publicUrl)
  await signIn(browser, sandbox)
  const gate = sandbox.hold('token', { point: 'after', only: 'refresh_token' })
  await gate.arrived
  await until('nobody waits for it', () => server.logs().some(({ event }) => event === 'refresh.unanswered'))
  server.send('SIGTERM')
  await until('the stop', () => server.logs().some(({ event }) => event === 'stopping'))
  gate.release()
  t.equal((await server.ended).code, 0)

  const next = await startServer(t, { ...env, PUBLIC_URL: server.publicUrl })
  await until('ready', async () => (await fetch(`${next.opsUrl}/readyz`)).status === 200)
  const headers = {
    cookie: [...browser.cookies].map(([name, { value }]) => `${name}=${value}`).join('; '),
    'sec-fetch-site': 'same-origin',
  }
  const answer = await fetch(`${next.url}/flux/temperature`, { headers })
  t.equal(answer.status, 200)
  const [first, ...others] = presentations(sandbox)
  t.ok(first)
  for (const { form } of others) t.not(form?.refresh_token, first!.form?.refresh_token, 'presented once')
  t.equal(sandbox.counters().reuseDetected, 0)
})

t.test('a hanging refresh that an open request starts during the stop is reset in time', async (t) => {
  const sandbox = await startSandbox(t)
  const server = await startServer(t, { ...platformEnv(sandbox), SHUTDOWN_SECONDS: '6' })
  const browser = createBrowser(server.publicUrl)
  await signIn(browser, sandbox)
  const resource = sandbox.hold('resource')
  const open = browser.fetch('/flux/temperature')
  await resource.arrived
  server.send('SIGTERM')
  await until('it stops', () => server.logs().some(({ event }) => event === 'stopping'))
  sandbox.hold('token', { only: 'refresh_token' })
  sandbox.expireAccessTokens()
  resource.release()
  t.equal((await open).status, 503)
  t.equal((await server.ended).code, 0)
  sandbox.release()
})

t.test('a stop waits for a hanging revocation, but not until SHUTDOWN_SECONDS have passed', async (t) => {
  const sandbox = await startSandbox(t)
  const silent = net.createServer((socket) => void socket.on('error', () => {}))
  const port = await listenOnLoopback(t, silent)
  const server = await startServer(t, {
    ...platformEnv(sandbox),
    SHUTDOWN_SECONDS: '9',
    OAUTH_REVOCATION_URL: `http://127.0.0.1:${port}/revoke`,
  })
  const browser = createBrowser(server.publicUrl)
  await signIn(browser, sandbox)
  t.equal((await browser.fetch('/auth/logout', { method: 'POST' })).status, 204)
  const begin = performance.now()
  t.equal(await server.stop('SIGTERM'), 0, 'a stop that takes longer exits with 1')
  // Half of the last three seconds is kept for closing.
  t.ok(performance.now() - begin > 7_000)
})
