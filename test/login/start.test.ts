import { createHash } from 'node:crypto'
import t from 'tap'
import { CLIENT, signIn, startBff, startSandbox } from '../helpers/system.ts'
import { ask, field, portOf, problemOf } from '../http/wire.ts'

t.test('sign-in sends the browser to the authorization server with each parameter once', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const { status, headers } = await bff.browser().navigate('/auth/login?returnTo=/app')
  t.equal(status, 303)
  t.equal(headers['cache-control'], 'no-store')
  t.equal(headers['referrer-policy'], 'no-referrer')
  const url = new URL(String(headers.location))
  t.equal(url.origin + url.pathname, `${sandbox.authUrl}/oauth/authorize`)
  const names = [...url.searchParams.keys()].sort()
  t.strictSame(names, [
    'client_id',
    'code_challenge',
    'code_challenge_method',
    'redirect_uri',
    'response_type',
    'scope',
    'state',
  ])
  const { redirect_uri, state, code_challenge, ...fixed } = Object.fromEntries(url.searchParams)
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
  const bff = await startBff(t, await startSandbox(t), { LOGIN_RATE_PER_MINUTE: '0' })
  const seen = new Set<string>()
  for (let i = 0; i < 50; i += 1) {
    const { headers } = await bff.browser().navigate('/auth/login')
    const { searchParams } = new URL(String(headers.location))
    seen.add(searchParams.get('redirect_uri')!)
    seen.add(searchParams.get('state')!)
    seen.add(searchParams.get('code_challenge')!)
  }
  t.equal(seen.size, 150)
})

t.test('the verifier matches the challenge, and both requests have the same redirect_uri', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
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
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { OAUTH_PKCE: 'off' })
  t.equal((await signIn(bff.browser(), sandbox)).status, 303)
  const [authorize] = sandbox.journal.entries({ endpoint: 'authorize' })
  const [token] = sandbox.journal.entries({ endpoint: 'token' })
  t.notOk(authorize?.url.includes('code_challenge'))
  t.notOk(token?.form && 'code_verifier' in token.form)
})

t.test('own URLs come from the configuration and never from request headers', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, {
    OAUTH_AUTHORIZE_URL: 'https://login.test/deep/authorize',
    OAUTH_SCOPE: 'read write',
  })
  const answer = await ask(portOf(bff), {
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
})

t.test('a navigation from another site gets a page with a button and no cookie', async (t) => {
  const port = portOf(await startBff(t, await startSandbox(t)))
  const answer = await ask(port, {
    target: `/auth/login?returnTo=${encodeURIComponent('/a?b="><script>alert(1)</script>&c=1')}`,
    headers: [
      ['Sec-Fetch-Mode', 'navigate'],
      ['Sec-Fetch-Site', 'cross-site'],
    ],
  })
  t.equal(answer.status, 200)
  t.match(field(answer, 'content-type'), /^text\/html/)
  t.notOk(answer.headers.has('set-cookie'))
  t.notOk(answer.headers.has('location'))
  t.match(field(answer, 'content-security-policy'), /default-src 'none'.*frame-ancestors 'none'/)
  t.notMatch(answer.body, /<script|alert\(1\)<|http-equiv/i)
  const [, href] = /<a href="([^"]+)" role="button">/.exec(answer.body)!
  const target = href!.replaceAll(/&#(\d+);/g, (_all, code) => String.fromCharCode(Number(code)))
  const start = await ask(port, {
    target,
    headers: [
      ['Sec-Fetch-Mode', 'navigate'],
      ['Sec-Fetch-Site', 'same-origin'],
    ],
  })
  t.equal(start.status, 303, 'the button leads on')
  t.ok(start.headers.has('set-cookie'))
})

t.test('a request that does not navigate gets 403 and no cookie', async (t) => {
  const port = portOf(await startBff(t, await startSandbox(t)))
  for (const mode of ['cors', 'no-cors', 'same-origin', 'websocket', '']) {
    const answer = await ask(port, {
      target: '/auth/login',
      headers: [
        ['Sec-Fetch-Mode', mode],
        ['Sec-Fetch-Site', 'same-origin'],
      ],
    })
    t.equal(answer.status, 403, mode)
    t.match(problemOf(answer), { code: 'cross_origin' })
    t.notOk(answer.headers.has('set-cookie'))
  }
})

t.test('a browser without Fetch Metadata is redirected', async (t) => {
  const port = portOf(await startBff(t, await startSandbox(t)))
  t.equal((await ask(port, { target: '/auth/login' })).status, 303)
})

t.test('a navigation gets a problem as a page, any other request as JSON', async (t) => {
  const port = portOf(await startBff(t, await startSandbox(t)))
  const target = '/auth/login?returnTo=//evil.test'
  for (const headers of [
    [['Sec-Fetch-Mode', 'navigate']],
    [['Accept', 'text/html,application/xhtml+xml']],
    [
      ['Sec-Fetch-Mode', 'navigate'],
      ['Accept', 'application/json'],
    ],
  ] as const) {
    const answer = await ask(port, { target, headers })
    t.equal(answer.status, 400)
    t.match(field(answer, 'content-type'), /^text\/html/)
    t.notMatch(answer.body, /evil/)
    t.match(answer.body, field(answer, 'x-request-id')!)
  }
  for (const headers of [[], [['Accept', 'application/json']], [['Accept', '*/*']]] as const) {
    const answer = await ask(port, { target, headers })
    t.match(field(answer, 'content-type'), /^application\/problem\+json/)
    t.match(problemOf(answer), { code: 'invalid_return_to' })
  }
})

t.test('a navigation with a wrong method gets a page too', async (t) => {
  const port = portOf(await startBff(t, await startSandbox(t)))
  for (const target of ['/auth/login', `/auth/callback/${'A'.repeat(43)}`]) {
    const question = { method: 'POST', target, body: 'code=hidden' }
    const page = await ask(port, { ...question, headers: [['Sec-Fetch-Mode', 'navigate']] })
    t.equal(page.status, 405, target)
    t.equal(field(page, 'allow'), 'GET', target)
    t.match(field(page, 'content-type'), /^text\/html/, target)
    t.notMatch(page.body, /hidden/)
    t.match(problemOf(await ask(port, question)), { code: 'method_not_allowed' }, target)
  }
})

t.test('a flow that OAUTH_FLOWS does not name gets 400', async (t) => {
  const port = portOf(await startBff(t, await startSandbox(t)))
  t.equal((await ask(port, { target: '/auth/login?flow=code' })).status, 303)
  for (const query of ['flow=token', 'flow=password', 'flow=', 'flow=code&flow=code']) {
    const answer = await ask(port, { target: `/auth/login?${query}` })
    t.equal(answer.status, 400, query)
    t.match(problemOf(answer), { code: 'invalid_request', detail: /flow/ }, query)
  }
})

t.test('a sign-in starts while the store is down', async (t) => {
  const bff = await startBff(t, await startSandbox(t), { REDIS_URL: 'redis://127.0.0.1:9' })
  const answer = await bff.browser().navigate('/auth/login')
  t.equal(answer.status, 303)
  t.equal(answer.setCookies.length, 1)
})

t.test('a sign-in does not start in a frame', async (t) => {
  const bff = await startBff(t, await startSandbox(t))
  for (const destination of ['iframe', 'frame', 'embed', 'object']) {
    const answer = await bff.browser().navigate('/auth/login', { headers: { 'sec-fetch-dest': destination } })
    t.equal(answer.status, 403, destination)
    t.strictSame(answer.setCookies, [])
  }
})
