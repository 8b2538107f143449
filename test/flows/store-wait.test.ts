import t from 'tap'
import { type Browser, isProblem } from '../helpers/browser.ts'
import { DURABLE, startRedis } from '../helpers/redis.ts'
import { through } from '../helpers/replicas.ts'
import { signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { startProxy } from '../helpers/tcp-proxy.ts'
import { elapsed, until } from '../helpers/wait.ts'

t.jobs = 2

// The longest: a busy machine may take seconds to start Redis.
const ENV = { STORE_WAIT_MS: '10000', SESSION_CACHE_MS: '0' }

t.test('readers that ask once a second see no error while Redis is restarted', async (t) => {
  const redis = await startRedis(t, { args: DURABLE })
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { ...ENV, REDIS_URL: redis.url })
  await untilReady(bff)
  const browsers = Array.from({ length: 5 }, () => bff.browser())
  for (const browser of browsers) await signIn(browser, sandbox)

  const answers: number[] = []
  let goesOn = true
  const read = async (browser: Browser) =>
    void answers.push((await browser.fetch('/flux/temperature')).status)
  const readers = browsers.map(async (browser) => {
    for (; goesOn; await elapsed(1_000)) await read(browser)
  })
  await until('all are served', () => answers.length >= browsers.length)
  await redis.kill()
  const waiting = browsers.map(read)
  const [browser] = browsers as [Browser]
  const json = { 'content-type': 'application/json' }
  const update = { method: 'PUT', headers: json, body: '{"name":"n"}' }
  isProblem(t, await browser.fetch('/site/42', update), 503, 'store_unavailable', 'an update')
  isProblem(t, await browser.fetch('/auth/session'), 503, 'store_unavailable', '/auth/session')
  await redis.restart()
  await Promise.all(waiting)
  goesOn = false
  await Promise.all(readers)
  t.strictSame([...new Set(answers)], [200])
})

t.test('a read that waits gets 401 if its session was ended meanwhile', async (t) => {
  const redis = await startRedis(t)
  const proxy = await startProxy(t, redis.port)
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { ...ENV, REDIS_URL: `redis://127.0.0.1:${proxy.port}` })
  const other = await startBff(t, sandbox, { ...ENV, REDIS_URL: redis.url })
  await Promise.all([bff, other].map(untilReady))
  const browser = bff.browser()
  await signIn(browser, sandbox)
  sandbox.journal.clear()
  proxy.freeze()
  const waiting = browser.fetch('/flux/temperature')
  t.equal((await through(other, browser).fetch('/auth/logout', { method: 'POST' })).status, 204)
  proxy.thaw()
  isProblem(t, await waiting, 401, 'login_required', 'the read')
  t.strictSame(sandbox.journal.entries({ endpoint: 'resource' }), [], 'and nothing was asked of the platform')
})
