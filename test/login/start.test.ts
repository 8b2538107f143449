import { createHash } from 'node:crypto'
import t from 'tap'
import { counted } from '../flows/load.ts'
import { isProblem } from '../helpers/browser.ts'
import { isNoFault } from '../helpers/no-fault.ts'
import { shared } from '../helpers/shared.ts'
import { CLIENT, signIn } from '../helpers/system.ts'
import { ask, field, OWN, problemOf } from '../http/wire.ts'

t.test('sign-in sends the browser to the authorization server with each parameter once', async (t) => {
  const { sandbox, bff } = await shared()
  const { status, headers } = await bff.browser().navigate('/auth/login?returnTo=/app')
  t.equal(status, 303)
  t.equal(headers['cache-control'], 'no-store')
  t.equal(headers['referrer-policy'], 'no-referrer')
  const url = new URL(String(headers.location))
  t.equal(url.origin + url.pathname, `${sandbox.authUrl}/oauth/authorize`)
  const parameters = Object.fromEntries(url.searchParams)
  t.equal(url.searchParams.size, Object.keys(parameters).length)
  const { redirect_uri, state, code_challenge, ...fixed } = parameters
  t.strictSame(fixed, {
    client_id: CLIENT.clientId,
    response_type: 'code',
    scope: sandbox.baseUrl,
    code_challenge_method: 'S256',
  })
  t.match(redirect_uri, new RegExp(`^${bff.publicUrl}/auth/callback/[A-Za-z0-9_-]{43}$`))
  t.match(state, /^[A-Za-z0-9_-]{43}$/)
  t.match(code_challenge, /^[A-Za-z0-9_-]{43}$/)
})

t.test('no two sign-ins share a nonce, a state or a challenge', async (t) => {
  const { bff } = await shared()
  const seen = new Set<string | null>()
  for (let i = 0; i < 10; i += 1) {
    const { headers } = await bff.browser().navigate('/auth/login')
    const { searchParams } = new URL(String(headers.location))
    for (const name of ['redirect_uri', 'state', 'code_challenge']) seen.add(searchParams.get(name))
  }
  t.equal(seen.size, 30)
})

t.test('the verifier matches the challenge, and both requests have the same redirect_uri', async (t) => {
  const { sandbox, bff } = await shared()
  t.equal((await signIn(bff.browser(), sandbox)).status, 303)
  const [authorize] = sandbox.journal.entries({ endpoint: 'authorize' })
  const [token] = sandbox.journal.entries({ endpoint: 'token' })
  const verifier = String(token?.form?.code_verifier)
  t.equal(createHash('sha256').update(verifier).digest('base64url'), authorize?.query.code_challenge)
  t.equal(token?.form?.redirect_uri, authorize?.query.redirect_uri)
  t.equal(token?.form?.client_secret, CLIENT.clientSecret)
  t.equal(token?.headers.authorization, undefined)
})

t.test('with OAUTH_PKCE=off neither challenge nor verifier is sent', async (t) => {
  const { sandbox, bff } = await shared({ OAUTH_PKCE: 'off' })
  t.equal((await signIn(bff.browser(), sandbox)).status, 303)
  const [authorize] = sandbox.journal.entries({ endpoint: 'authorize' })
  const [token] = sandbox.journal.entries({ endpoint: 'token' })
  t.notOk(authorize?.url.includes('code_challenge'))
  t.notOk(token?.form && 'code_verifier' in token.form)
})

t.test('own URLs come from the configuration and never from request headers', async (t) => {
  const { bff, port } = await shared({
    OAUTH_AUTHORIZE_URL: 'https://login.test/deep/authorize',
    OAUTH_SCOPE: 'read write',
  })
  const answer = await ask(port, {
    target: '/auth/login',
    noHost: true,
    headers: [
      ['Host', 'evil.test'],
      // It has been sent to PUBLIC_URL, so a reverse proxy changes `Host`.
      ['Cookie', 'sign-in-sent=1'],
      ['X-Forwarded-Host', 'evil.test'],
      ['X-Forwarded-Proto', 'gopher'],
      ['Forwarded', 'host=evil.test'],
    ],
  })
  const url = new URL(field(answer, 'location')!)
  t.equal(url.origin + url.pathname, 'https://login.test/deep/authorize')
  t.ok(url.searchParams.get('redirect_uri')?.startsWith(`${bff.publicUrl}/auth/callback/`))
  t.equal(url.searchParams.get('scope'), 'read write')
  t.notMatch(JSON.stringify([...answer.headers]), /evil/)
  t.match(bff.log(), '"event":"login.other_host"')
})

t.test('a navigation from another site gets a page with a button and no cookie', async (t) => {
  const { port } = await shared()
  const from = (site: string) =>
    [
      ['Sec-Fetch-Mode', 'navigate'],
      ['Sec-Fetch-Site', site],
    ] as const
  const answer = await ask(port, {
    target: `/auth/login?returnTo=${encodeURIComponent('/a?b="><script>alert(1)</script>&c=1')}`,
    headers: from('cross-site'),
  })
  t.equal(answer.status, 200)
  t.match(field(answer, 'content-type'), /^text\/html/)
  t.notOk(answer.headers.has('set-cookie'))
  t.notOk(answer.headers.has('location'))
  t.match(field(answer, 'content-security-policy'), /default-src 'none'.*frame-ancestors 'none'/)
  t.notMatch(answer.body, /<script|alert\(1\)<|http-equiv/i)
  const [, href] = /<a href="([^"]+)" role="button">/.exec(answer.body)!
  const target = href!.replaceAll(/&#(\d+);/g, (_all, code) => String.fromCharCode(Number(code)))
  const start = await ask(port, { target, headers: from('same-origin') })
  t.equal(start.status, 303, 'the button leads on')
  t.ok(start.headers.has('set-cookie'))
})

t.test('a sign-in does not start in a frame, and not without a navigation', async (t) => {
  const { port } = await shared()
  for (const [mode, destination] of [
    ...['cors', 'no-cors', 'same-origin', 'websocket', ''].map((mode) => [mode, 'empty'] as const),
    ...['iframe', 'frame', 'embed', 'object'].map((destination) => ['navigate', destination] as const),
  ]) {
    const headers = [OWN, ['Sec-Fetch-Mode', mode], ['Sec-Fetch-Dest', destination]] as const
    const answer = await ask(port, { target: '/auth/login', headers: [...headers, ['Accept', '*/*']] })
    t.equal(answer.status, 403, `${mode} ${destination}`)
    t.notOk(answer.headers.has('set-cookie'))
  }
})

t.test('a flow that OAUTH_FLOWS does not name gets 400', async (t) => {
  const { port } = await shared()
  t.equal((await ask(port, { target: '/auth/login?flow=code' })).status, 303)
  for (const query of ['flow=token', 'flow=password', 'flow=', 'flow=code&flow=code']) {
    const answer = await ask(port, { target: `/auth/login?${query}` })
    t.match(problemOf(answer), { status: 400, code: 'invalid_request', detail: /flow/ }, query)
  }
})

t.test('without STATIC_DIR a navigation to / gets a page that leads to the sign-in', async (t) => {
  const browser = (await shared()).bff.browser()
  for (const path of ['/', '/?login_error=access_denied']) {
    const page = await browser.navigate(path)
    t.equal(page.status, 200, path)
    t.match(page.text, 'href="/auth/login">Sign in</a>', path)
    t.match(page.headers.vary, 'sec-fetch-mode', path)
  }
  isProblem(t, await browser.fetch('/'), 404, 'not_found', 'a fetch')
  isProblem(t, await browser.navigate('/index.html'), 404, 'not_found', 'another path')
})

t.test('a prefetch begins no sign-in and is not counted', async (t) => {
  const { bff } = await shared({ LOGIN_RATE_PER_MINUTE: '1' })
  const failures = () => counted([bff], 'bff_sign_in_failures_total{reason="unavailable"}')
  const before = await failures()
  for (const purpose of ['prefetch', 'prefetch;prerender', 'prefetch;anonymous-client-ip']) {
    const browser = bff.browser()
    const answer = await browser.navigate('/auth/login', { headers: { 'sec-purpose': purpose } })
    t.equal(answer.status, 503, purpose)
    t.strictSame(answer.setCookies, [])
    t.equal(answer.headers.location, undefined)
    t.equal(answer.headers['cache-control'], 'no-store')
  }
  t.equal((await bff.browser().navigate('/auth/login')).status, 303, 'it did not count towards the limit')
  t.equal(await failures(), before)
  await isNoFault(t, bff, { path: '/auth/login', responses: 3 })
})

t.test('a return address under another name, or cut at an &, is refused with the right one', async (t) => {
  const { bff } = await shared()
  for (const [query, says] of [
    ['return_to=/app', /parameter return_to is not known: the return address is the parameter returnTo/],
    ['returnUrl=/app', /parameter returnUrl is not known: the return address is the parameter returnTo/],
    ['redirect_uri=/app', /parameter returnTo/],
    ['next=/app', /parameter returnTo/],
    ['ReturnTo=/app', /parameter ReturnTo is not known: the return address is the parameter returnTo/],
    ['returnTo=/report?from=1&to=2', /parameter to is not known: .*returnTo= and encodeURIComponent/],
    ['returnTo=/app&%0A=1', /Parameter 2 of the query is not known/],
  ] as const) {
    const page = await bff.browser().navigate(`/auth/login?${query}`)
    t.equal(page.status, 400, query)
    t.match(page.text.replaceAll('&#38;', '&'), says)
    t.strictSame(page.setCookies, [])
  }
  const whole = encodeURIComponent('/report?from=1&to=2')
  t.equal((await bff.browser().navigate(`/auth/login?returnTo=${whole}&flow=code`)).status, 303)
})

t.test('OAUTH_AUTHORIZE_PARAMS are part of each sign-in', async (t) => {
  const { bff, sandbox } = await shared({ OAUTH_AUTHORIZE_PARAMS: 'prompt=consent&nonce={random}' })
  t.equal((await signIn(bff.browser(), sandbox)).status, 303)
  const [authorize] = sandbox.journal.entries({ endpoint: 'authorize' })
  t.match(authorize?.query, { prompt: 'consent', nonce: /^[A-Za-z0-9_-]{22}$/ })
})
