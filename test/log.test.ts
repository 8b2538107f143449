import t from 'tap'
import { createLog } from '../src/log.ts'
import { pathOf } from '../src/log-text.ts'
import { Secret } from '../src/secret.ts'
import { collectLog } from './helpers/log-lines.ts'
import { startRedis } from './helpers/redis.ts'
import { CLIENT, decide, signIn, startBff, startSandbox, untilReady } from './helpers/system.ts'
import { ask, OWN, portOf, speak } from './http/wire.ts'

t.test('a line is JSON with a level by name and a time in UTC', async (t) => {
  const { sink, lines } = collectLog()
  createLog('info', sink).warn({ event: 'x' }, 'told')
  t.match(lines()[0], { level: 'warn', event: 'x', msg: 'told', pid: process.pid })
  t.match(lines()[0]?.time, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
})

t.test('the log holds method and path of a request, status of a response, and no secret', async (t) => {
  const { sink, lines } = collectLog()
  const log = createLog('trace', sink)
  const planted = { headers: { cookie: 'planted', 'set-cookie': 'planted' }, body: 'planted' }
  const req = { method: 'GET', url: '/a?code=planted', id: 'r', ...planted }
  log.info({ req, res: { statusCode: 200, ...planted }, key: new Secret('planted') })
  log.info(new Secret('planted') as unknown as object)
  log.info({ deep: [{ er: new Secret('planted') }] }, `${new Secret('planted')}`)
  t.strictSame(lines()[0]?.req, { id: 'r', method: 'GET', path: '/a' })
  t.strictSame(lines()[0]?.res, { status: 200 })
  t.notMatch(JSON.stringify(lines()), /planted/)
})

t.test('the log holds type, message, code, stack and causes of an error, nothing else', async (t) => {
  const { sink, lines } = collectLog()
  const cause = Object.assign(new RangeError('inner'), { code: 'EINNER', args: ['planted'] })
  const error = Object.assign(new TypeError('outer', { cause }), {
    code: 'EOUTER',
    command: { name: 'auth', args: ['planted'] },
    config: { headers: { authorization: 'planted' } },
  })
  createLog('info', sink).error({ err: error }, 'failed')
  createLog('info', sink).error({ err: 'no error at all' })
  createLog('info', sink).error({ err: Object.assign(new Error('loop'), { cause: error }) })
  const [line] = lines()
  t.match(line?.err, { type: 'TypeError', message: 'outer', code: 'EOUTER', stack: /log\.test/ })
  t.match(line?.err, { cause: { type: 'RangeError', message: 'inner', code: 'EINNER' } })
  t.notMatch(JSON.stringify(lines()), /planted/)
  const repeated = new Error("ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'planted'")
  createLog('info', sink).error({ err: new Error('outer', { cause: repeated }) })
  t.notMatch(JSON.stringify(lines()), /planted/, 'what Redis repeats of a command')
  const self = new Error('self')
  self.cause = self
  createLog('info', sink).error({ err: self })
  t.match(lines()[4]?.err, { message: 'self' }, 'a cause that is its own cause ends somewhere')
})

t.test('a path is logged without query, fragment and nonce, and cut to a limit', async (t) => {
  t.equal(pathOf('/a/b?c=d'), '/a/b')
  t.equal(pathOf('/a/b#c'), '/a/b')
  t.equal(pathOf('/auth/callback/abc?code=x'), '/auth/callback/-')
  t.equal(pathOf('/auth/c%61llback/abc?code=x'), '/auth/callback/-', 'the router decodes it too')
  t.equal(pathOf('/auth/callback?code=x'), '/auth/callback')
  t.equal(pathOf('/flux/%a'), '/flux/%a')
  t.equal(pathOf(`/${'a'.repeat(500)}`).length, 200)
})

t.test('the most verbose log of a whole session holds no secret', async (t) => {
  const sandbox = await startSandbox(t)
  const password = 'redis-password-in-the-log'
  const redis = await startRedis(t, { password })
  const bff = await startBff(t, sandbox, {
    REDIS_URL: redis.url,
    OAUTH_REVOCATION_URL: `${sandbox.authUrl}/oauth/revoke`,
  })
  const hurried = await startBff(t, sandbox, { TOKEN_TIMEOUT_MS: '300' })
  await untilReady(bff)
  const secrets = new Map([
    ['client secret', CLIENT.clientSecret],
    ['client secret, encoded', encodeURIComponent(CLIENT.clientSecret)],
    ['session secret', 'the-first-secret-of-the-tests'],
    ['password of the store', password],
  ])
  const add = (kind: string, value: unknown) => void secrets.set(`${kind} ${secrets.size}`, String(value))
  const addCookies = () => {
    for (const [name, { value }] of browser.cookies) add(`cookie ${name}`, value)
  }
  const browser = bff.browser()
  const port = portOf(bff)

  async function walk(): Promise<void> {
    const start = await browser.navigate(
      `/auth/login?returnTo=${encodeURIComponent('/app?hidden=return-place')}`,
    )
    const back = new URL(await decide(sandbox, String(start.headers.location)))
    addCookies()
    add('nonce', new URL(String(start.headers.location)).searchParams.get('state'))
    add('code', back.searchParams.get('code'))
    await browser.navigate(`${back.href}&iss=x`, { from: 'cross-site' })
    addCookies()
  }

  await walk()
  await browser.fetch('/flux/a?values=2&note=hidden-in-query')
  const headers = { 'content-type': 'application/json', authorization: 'Bearer hidden-in-header' }
  for (const body of ['{"name":"hidden-in-body"}', '{"name":"hidden-in-body"'])
    await browser.fetch('/site/42', { method: 'PUT', headers, body })
  await browser.fetch('/flux/a?access_token=hidden-in-query')
  await browser.fetch('/auth/callback/hidden-nonce?code=hidden-code&state=hidden-state')
  await speak(
    port,
    'GET /flux/a HTTP/1.1\r\nHost: a\r\nCookie: hidden-in-header\r\nbroken hidden-in-header\r\n\r\n',
  )
  const odd = [OWN, ['Cookie', 'session=hidden-in-header']] as const
  await ask(port, { target: '/flux/%zz?code=hidden-in-query', headers: odd })
  sandbox.expireAccessTokens()
  await browser.fetch('/flux/a')
  for (const mode of ['drop', 'html', 'hang', 'refuse'] as const) {
    sandbox.faults.set({ tokenEndpoint: { mode, times: 1 } })
    await signIn(mode === 'hang' ? hurried.browser() : browser, sandbox).catch(() => {})
  }
  sandbox.faults.set({ resource: { mode: 'drop' } })
  await browser.fetch('/flux/a')
  sandbox.faults.set({ resource: { mode: 'ok' } })
  await browser.fetch('/auth/logout', { method: 'POST' })

  await walk()
  // Every kind of failure of the store, one of them with a command that is refused.
  await redis.cli('CONFIG', 'SET', 'maxmemory', '1')
  await walk()
  await redis.cli('CONFIG', 'SET', 'maxmemory', '0')
  await redis.stop()
  await walk()
  await browser.fetch('/flux/a')
  await browser.fetch('/auth/logout', { method: 'POST' })

  for (const { form } of sandbox.journal.entries({ endpoint: 'token' })) {
    for (const name of ['code', 'code_verifier', 'refresh_token']) {
      if (form?.[name] !== undefined) add(name, form[name])
    }
  }
  for (const { headers } of sandbox.journal.entries({ endpoint: 'resource' })) {
    const token = headers.authorization?.slice('Bearer '.length)
    if (token !== undefined) add('access token', token)
  }
  const kinds = [...secrets.keys()].map((name) => name.replace(/ \d+$/, ''))
  const met = ['code', 'code_verifier', 'refresh_token', 'access token', 'nonce', 'cookie session']
  for (const kind of [...met, 'cookie record']) t.ok(kinds.includes(kind), `the walk has met a ${kind}`)
  const log = bff.log() + hurried.log()
  t.match(log, /"event":"fault"/, 'the failures of the store are in the log')
  for (const [name, value] of secrets) {
    t.ok(value.length > 10, `${name} is long enough to be looked for`)
    t.notOk(log.includes(value), `${name} is not in the log`)
  }
  for (const line of log.split('\n')) t.notMatch(line, /hidden/i)
})
