import t, { type Test } from 'tap'
import { counted } from '../flows/load.ts'
import type { Answer } from '../helpers/browser.ts'
import { logLines } from '../helpers/log-lines.ts'
import { shared, signedIn } from '../helpers/shared.ts'
import { signIn, untilReady } from '../helpers/system.ts'
import { unlessHeldUp } from '../helpers/wait.ts'
import { begin, comeBack, signedInOverRedis } from './sign-ins.ts'

const ADVICE = '<p>The sign-in could not be completed. Try again in a moment.</p>'

const NOT_SET_UP = 'Trying again helps once the operator has corrected it: tell them the request number.</p>'

/** A fault in which the token endpoint rejects the client. */
const OF_THE_CLIENT = /_client|401/

/** A page with a retry link that sets no session. */
function isRetryPage(t: Test, answer: Answer, status: number, what: string): void {
  t.equal(answer.status, status, what)
  t.match(answer.headers['content-type'], /^text\/html/, what)
  const words = status === 400 ? 'Sign in' : 'Try again'
  t.match(answer.text, `<a href="/auth/login?returnTo=%2Fapp%3Fx%3D1">${words}</a>`, what)
  if (status === 400) t.notMatch(answer.text, /try again/i, what)
  if (status >= 500) t.match(answer.text, OF_THE_CLIENT.test(what) ? NOT_SET_UP : ADVICE, what)
  t.equal(answer.headers['retry-after'] !== undefined, status === 503, what)
  t.notMatch(answer.setCookies.join(), /session|record/, what)
}

t.test('without tokens there is a page with a retry link, and the session before lives on', async (t) => {
  for (const [fault, status] of [
    [{ mode: 'refuse' }, 400],
    [{ mode: 'refuse', error: 'not_allowed' }, 400],
    [{ mode: 'refuse', error: 'invalid_request' }, 400],
    [{ mode: 'refuse', error: 'temporarily_unavailable' }, 400],
    [{ mode: 'refuse', error: 'server_error' }, 400],
    [{ mode: 'refuse', error: 'slow_down' }, 400],
    [{ mode: 'status', status: 401, body: '{"error":"invalid_token"}' }, 400],
    [{ mode: 'status', status: 401 }, 503],
    [{ mode: 'status', status: 500 }, 503],
    [{ mode: 'status', status: 503, headers: { 'retry-after': '7' } }, 503],
    [{ mode: 'status', status: 429 }, 503],
    [{ mode: 'invalid_client' }, 503],
    [{ mode: 'refuse', error: 'unauthorized_client' }, 503],
    [{ mode: 'status', status: 302, headers: { location: 'https://evil.test' } }, 502],
    [{ mode: 'status', status: 502 }, 502],
    [{ mode: 'status', status: 504 }, 502],
    [{ mode: 'html' }, 502],
    [{ mode: 'truncated' }, 502],
    [{ mode: 'drop' }, 502],
    [{ mode: 'cut' }, 502],
    [{ mode: 'hang' }, 504],
    [{ mode: 'stall' }, 504],
  ] as const) {
    const { sandbox, bff, browser } = await signedIn(status === 504 ? { TOKEN_TIMEOUT_MS: '300' } : {})
    const cookies = new Map(browser.cookies)
    sandbox.faults.set({ tokenEndpoint: fault })
    const reason = status === 400 ? 'login_failed' : 'unavailable'
    const failures = () => counted([bff], `bff_sign_in_failures_total{reason="${reason}"}`)
    const what = JSON.stringify(fault)
    const before = await failures()
    const logged = logLines(bff.log(), 'login.failed').length
    let attempts = 0
    // Within a short timeout a process that is held up does not send the code.
    const answer = await unlessHeldUp(100, async () => {
      attempts += 1
      const answer = await signIn(browser, sandbox, '/app?x=1')
      if (sandbox.journal.entries({ endpoint: 'token' }).length === 0)
        throw new Error(`${what}: the code is not sent, ${answer.status}`)
      return answer
    })
    isRetryPage(t, answer, status, what)
    t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, 1, what)
    t.strictSame(browser.cookies, cookies, `${what}: the login cookie is gone`)
    t.notMatch(answer.text, /invalid_client|unauthorized|evil/, what)
    t.equal(await failures(), before + attempts, what)
    const lines = logLines(bff.log(), 'login.failed').slice(logged)
    // Nobody can sign in until that is fixed.
    t.equal(lines.at(-1)?.level, OF_THE_CLIENT.test(what) ? 'error' : 'warn', what)
    t.equal(lines.length, attempts, what)
    t.equal((await browser.fetch('/flux/a')).status, 200, what)
  }
})

t.test('an unreachable token endpoint gets a 503 page', async (t) => {
  const { sandbox, bff } = await shared({ OAUTH_TOKEN_URL: 'http://127.0.0.1:9/token' })
  isRetryPage(t, await signIn(bff.browser(), sandbox, '/app?x=1'), 503, 'refused')
})

t.test('tokens that cannot be stored are revoked and never start a session', async (t) => {
  const { sandbox, redis, bff } = await signedInOverRedis(t)
  const browser = bff.browser()
  const back = await begin(browser, sandbox, { query: '?returnTo=%2Fapp%3Fx%3D1' })
  const gate = sandbox.hold('token', { point: 'after' })
  const returning = comeBack(browser, back)
  await gate.arrived
  redis.pause()
  gate.release()
  isRetryPage(t, await returning, 503, 'the tokens came, and could not be kept')
  await sandbox.journal.until({ endpoint: 'revoke' })
  redis.resume()
  await untilReady(bff)
  t.strictSame([...browser.cookies.keys()], [], 'no login cookie either')
  const anonymous = { authenticated: false, loginUrl: '/auth/login' }
  t.strictSame((await browser.fetch('/auth/session')).json(), anonymous)
})
