import t, { type Test } from 'tap'
import { type Browser, isProblem } from '../helpers/browser.ts'
import { DURABLE, startRedis } from '../helpers/redis.ts'
import { through } from '../helpers/replicas.ts'
import { opsStatus, signInSurely, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { startProxy } from '../helpers/tcp-proxy.ts'
import { until } from '../helpers/wait.ts'
import { counted } from './load.ts'

// Most of the time is spent waiting.
t.jobs = 4

type Away = Awaited<ReturnType<typeof start>>

/** A server that reaches Redis through `proxy`. */
async function start(t: Test) {
  const redis = await startRedis(t, { args: DURABLE })
  const proxy = await startProxy(t, redis.port)
  const sandbox = await startSandbox(t)
  const env = { STORE_WAIT_MS: '0', REDIS_URL: `redis://127.0.0.1:${proxy.port}` }
  const bff = await startBff(t, sandbox, env)
  await untilReady(bff)
  return { redis, proxy, sandbox, bff }
}

async function signedIn({ bff, sandbox }: Away): Promise<Browser> {
  const browser = bff.browser()
  await signInSurely(browser, sandbox)
  return browser
}

/** A browser whose session the replica has in its cache. */
async function cached(away: Away): Promise<Browser> {
  const browser = await signedIn(away)
  const hits = () => counted([away.bff], 'bff_session_cache_total{result="hit"}')
  const before = await hits()
  await until('a call finds the session in the cache', async () => {
    await browser.fetch('/flux/a')
    return (await hits()) > before
  })
  return browser
}

const OUTAGES: Record<string, { begin: (away: Away) => unknown; end: (away: Away) => unknown }> = {
  'a killed Redis': { begin: ({ redis }) => redis.kill(), end: ({ redis }) => redis.restart() },
  'a frozen Redis': { begin: ({ redis }) => redis.pause(), end: ({ redis }) => redis.resume() },
}

for (const [name, outage] of Object.entries(OUTAGES)) {
  t.test(`${name}: no session is served during the outage, and the same cookies work after it`, async (t) => {
    const away = await start(t)
    const [browser, stranger, leaver] = [await cached(away), await signedIn(away), await signedIn(away)]
    await outage.begin(away)
    await until('the cache is not trusted', async () => (await browser.fetch('/flux/a')).status === 503)
    const json = { 'content-type': 'application/json' }
    const answers = await Promise.all([
      browser.fetch('/flux/a'),
      browser.fetch('/site/42', { method: 'PUT', headers: json, body: '{"name":"n"}' }),
      stranger.fetch('/flux/a'),
      browser.fetch('/auth/session'),
    ])
    const reads = () => counted([away.bff], 'bff_store_duration_seconds_count{command="read"}')
    const before = await reads()
    answers.push(await leaver.fetch('/auth/logout', { method: 'POST' }))
    t.equal(await reads(), before, 'a sign-out waits for one command alone: for less than a second')
    for (const [at, answer] of answers.entries()) {
      isProblem(t, answer, 503, 'store_unavailable', `call ${at}`)
      t.match(answer.headers['retry-after'], /^[1-9]\d*$/)
      t.strictSame(answer.setCookies, [])
    }
    t.equal(await opsStatus(away.bff), 503)
    t.equal(await opsStatus(away.bff, '/livez'), 200)

    await outage.end(away)
    for (const one of [browser, stranger]) {
      await until('the same cookies work', async () => {
        const { status } = await one.fetch('/flux/a')
        t.ok([200, 503].includes(status), `${status}`)
        return status === 200
      })
    }
    // A sign-out that a frozen Redis had already received is done when it goes on.
    t.ok([200, 401].includes((await leaver.fetch('/flux/a')).status))
  })
}

t.test('a session that another replica ended during an outage is not served after it', async (t) => {
  const away = await start(t)
  const other = await startBff(t, away.sandbox, { REDIS_URL: away.redis.url })
  await untilReady(other)
  const browser = await cached(away)
  away.proxy.freeze()
  await until('the cache is not trusted', async () => (await browser.fetch('/flux/a')).status === 503)
  t.equal((await through(other, browser).fetch('/auth/logout', { method: 'POST' })).status, 204)
  away.proxy.thaw()
  await until('the end is seen', async () => {
    const { status } = await browser.fetch('/flux/a')
    t.ok([401, 503].includes(status), `${status}`)
    return status === 401
  })
})
