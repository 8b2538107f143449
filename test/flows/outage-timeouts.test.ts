import t, { type Test } from 'tap'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import { type RedisServer, startRedis } from '../helpers/redis.ts'
import { presentations, signInExpired, through } from '../helpers/replicas.ts'
import { type Bff, decide, signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { startProxy, type Proxy as Way } from '../store/proxy.ts'
import { scriptSha } from '../store/script-sha.ts'

/** Two replicas over one Redis; what it answers to the first may be held on the way. */
interface Slow {
  redis: RedisServer
  way: Way
  sandbox: Sandbox
  bff: Bff
  other: Bff
}

async function start(t: Test): Promise<Slow> {
  const redis = await startRedis(t)
  const way = await startProxy(t, redis.port)
  const sandbox = await startSandbox(t)
  const env = { OAUTH_REVOCATION_URL: `${sandbox.authUrl}/oauth/revoke`, SESSION_CACHE_MS: '0' }
  const bff = await startBff(t, sandbox, { ...env, REDIS_URL: `redis://127.0.0.1:${way.port}` })
  const other = await startBff(t, sandbox, { ...env, REDIS_URL: redis.url })
  await Promise.all([bff, other].map(untilReady))
  // Redis knows every script from now on, so that the first sending is the one that runs.
  const before = await signInExpired(bff, sandbox)
  if ((await before.fetch('/flux/a')).status !== 200) throw new Error('no call succeeds')
  await before.fetch('/auth/logout', { method: 'POST' })
  await sandbox.journal.until({ endpoint: 'revoke' }, 2)
  sandbox.journal.clear()
  return { redis, way, sandbox, bff, other }
}

async function records(redis: RedisServer): Promise<string[]> {
  return (await redis.cli('keys', 'bff:s:*')).split('\n').filter((name) => name !== '')
}

// Most of the time is spent waiting.
t.jobs = 3

t.test(
  'a nonce claim whose reply is lost shows a page, redeems no code and causes no redirect loop',
  async (t) => {
    const { redis, way, sandbox, bff } = await start(t)
    const browser = bff.browser()
    const begun = await browser.navigate('/auth/login?returnTo=%2Fapp')
    const back = await decide(sandbox, String(begun.headers.location))
    const held = way.holdAnswers(scriptSha('claim-nonce'))
    const answer = await browser.navigate(back, { from: 'cross-site' })
    t.ok(held.wasMet())
    t.equal(answer.status, 503)
    t.match(answer.headers['content-type'], /^text\/html/)
    t.match(answer.headers['retry-after'], /^[1-9]\d*$/)
    t.strictSame(answer.setCookies, [])
    t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, 0)
    held.release()
    await untilReady(bff)
    const again = await browser.navigate(back, { from: 'cross-site' })
    t.equal(again.status, 400, 'the claim stands: asked again it is a page, not one more redirect')
    t.match(again.headers['content-type'], /^text\/html/)
    t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, 0)
    t.equal((await signIn(browser, sandbox)).status, 303)
    t.equal((await browser.fetch('/flux/a')).status, 200)
    t.equal((await records(redis)).length, 1)
  },
)

t.test(
  'a session whose creation reply is lost is not signed in, its tokens are revoked and its record is gone',
  async (t) => {
    for (const script of ['create-record', 'confirm-record'] as const) {
      const { redis, way, sandbox, bff } = await start(t)
      const browser = bff.browser()
      const held = way.holdAnswers(scriptSha(script))
      const answer = await signIn(browser, sandbox, '/app?x=1')
      t.ok(held.wasMet(), script)
      t.equal(answer.status, 503)
      t.match(answer.headers['content-type'], /^text\/html/)
      t.match(answer.text, '<a href="/auth/login?returnTo=%2Fapp%3Fx%3D1">')
      t.notMatch(answer.setCookies.join(), /session|record/)
      const revoked = await sandbox.journal.until({ endpoint: 'revoke' }, 2)
      t.equal(new Set(revoked.map(({ form }) => form?.token)).size, 2, 'both tokens')
      held.release()
      await untilReady(bff)
      await until('no record is left', async () => (await records(redis)).length === 0)
      t.match((await browser.fetch('/auth/session')).json(), { authenticated: false })
      t.equal((await signIn(browser, sandbox)).status, 303)
      t.equal((await browser.fetch('/flux/a')).status, 200)
      t.equal((await records(redis)).length, 1)
      t.equal(presentations(sandbox).length, 0)
    }
  },
)

t.test('a session whose confirmation was lost with the connection is ended when Redis is back', async (t) => {
  const { redis, way, sandbox, bff } = await start(t)
  const browser = bff.browser()
  const held = way.holdAnswers(scriptSha('confirm-record'))
  const signing = signIn(browser, sandbox)
  await until('the step was sent', held.wasMet)
  await until('and was done', async () => (await records(redis)).length === 1)
  way.cut()
  t.equal((await signing).status, 503)
  t.equal((await records(redis)).length, 1)
  way.heal()
  await until('no record is left', async () => (await records(redis)).length === 0)
})

t.test(
  'a sign-out whose reply is lost gets 503 and keeps the cookies, but ends the session on every replica',
  async (t) => {
    const { way, sandbox, bff, other } = await start(t)
    const browser = bff.browser()
    await signIn(browser, sandbox)
    for (const one of [browser, through(other, browser)]) t.equal((await one.fetch('/flux/a')).status, 200)
    const held = way.holdAnswers(scriptSha('end-record'))
    const answer = await browser.fetch('/auth/logout', { method: 'POST' })
    t.ok(held.wasMet())
    t.equal(answer.status, 503)
    t.match(answer.json(), { code: 'store_unavailable' })
    t.strictSame(answer.setCookies, [])
    t.equal((await through(other, browser).fetch('/flux/a')).status, 401)
    t.not((await browser.fetch('/flux/a')).status, 200, 'not served where it was asked either')
    held.release()
    await untilReady(bff)
    t.equal((await browser.fetch('/flux/a')).status, 401)
    t.equal((await browser.fetch('/auth/logout', { method: 'POST' })).status, 204)
  },
)
