import { readdirSync, readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import t from 'tap'
import { harmlessCommands } from '../../src/store/redis/deployment-findings.ts'
import { listenOnLoopback } from '../helpers/ports.ts'
import { startRedis } from '../helpers/redis.ts'
import { startServer } from '../helpers/server-process.ts'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'

async function readyz(opsUrl: string | null): Promise<{ status: number; warnings?: string[] }> {
  const answer = await fetch(`${opsUrl}/readyz`)
  return { ...((await answer.json()) as object), status: answer.status }
}

t.test('an eviction policy other than noeviction is warned of once in the log, and in /readyz', async (t) => {
  const redis = await startRedis(t, { args: ['--maxmemory', '100mb', '--maxmemory-policy', 'allkeys-lru'] })
  const bff = await startBff(t, await startSandbox(t), { REDIS_URL: redis.url })
  await until('it is shown', async () => (await readyz(bff.opsUrl)).warnings !== undefined)
  t.match(await readyz(bff.opsUrl), { warnings: [/allkeys-lru.*set noeviction/] })
  await until('it is logged', () => bff.log().includes('"store.evicts"'))
  const lines = bff
    .log()
    .split('\n')
    .filter((line) => line.includes('"store.evicts"'))
  t.equal(lines.length, 1)
  t.match(JSON.parse(lines[0]!), { level: 'warn', policy: 'allkeys-lru', msg: /noeviction/ })
})

t.test('each command that the ACL denies is warned of once, and every line is JSON', async (t) => {
  const redis = await startRedis(t)
  const rights = ['~bff:*', 'resetchannels', '+@all', '-info', '-scan', '-eval']
  await redis.cli('ACL', 'SETUSER', 'app', 'on', '>pw', ...rights)
  const REDIS_URL = `redis://app:pw@127.0.0.1:${redis.port}`
  const server = await startServer(t, { SESSION_STORE: 'redis', REDIS_URL })
  const denied = () => server.logs().filter(({ event }) => event === 'store.denied')
  await until('all are found', async () => (await readyz(server.opsUrl)).warnings?.length === 3)
  t.match(await readyz(server.opsUrl), { status: 200 }, 'ready, without channels too')
  await until('all are logged', () => denied().length >= 3)
  t.strictSame(
    denied()
      .map(({ what }) => what)
      .sort(),
    ['command EVAL', 'command INFO', 'command SCAN'],
  )
  await redis.cli('ACL', 'SETUSER', 'app', 'resetkeys', '~other:*')
  const other = await startServer(t, { SESSION_STORE: 'redis', REDIS_URL })
  await until('the keys are found', () => other.output().includes('keys below REDIS_PREFIX'))
  for (const line of `${server.output()}${other.output()}`.split('\n')) {
    if (line !== '') t.match(JSON.parse(line), { event: String }, line)
  }
})

t.test('a clock more than 5 s from that of the authorization server is warned of once', async (t) => {
  const sandbox = await startSandbox(t)
  for (const [aheadMs, warned] of [
    [-60_000, true],
    [60_000, true],
    [3_000, false],
  ] as const) {
    const gateway = createServer(async (request, response) => {
      const chunks: Buffer[] = []
      for await (const chunk of request) chunks.push(chunk as Buffer)
      const answer = await fetch(sandbox.authUrl + request.url, {
        method: request.method ?? 'GET',
        headers: { 'content-type': String(request.headers['content-type']) },
        body: Buffer.concat(chunks),
      })
      const date = new Date(Date.now() - aheadMs).toUTCString()
      response.writeHead(answer.status, { 'content-type': 'application/json', date }).end(await answer.text())
    })
    const port = await listenOnLoopback(t, gateway)
    const bff = await startBff(t, sandbox, { OAUTH_TOKEN_URL: `http://127.0.0.1:${port}/oauth/token` })
    t.equal((await signIn(bff.browser(), sandbox)).status, 303)
    t.equal((await signIn(bff.browser(), sandbox)).status, 303)
    t.equal(bff.log().split('"clock.differs"').length - 1, warned ? 1 : 0, `${aheadMs} ms`)
    const { warnings = [] } = await readyz(bff.opsUrl)
    if (warned)
      t.match(warnings, [
        aheadMs > 0 ? /(59|60|61) s ahead of that of the auth/ : /(59|60|61) s behind that of the auth/,
      ])
    else t.strictSame(warnings, [])
  }
})

t.test('the inspection of the ACL covers every command of the scripts', async (t) => {
  const folder = new URL('../../src/store/redis/lua/', import.meta.url)
  const scripts = readdirSync(folder).map((name) => readFileSync(new URL(name, folder), 'utf8'))
  const used = scripts.flatMap((text) =>
    [...text.matchAll(/redis\.p?call\('([A-Z]+)'/g)].map(([, name]) => name!),
  )
  const inspected = new Set(harmlessCommands('bff:').map(([command]) => command))
  t.strictSame(
    [...new Set(used)].filter((command) => !inspected.has(command)),
    [],
  )
})

t.test('a clock more than 5 s from that of Redis is warned of once', async (t) => {
  const redis = await startRedis(t)
  const { now } = Date
  t.teardown(() => {
    Date.now = now
  })
  Date.now = () => now() + 60_000
  const bff = await startBff(t, await startSandbox(t), { REDIS_URL: redis.url })
  await until('it is found', () => bff.log().includes('"clock.differs"'))
  t.match(await readyz(bff.opsUrl), { warnings: [/60 s ahead of that of Redis/] })
})

t.test('a callback on another host and another scope are warned of once, at the first sign-in', async (t) => {
  const sandbox = await startSandbox(t)
  const warningsAfter = async (tokenAnswer: object) => {
    const bff = await startBff(t, sandbox)
    sandbox.faults.set({ tokenAnswer })
    for (let count = 0; count < 2; count += 1) {
      const browser = bff.browser()
      await signIn(browser, sandbox)
      t.match((await browser.fetch('/auth/session')).json(), { authenticated: true }, 'nothing is refused')
    }
    const lines = bff.log().split('\n')
    return lines.filter((line) => line.includes('"platform.')).map((line) => JSON.parse(line))
  }
  t.strictSame(await warningsAfter({}), [], 'as configured')
  t.strictSame(await warningsAfter({ remove: ['callback', 'scope'] }), [])
  const host = 'development.example'
  const odd = { callback: `https://${host}/back`, scope: 'odd-scope' }
  const lines = await warningsAfter({ set: odd })
  t.match(lines, [
    { event: 'platform.callback_differs', level: 'warn', host, msg: /PUBLIC_URL.*credentials/ },
    { event: 'platform.scope_differs', level: 'warn', granted: 'odd-scope', msg: /upstream_refused/ },
  ])
  t.equal(lines.length, 2)
})
