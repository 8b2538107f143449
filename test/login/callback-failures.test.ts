import t, { type Test } from 'tap'
import type { Answer, Browser } from '../helpers/browser.ts'
import { startRedis } from '../helpers/redis.ts'
import { shared, signedIn } from '../helpers/shared.ts'
import { type Bff, decide, signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'

const ADVICE = '<p>The sign-in could not be completed. Try again in a moment.</p>'

const NOT_SET_UP = 'Trying again will not help: tell the operator the request number.</p>'

/** A page with a retry link that sets no session. */
function isRetryPage(t: Test, answer: Answer, status: number, what: string): void {
  t.equal(answer.status, status, what)
  t.match(answer.headers['content-type'], /^text\/html/, what)
  t.match(answer.text, '<a href="/auth/login?returnTo=%2Fapp%3Fx%3D1">', what)
  if (status >= 500) t.match(answer.text, /_client/.test(what) ? NOT_SET_UP : ADVICE, what)
  t.equal(answer.headers['retry-after'] !== undefined, status === 503, what)
  t.notMatch(answer.setCookies.join(), /session|record/, what)
}

/** How many sign-ins the metrics count as failed for this reason. */
async function failures(bff: Bff, reason: string): Promise<number> {
  const text = await (await fetch(`${bff.opsUrl}/metrics`)).text()
  return Number(
    new RegExp(`^bff_sign_in_failures_total\\{reason="${reason}"\\} (\\d+)$`, 'm').exec(text)?.[1] ?? 0,
  )
}

async function noSession(t: Test, browser: Browser): Promise<void> {
  t.strictSame([...browser.cookies.keys()], [], 'no login cookie either')
  const anonymous = { authenticated: false, loginUrl: '/auth/login' }
  t.strictSame((await browser.fetch('/auth/session')).json(), anonymous)
}

t.test('a refused code gets a 400 page with a retry link and no session', async (t) => {
  const { sandbox, bff } = await shared()
  sandbox.faults.set({ tokenEndpoint: { mode: 'refuse' } })
  const browser = bff.browser()
  isRetryPage(t, await signIn(browser, sandbox, '/app?x=1'), 400, 'invalid_grant')
  await noSession(t, browser)
})

t.test('a failing token endpoint gets a page with a retry link, and the code is sent once', async (t) => {
  for (const [fault, status] of [
    [{ mode: 'status', status: 500 }, 503],
    [{ mode: 'status', status: 503, headers: { 'retry-after': '7' } }, 503],
    [{ mode: 'status', status: 429 }, 503],
    [{ mode: 'invalid_client' }, 503],
    [{ mode: 'refuse', error: 'unauthorized_client' }, 503],
    [{ mode: 'status', status: 302, headers: { location: 'https://evil.test' } }, 503],
    [{ mode: 'status', status: 502 }, 502],
    [{ mode: 'status', status: 504 }, 502],
    [{ mode: 'html' }, 502],
    [{ mode: 'truncated' }, 502],
    [{ mode: 'drop' }, 502],
    [{ mode: 'cut' }, 502],
    [{ mode: 'hang' }, 504],
    [{ mode: 'stall' }, 504],
  ] as const) {
    const { sandbox, bff } = await shared(status === 504 ? { TOKEN_TIMEOUT_MS: '300' } : {})
    sandbox.faults.set({ tokenEndpoint: fault })
    const before = await failures(bff, 'unavailable')
    const browser = bff.browser()
    const what = JSON.stringify(fault)
    const answer = await signIn(browser, sandbox, '/app?x=1')
    isRetryPage(t, answer, status, what)
    t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, 1, what)
    t.notOk(browser.cookies.has('session'), what)
    t.notMatch(answer.text, /invalid_client|unauthorized|evil/, what)
    t.equal(await failures(bff, 'unavailable'), before + 1, what)
    const [line = '', ...more] = bff.log().match(/.*"event":"login\.failed".*/g) ?? []
    // Nobody can sign in until that is fixed.
    t.equal(JSON.parse(line).level, /_client/.test(what) ? 'error' : 'warn', what)
    t.strictSame(more, [], what)
  }
})

t.test('an unreachable token endpoint gets a 503 page', async (t) => {
  const { sandbox, bff } = await shared({ OAUTH_TOKEN_URL: 'http://127.0.0.1:9/token' })
  isRetryPage(t, await signIn(bff.browser(), sandbox, '/app?x=1'), 503, 'refused')
})

t.test('a failed sign-in does not end the existing session', async (t) => {
  const { sandbox, browser } = await signedIn()
  for (const mode of ['refuse', 'drop', 'html'] as const) {
    sandbox.faults.set({ tokenEndpoint: { mode, times: 1 } })
    await signIn(browser, sandbox)
    t.equal((await browser.fetch('/flux/a')).status, 200, mode)
  }
})

t.test(
  'while the store is down a callback gets a 503 page, its code is not redeemed, and it works afterwards',
  async (t) => {
    const sandbox = await startSandbox(t)
    const redis = await startRedis(t, { args: ['--appendonly', 'yes'] })
    const bff = await startBff(t, sandbox, { REDIS_URL: redis.url })
    await untilReady(bff)
    const browser = bff.browser()
    const start = await browser.navigate('/auth/login?returnTo=%2Fapp%3Fx%3D1')
    const back = await decide(sandbox, String(start.headers.location))
    await redis.stop()
    const answer = await browser.navigate(back, { from: 'cross-site' })
    t.equal(answer.status, 503)
    t.match(answer.headers['content-type'], /^text\/html/)
    t.match(answer.text, ADVICE)
    t.match(answer.headers['retry-after'], /^\d+$/)
    t.strictSame(answer.setCookies, [])
    t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, 0)
    t.equal(await failures(bff, 'store'), 1)
    await redis.restart()
    await untilReady(bff)
    t.equal((await browser.navigate(back, { from: 'cross-site' })).headers.location, '/app?x=1#_')
  },
)

t.test('tokens that cannot be stored are revoked and never start a session', async (t) => {
  const sandbox = await startSandbox(t)
  const redis = await startRedis(t)
  const revocation = { OAUTH_REVOCATION_URL: `${sandbox.authUrl}/oauth/revoke` }
  const bff = await startBff(t, sandbox, { REDIS_URL: redis.url, ...revocation })
  await untilReady(bff)
  const browser = bff.browser()
  const start = await browser.navigate('/auth/login?returnTo=%2Fapp%3Fx%3D1')
  const back = await decide(sandbox, String(start.headers.location))
  const gate = sandbox.hold('token', { point: 'after' })
  const returning = browser.navigate(back, { from: 'cross-site' })
  await gate.arrived
  redis.pause()
  gate.release()
  isRetryPage(t, await returning, 503, 'the tokens came, and could not be kept')
  await sandbox.journal.until({ endpoint: 'revoke' })
  redis.resume()
  await untilReady(bff)
  await noSession(t, browser)
})
