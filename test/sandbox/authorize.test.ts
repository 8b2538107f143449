import t from 'tap'
import { authorizeUrl, decide, locationOf, REDIRECT_URI, startSandbox } from './started.ts'

const INNOCENT_PATH = '/auth/callback'

t.test('the page shows the client, escaped, and runs no script', async (t) => {
  const sandbox = await startSandbox(t, {
    client: { clientId: '<b>&"client', clientSecret: 's', callback: REDIRECT_URI },
  })
  const response = await fetch(authorizeUrl(sandbox, { client_id: '<b>&"client' }))
  const html = await response.text()
  t.equal(response.status, 200)
  t.match(response.headers.get('content-type'), 'text/html')
  t.match(response.headers.get('content-security-policy'), "default-src 'none'")
  t.notMatch(response.headers.get('content-security-policy'), 'form-action')
  t.match(html, '&#60;b&#62;&#38;&#34;client')
  t.notMatch(html, '<b>')
  t.match(html, 'name="viewport"')
})

t.test('a redirect address on another host name gets a page, never a redirect', async (t) => {
  const sandbox = await startSandbox(t)
  const hostile = [
    null,
    '',
    '/auth/callback',
    `http://evil.example${INNOCENT_PATH}`,
    `http://app.localhost.evil.example${INNOCENT_PATH}`,
    `http://app.localhost@evil.example${INNOCENT_PATH}`,
    `http://user@app.localhost:3000${INNOCENT_PATH}`,
    `http://evil.example\\@app.localhost${INNOCENT_PATH}`,
    `//app.localhost${INNOCENT_PATH}`,
    `javascript://app.localhost/%0aalert(1)`,
    `http://app.localhost:3000${INNOCENT_PATH}#fragment`,
    `http://app.localhost:3000/a\nb`,
    'http://app.localhost:99999/',
  ]
  for (const redirectUri of hostile) {
    const response = await decide(authorizeUrl(sandbox, { redirect_uri: redirectUri }))
    t.equal(response.status, 400, JSON.stringify(redirectUri))
    t.equal(response.headers.get('location'), null)
  }
  const otherPort = await decide(authorizeUrl(sandbox, { redirect_uri: 'https://app.localhost/other?x=1' }))
  t.match(otherPort.headers.get('location'), /^https:\/\/app\.localhost\/other\?x=1&code=/)
})

t.test('an unknown or repeated client gets a page, never a redirect', async (t) => {
  const sandbox = await startSandbox(t)
  const url = authorizeUrl(sandbox)
  for (const wrong of [authorizeUrl(sandbox, { client_id: 'other' }), `${url}&client_id=the+client%2F1`]) {
    const response = await decide(wrong)
    t.equal(response.status, 400)
    t.equal(response.headers.get('location'), null)
  }
})

t.test('other faults of the request are reported to the client', async (t) => {
  const sandbox = await startSandbox(t)
  const cases = [
    { changes: { response_type: 'id_token' }, error: 'unsupported_response_type' },
    { changes: { response_type: null }, error: 'invalid_request' },
    { changes: { scope: 'openid profile' }, error: 'invalid_scope' },
    { changes: { code_challenge: 'a'.repeat(43) }, error: 'invalid_request' },
    { changes: { code_challenge: 'short', code_challenge_method: 'S256' }, error: 'invalid_request' },
  ]
  for (const { changes, error } of cases) {
    const response = await fetch(authorizeUrl(sandbox, changes), { redirect: 'manual' })
    t.equal(locationOf(response).searchParams.get('error'), error, JSON.stringify(changes))
  }
})

t.test('the redirect can carry state, iss or an error when a switch says so', async (t) => {
  const sandbox = await startSandbox(t)
  const url = authorizeUrl(sandbox, { state: 'a b&c' })
  sandbox.faults.set({ state: 'echo', issuer: 'https://issuer.example' })
  const { searchParams } = locationOf(await decide(url))
  t.equal(searchParams.get('state'), 'a b&c')
  t.equal(searchParams.get('iss'), 'https://issuer.example')
  sandbox.faults.set({ state: 'wrong' })
  t.not(locationOf(await decide(url)).searchParams.get('state'), 'a b&c')
  sandbox.faults.set({ authorizeError: 'temporarily_unavailable' })
  const failed = locationOf(await decide(url)).searchParams
  t.equal(failed.get('error'), 'temporarily_unavailable')
  t.notOk(failed.has('code'))
})

t.test('exactRedirect accepts only the registered callback', async (t) => {
  const sandbox = await startSandbox(t, { faults: { exactRedirect: true } })
  t.equal((await decide(authorizeUrl(sandbox))).status, 400)
  const registered = { redirect_uri: 'http://app.localhost:3000/auth/callback' }
  t.equal((await decide(authorizeUrl(sandbox, registered))).status, 302)
})
