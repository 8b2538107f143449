import t from 'tap'
import { counted } from '../flows/load.ts'
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

t.test('any other error returns to the app as one of two codes', async (t) => {
  const { bff } = await shared()
  for (const [error, loginError] of [
    ['server_error', 'server_error'],
    ['temporarily_unavailable', 'temporarily_unavailable'],
    ['invalid_scope', 'server_error'],
    ['unauthorized_client', 'server_error'],
    ['<script>alert(1)</script>', 'server_error'],
    ['a\r\nSet-Cookie: x=1', 'server_error'],
  ] as const) {
    const browser = bff.browser()
    const start = await browser.navigate('/auth/login?returnTo=/app')
    const back = new URL(new URL(String(start.headers.location)).searchParams.get('redirect_uri')!)
    const more = { error_description: 'long-story', error_uri: 'https://evil.test' }
    back.search = String(new URLSearchParams({ error, ...more }))
    const answer = await comeBack(browser, back.href)
    t.equal(answer.headers.location, `/app?login_error=${loginError}#_`, error)
    t.equal(answer.text, '')
  }
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
