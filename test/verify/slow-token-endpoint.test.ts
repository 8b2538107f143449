import { createServer } from 'node:http'
import { text } from 'node:stream/consumers'
import t, { type Test } from 'tap'
import { createBrowser } from '../helpers/browser.ts'
import { listenOnLoopback } from '../helpers/ports.ts'
import { startRedis } from '../helpers/redis.ts'
import { presentations, through } from '../helpers/replicas.ts'
import { startServer } from '../helpers/server-process.ts'
import { platformEnv, signIn, startSandbox } from '../helpers/system.ts'
import { elapsed, until } from '../helpers/wait.ts'

const SESSIONS = 150
/** django-oauth-toolkit needs as long on one core. */
const SERVICE_MS = 240

t.test(
  'of 150 sessions due at once on two replicas, at a token endpoint that needs 0.24 s for each, none is lost and the endpoint has work all the time',
  async (t) => {
    const redis = await startRedis(t)
    const sandbox = await startSandbox(t, { tokenLifeSeconds: 10, journalSize: 10_000 })
    const endpoint = await startOneCore(t, `${sandbox.authUrl}/oauth/token`)
    const env = {
      ...platformEnv(sandbox),
      REDIS_URL: redis.url,
      SESSION_STORE: 'redis',
      OAUTH_TOKEN_URL: endpoint.url,
      LOGIN_RATE_PER_MINUTE: '0',
    }
    const first = await startServer(t, env)
    const browsers = Array.from({ length: SESSIONS }, () => createBrowser(first.publicUrl))
    for (const browser of browsers) await signIn(browser, sandbox)
    await first.stop()
    // All replicas are away until every access token has expired.
    await elapsed(10_000)
    sandbox.faults.set({ tokenLifeSeconds: 3_600 })
    sandbox.journal.clear()
    endpoint.becomeSlow()

    const replicas = await Promise.all([startServer(t, env), startServer(t, env)])
    await until('all sessions have new tokens', () => {
      return (
        presentations(sandbox).filter(({ outcome }) => (outcome ?? 'granted') === 'granted').length >=
        SESSIONS
      )
    })
    const tokens = presentations(sandbox).map(({ form }) => form?.refresh_token)
    t.equal(new Set(tokens).size, tokens.length, 'no refresh token was presented twice')
    t.equal(sandbox.counters().reuseDetected, 0)
    const statuses = new Set<number>()
    for (const [at, browser] of browsers.entries())
      statuses.add((await through(replicas[at % 2]!, browser).fetch('/flux/x')).status)
    t.strictSame([...statuses], [200])
    // The first request finds it without work, as the last ones may, and those of a replica that was held up. One replica that
    // waited for the other, or for a pause, would leave it idle dozens of times.
    t.ok(endpoint.idle() <= 5, `the endpoint waited ${endpoint.idle()} times for the next request`)
    for (const { output } of replicas) t.notMatch(output(), /"event":"(?:refresh\.unanswered|breaker\.open)"/)
  },
)

/** A token endpoint that works through what it has taken one by one, also for clients that have gone. */
async function startOneCore(t: Test, target: string) {
  let [serviceMs, waiting, idle] = [0, 0, 0]
  let work: Promise<unknown> = Promise.resolve()
  const server = createServer(async (incoming, response) => {
    const body = await text(incoming)
    waiting += 1
    if (waiting === 1 && serviceMs > 0) idle += 1
    const before = work
    work = (async () => {
      await before
      await elapsed(serviceMs)
      const answer = await fetch(target, {
        method: 'POST',
        headers: { 'content-type': 'application/x-www-form-urlencoded' },
        body,
      })
      waiting -= 1
      response.writeHead(answer.status, { 'content-type': 'application/json' }).end(await answer.text())
    })().catch(() => response.destroy())
  })
  return {
    url: `http://127.0.0.1:${await listenOnLoopback(t, server)}`,
    becomeSlow(): void {
      serviceMs = SERVICE_MS
    },
    /** How often a request found it without work. */
    idle: () => idle,
  }
}
