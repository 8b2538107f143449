import t from 'tap'
import { decide, signIn, startBff, startSandbox } from '../helpers/system.ts'
import { ask, field, portOf } from '../http/wire.ts'

t.test('a sign-in returns to its address with the fragment, or with #_ where it has none', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  for (const [returnTo, location] of [
    ['/', '/#_'],
    ['/app?x=1', '/app?x=1#_'],
    ['/app#/deep', '/app#/deep'],
    ['/app?x=1#', '/app?x=1#_'],
  ] as const) {
    const back = await signIn(bff.browser(), sandbox, returnTo)
    t.equal(back.status, 303)
    t.equal(back.headers.location, location, returnTo)
    t.equal(back.text, '', 'no page in between')
    t.equal(back.headers['cache-control'], 'no-store')
    t.equal(back.headers['referrer-policy'], 'no-referrer')
  }
})

t.test('a sign-in sets the two session cookies and clears its login cookie', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const browser = bff.browser()
  const { setCookies } = await signIn(browser, sandbox)
  t.equal(setCookies.length, 3)
  t.match(setCookies.map((line) => line.split('=', 1)[0]).sort(), [/^login-/, /^record$/, /^session$/])
  t.strictSame([...browser.cookies.keys()].sort(), ['record', 'session'])
})

t.test('each sign-in has a new session id and ends the previous session', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const browser = bff.browser()
  const old: string[] = []
  for (let i = 0; i < 3; i += 1) {
    await signIn(browser, sandbox)
    const { value, strict } = browser.cookies.get('session')!
    t.ok(strict, 'the session cookie did not travel with the callback')
    t.notOk(old.includes(value))
    for (const session of old) {
      const answer = await ask(portOf(bff), {
        target: '/flux/a',
        headers: [
          ['X-CSRF', '1'],
          ['Cookie', `session=${session}`],
        ],
      })
      t.equal(answer.status, 401)
    }
    t.equal((await browser.fetch('/flux/a')).status, 200)
    old.push(value)
  }
})

t.test('a session id from the browser is never signed in', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const [attacker, victim] = [bff.browser(), bff.browser()]
  await signIn(attacker, sandbox)
  const planted = attacker.cookies.get('session')!
  await attacker.fetch('/auth/logout', { method: 'POST' })
  for (const value of [planted.value, `${'A'.repeat(43)}.${'B'.repeat(43)}`, 'x']) {
    victim.cookies.set('session', { value, strict: false })
    await signIn(victim, sandbox)
    t.not(victim.cookies.get('session')!.value, value)
    victim.cookies.set('session', { value, strict: false })
    t.equal((await victim.fetch('/flux/a')).status, 401)
  }
})

t.test('a live session that an attacker planted does not become the session of the victim', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const [attacker, victim] = [bff.browser(), bff.browser()]
  await signIn(attacker, sandbox)
  const planted = attacker.cookies.get('session')!.value
  victim.cookies.set('session', { value: planted, strict: false })
  const start = await victim.navigate('/auth/login')
  const bob = { username: 'bob', password: 'builder' }
  const back = await decide(sandbox, String(start.headers.location), 'accept', bob)
  t.equal((await victim.navigate(back, { from: 'cross-site' })).status, 303)
  t.not(victim.cookies.get('session')!.value.split('.')[0], planted.split('.')[0])
  t.equal((await attacker.fetch('/flux/a')).status, 401, 'the planted one is over')
  sandbox.journal.clear()
  await victim.fetch('/flux/a')
  t.equal(sandbox.journal.entries({ kind: 'GetFlux' })[0]?.username, 'bob')
})

t.test('a refusal by the user returns to the app with login_error', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const browser = bff.browser()
  const start = await browser.navigate(`/auth/login?returnTo=${encodeURIComponent('/app?x=1#deep')}`)
  const back = await decide(sandbox, String(start.headers.location), 'refuse')
  const answer = await browser.navigate(back, { from: 'cross-site' })
  t.equal(answer.status, 303)
  t.equal(answer.headers.location, '/app?x=1&login_error=access_denied#deep')
  const metrics = await (await fetch(`${bff.opsUrl}/metrics`)).text()
  t.match(metrics, 'bff_sign_in_failures_total{reason="refused"} 1')
  t.equal(browser.cookies.size, 0, 'the login cookie is gone and there is no other')
  t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, 0)
})

t.test('any other error returns to the app as one of two codes', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
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
    back.searchParams.set('error', error)
    back.searchParams.set('error_description', 'long-story')
    back.searchParams.set('error_uri', 'https://evil.test')
    const answer = await browser.navigate(back.href, { from: 'cross-site' })
    t.equal(answer.headers.location, `/app?login_error=${loginError}#_`, error)
    t.equal(answer.text, '')
  }
})

t.test('an error response to a new sign-in does not end the session', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  const start = await browser.navigate('/auth/login')
  await browser.navigate(await decide(sandbox, String(start.headers.location), 'refuse'), {
    from: 'cross-site',
  })
  t.equal((await browser.fetch('/flux/a')).status, 200)
})

t.test('unknown parameters of a callback are ignored', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const browser = bff.browser()
  const start = await browser.navigate('/auth/login?returnTo=/app')
  const back = await decide(sandbox, String(start.headers.location))
  const answer = await browser.navigate(`${back}&session_state=1&x=1&access_token=abc`, {
    from: 'cross-site',
  })
  t.equal(answer.headers.location, '/app#_')
})

t.test('a returned state is accepted if it is the one sent', async (t) => {
  const sandbox = await startSandbox(t, { faults: { state: 'echo' } })
  const bff = await startBff(t, sandbox)
  t.equal((await signIn(bff.browser(), sandbox, '/app')).headers.location, '/app#_')
})

t.test('the issuer is compared only if OAUTH_ISSUER is set', async (t) => {
  const sandbox = await startSandbox(t, { faults: { issuer: 'https://issuer.test/' } })
  const callback = async (env: Record<string, string>): Promise<number> =>
    (await signIn((await startBff(t, sandbox, env)).browser(), sandbox)).status
  t.equal(await callback({}), 303)
  t.equal(await callback({ OAUTH_ISSUER: 'https://issuer.test/' }), 303)
  sandbox.journal.clear()
  t.equal(await callback({ OAUTH_ISSUER: 'https://issuer.test' }), 400, 'to the letter')
  t.equal(await callback({ OAUTH_ISSUER: 'https://other.test' }), 400)
  t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, 0, 'no token request')
})

t.test('with OAUTH_REDIRECT=fixed the state names the sign-in and is required', async (t) => {
  const sandbox = await startSandbox(t, { faults: { state: 'echo' } })
  const bff = await startBff(t, sandbox, { OAUTH_REDIRECT: 'fixed' })
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

t.test('a session without a refresh token lasts as long as its access token', async (t) => {
  const sandbox = await startSandbox(t, { faults: { omitRefreshToken: true } })
  const bff = await startBff(t, sandbox)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  const session = (await browser.fetch('/auth/session')).json()
  t.match(session, { authenticated: true, refreshable: false })
  t.equal(session.expiresAt, session.accessTokenExpiresAt)
})

t.test('the callback accepts no method but GET', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const browser = bff.browser()
  const start = await browser.navigate('/auth/login')
  const back = new URL(await decide(sandbox, String(start.headers.location)))
  const cookie = [...browser.cookies].map(([name, { value }]) => `${name}=${value}`).join('; ')
  for (const method of ['HEAD', 'POST', 'OPTIONS']) {
    const answer = await ask(portOf(bff), {
      method,
      target: back.pathname + back.search,
      headers: [['Cookie', cookie]],
    })
    t.equal(answer.status, 405, method)
    t.equal(field(answer, 'allow'), 'GET')
  }
  t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, 0, 'nothing is redeemed')
  t.equal((await browser.navigate(back.href, { from: 'cross-site' })).status, 303)
})
