import t from 'tap'
import { authorizeUrl, decide, getFlux, locationOf, REDIRECT_URI, SCOPE, startSandbox } from './started.ts'

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

t.test('accepting redirects with a code and without state', async (t) => {
  const sandbox = await startSandbox(t)
  const response = await decide(authorizeUrl(sandbox, { state: 'xyz' }))
  t.equal(response.status, 302)
  const location = locationOf(response)
  t.equal(`${location.origin}${location.pathname}`, REDIRECT_URI)
  t.strictSame([...location.searchParams.keys()], ['code'])
})

t.test('refusing needs no password and redirects with access_denied', async (t) => {
  const sandbox = await startSandbox(t)
  const response = await decide(authorizeUrl(sandbox), 'refuse', { username: '', password: '' })
  t.equal(locationOf(response).search, '?error=access_denied')
})

t.test('a wrong password shows the page again, with an error and the name as typed', async (t) => {
  const sandbox = await startSandbox(t)
  const response = await decide(authorizeUrl(sandbox), 'accept', { username: '"><i>', password: 'x' })
  const html = await response.text()
  t.equal(response.status, 403)
  t.equal(response.headers.get('location'), null)
  t.match(html, 'User name or password is wrong')
  t.match(html, 'value="&#34;&#62;&#60;i&#62;"')
})

t.test('the token flow puts the members of the document into the fragment', async (t) => {
  const sandbox = await startSandbox(t)
  const location = locationOf(await decide(authorizeUrl(sandbox, { response_type: 'token' })))
  const members = new URLSearchParams(location.hash.slice(1))
  t.equal(location.search, '')
  t.strictSame([...members.keys()].sort(), ['access_token', 'expires_in', 'scope', 'token_type'])
  t.equal(members.get('token_type'), 'bearer')
  t.equal(members.get('expires_in'), '3600')
  t.equal(members.get('scope'), SCOPE)
  t.equal((await getFlux(sandbox, members.get('access_token') ?? '')).status, 200)
  const refused = await decide(authorizeUrl(sandbox, { response_type: 'token' }), 'refuse')
  t.equal(locationOf(refused).hash, '#error=access_denied')
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
