import t from 'tap'
import { counted } from '../flows/load.ts'
import type { Answer, Browser } from '../helpers/browser.ts'
import { logLines } from '../helpers/log-lines.ts'
import { shared, signedIn } from '../helpers/shared.ts'
import { decide, signIn } from '../helpers/system.ts'
import { ask, OWN } from '../http/wire.ts'
import { begin, comeBack } from './sign-ins.ts'

t.test('a sign-in returns to its address with the fragment, or with #_ where it has none', async (t) => {
  const { sandbox, bff } = await shared()
  for (const [returnTo, location] of [
    ['/', '/#_'],
    ['/app?x=1', '/app?x=1#_'],
    ['/app#/deep', '/app#/deep'],
    ['/app?x=1#', '/app?x=1#_'],
  ] as const) {
    const browser = bff.browser()
    const back = await signIn(browser, sandbox, returnTo)
    t.equal(back.status, 303)
    t.equal(back.headers.location, location, returnTo)
    t.equal(back.text, '', 'no page in between')
    t.equal(back.headers['cache-control'], 'no-store')
    t.equal(back.headers['referrer-policy'], 'no-referrer')
    t.match(back.setCookies.map((line) => line.split('=', 1)[0]).sort(), [/^login-/, /^record$/, /^session$/])
    t.strictSame([...browser.cookies.keys()].sort(), ['record', 'session'], 'the login cookie is cleared')
  }
})

t.test('each sign-in has a new session id and ends the previous session', async (t) => {
  const { sandbox, bff, port } = await shared()
  const browser = bff.browser()
  const old: string[] = []
  for (let i = 0; i < 3; i += 1) {
    await signIn(browser, sandbox)
    const { value, strict } = browser.cookies.get('session')!
    t.ok(strict, 'the session cookie did not travel with the callback')
    t.notOk(old.includes(value))
    for (const session of old) {
      const headers = [OWN, ['Cookie', `session=${session}`]] as const
      t.equal((await ask(port, { target: '/flux/a', headers })).status, 401)
    }
    t.equal((await browser.fetch('/flux/a')).status, 200)
    old.push(value)
  }
})

t.test('a live session that an attacker planted does not become the session of the victim', async (t) => {
  const { sandbox, bff, browser: attacker } = await signedIn()
  const victim = bff.browser()
  const planted = attacker.cookies.get('session')!.value
  victim.cookies.set('session', { value: planted, strict: false })
  const start = await victim.navigate('/auth/login')
  const bob = { username: 'bob', password: 'builder' }
  const back = await decide(sandbox, String(start.headers.location), 'accept', bob)
  t.equal((await comeBack(victim, back)).status, 303)
  t.not(victim.cookies.get('session')!.value.split('.')[0], planted.split('.')[0])
  t.equal((await attacker.fetch('/flux/a')).status, 401, 'the planted one is over')
  sandbox.journal.clear()
  await victim.fetch('/flux/a')
  t.equal(sandbox.journal.entries({ kind: 'GetFlux' })[0]?.username, 'bob')
})

t.test('a refusal by the user returns to the app with login_error, and no session changes', async (t) => {
  const { sandbox, bff, browser } = await signedIn()
  const before = new Map(browser.cookies)
  const query = `?returnTo=${encodeURIComponent('/app?x=1#deep')}`
  const answer = await comeBack(browser, await begin(browser, sandbox, { query, decision: 'refuse' }))
  t.equal(answer.status, 303)
  t.equal(answer.headers.location, '/app?x=1&login_error=access_denied#deep')
  t.ok((await counted([bff], 'bff_sign_in_failures_total{reason="refused"}')) > 0)
  t.strictSame(browser.cookies, before, 'the login cookie is gone and the session lives on')
  t.equal((await browser.fetch('/flux/a')).status, 200)
  t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, 0)
})

/** The answer to a callback with this error, at the end of a sign-in that comes back to /app. */
async function comeBackWith(browser: Browser, error: string): Promise<Answer> {
  const start = await browser.navigate('/auth/login?returnTo=/app')
  const back = new URL(new URL(String(start.headers.location)).searchParams.get('redirect_uri')!)
  const more = { error_description: 'long-story', error_uri: 'https://evil.test' }
  back.search = String(new URLSearchParams({ error, ...more }))
  return await comeBack(browser, back.href)
}

t.test('an error returns to the app as one of three codes, and the log has it with its level', async (t) => {
  for (const [error, loginError, logged = error] of [
    ['access_denied', 'access_denied'],
    ['consent_required', 'access_denied'],
    ['interaction_required', 'access_denied'],
    ['login_required', 'access_denied'],
    ['account_selection_required', 'access_denied'],
    ['server_error', 'server_error'],
    ['temporarily_unavailable', 'temporarily_unavailable'],
    ['invalid_scope', 'server_error'],
    ['unauthorized_client', 'server_error'],
    ['request_forbidden', 'server_error'],
    ['<script>alert(1)</script>', 'server_error', 'other'],
    ['a\r\nSet-Cookie: x=1', 'server_error', 'other'],
    ['A', 'server_error', 'other'],
    ['a'.repeat(65), 'server_error', 'other'],
  ] as const) {
    const { bff } = await shared()
    const answer = await comeBackWith(bff.browser(), error)
    t.equal(answer.headers.location, `/app?login_error=${loginError}#_`, error)
    t.equal(answer.text, '')
    const [line, ...others] = logLines(bff.log(), 'login.refused')
    t.match(line, { error: logged, level: loginError === 'access_denied' ? 'info' : 'warn' })
    t.strictSame(others, [])
    t.notMatch(JSON.stringify(line), /long-story|evil/, 'only the code')
  }
})

t.test('an error that is not the user is none in a browser that has signed in meanwhile', async (t) => {
  const { bff, browser } = await signedIn()
  const failures = () => counted([bff], 'bff_sign_in_failures_total{reason="server_error"}')
  const before = await failures()
  for (const error of ['request_forbidden', 'temporarily_unavailable', 'server_error'])
    t.equal((await comeBackWith(browser, error)).headers.location, '/app#_', error)
  t.equal(await failures(), before)
  const refused = await comeBackWith(browser, 'access_denied')
  t.equal(refused.headers.location, '/app?login_error=access_denied#_', 'a refusal is told')
  await browser.fetch('/auth/logout', { method: 'POST' })
  const out = await comeBackWith(browser, 'request_forbidden')
  t.equal(out.headers.location, '/app?login_error=server_error#_', 'signed out')
})

t.test('the log has the description of a token error, without secrets', async (t) => {
  const { sandbox, bff } = await shared()
  const headers = { 'content-type': 'application/json' }
  const body = JSON.stringify({ error: 'invalid_grant', error_description: 'PKCE\u0007 of \u00e4 failed' })
  sandbox.faults.set({ tokenEndpoint: { mode: 'status', status: 400, headers, body } })
  t.equal((await signIn(bff.browser(), sandbox)).status, 400)
  const [line] = logLines(bff.log(), 'login.failed')
  t.match(line, { level: 'warn', outcome: 'refused', description: 'PKCE? of ? failed' })
})

t.test('the state that was sent is accepted, and unknown parameters are ignored', async (t) => {
  const { sandbox, bff } = await shared()
  sandbox.faults.set({ state: 'echo' })
  const browser = bff.browser()
  const back = await begin(browser, sandbox, { query: '?returnTo=/app' })
  t.match(back, 'state=')
  const more = '&session_state=1&x=1&access_token=abc'
  t.equal((await comeBack(browser, back + more)).headers.location, '/app#_')
})

t.test('the issuer is compared only if OAUTH_ISSUER is set', async (t) => {
  for (const [expected, status, what] of [
    [{}, 303, 'not set'],
    [{ OAUTH_ISSUER: 'https://issuer.test/' }, 303, 'the same'],
    [{ OAUTH_ISSUER: 'https://issuer.test' }, 400, 'to the letter'],
  ] as [Record<string, string>, number, string][]) {
    const { sandbox, bff } = await shared(expected)
    sandbox.faults.set({ issuer: 'https://issuer.test/' })
    t.equal((await signIn(bff.browser(), sandbox)).status, status, what)
    t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, status === 303 ? 1 : 0, what)
  }
})

t.test('with OAUTH_REDIRECT=fixed the state names the sign-in and is required', async (t) => {
  const { sandbox, bff } = await shared({ OAUTH_REDIRECT: 'fixed' })
  sandbox.faults.set({ state: 'echo' })
  const start = await bff.browser().navigate('/auth/login')
  const { searchParams } = new URL(String(start.headers.location))
  t.equal(searchParams.get('redirect_uri'), `${bff.publicUrl}/auth/callback`)
  t.equal((await signIn(bff.browser(), sandbox, '/app')).headers.location, '/app#_')
  const [token] = sandbox.journal.entries({ endpoint: 'token' })
  t.equal(token?.form?.redirect_uri, `${bff.publicUrl}/auth/callback`)
  sandbox.journal.clear()
  for (const state of ['none', 'wrong'] as const) {
    sandbox.faults.set({ state })
    t.equal((await signIn(bff.browser(), sandbox)).status, 400, state)
  }
  t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, 0, 'no token request')
})
