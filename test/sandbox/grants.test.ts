import { createHash } from 'node:crypto'
import t from 'tap'
import {
  codeFor,
  errorOf,
  getFlux,
  REDIRECT_URI,
  refresh,
  SCOPE,
  startSandbox,
  tokenRequest,
  tokensOf,
} from './started.ts'

const CODE = { grant_type: 'authorization_code', redirect_uri: REDIRECT_URI }
const PASSWORD = {
  grant_type: 'password',
  redirect_uri: REDIRECT_URI,
  username: 'alice',
  password: 'wonderland',
  scope: SCOPE,
}

t.test('a code grants exactly the members that the document shows', async (t) => {
  const sandbox = await startSandbox(t)
  const response = await tokenRequest(sandbox, { ...CODE, code: await codeFor(sandbox) })
  const body = await tokensOf(response)
  t.equal(response.status, 200)
  t.equal(response.headers.get('cache-control'), 'no-store')
  t.strictSame(Object.keys(body).sort(), [
    'access_token',
    'callback',
    'expires_in',
    'refresh_token',
    'scope',
    'token_type',
  ])
  t.match(body, {
    token_type: 'bearer',
    expires_in: 3600,
    scope: SCOPE,
    callback: 'http://app.localhost:3000/auth/callback',
  })
  t.equal((await getFlux(sandbox, body.access_token)).status, 200)
})

t.test('a code that is presented twice is refused, and its tokens are revoked', async (t) => {
  const sandbox = await startSandbox(t)
  const code = await codeFor(sandbox)
  const tokens = await tokensOf(await tokenRequest(sandbox, { ...CODE, code }))
  const again = await tokenRequest(sandbox, { ...CODE, code })
  t.equal(again.status, 400)
  t.equal(await errorOf(again), 'invalid_grant')
  t.equal((await getFlux(sandbox, tokens.access_token)).status, 401)
  t.equal((await refresh(sandbox, tokens.refresh_token)).status, 400)
})

t.test('a code is bound to its redirect_uri, unless a switch turns that off', async (t) => {
  const sandbox = await startSandbox(t)
  const other = { ...CODE, redirect_uri: `${REDIRECT_URI}d` }
  const refused = await tokenRequest(sandbox, { ...other, code: await codeFor(sandbox) })
  t.equal(await errorOf(refused), 'invalid_grant')
  sandbox.faults.set({ redirectAtTokenEndpoint: 'ignore' })
  t.equal((await tokenRequest(sandbox, { ...other, code: await codeFor(sandbox) })).status, 200)
})

t.test('a code expires after a minute', async (t) => {
  let now = Date.now()
  const sandbox = await startSandbox(t, { now: () => now })
  const [early, late] = [await codeFor(sandbox), await codeFor(sandbox)]
  now += 59_999
  t.equal((await tokenRequest(sandbox, { ...CODE, code: early })).status, 200)
  now += 1
  t.equal((await tokenRequest(sandbox, { ...CODE, code: late })).status, 400)
})

t.test('the token endpoint verifies a challenge that the authorize page received', async (t) => {
  const sandbox = await startSandbox(t)
  const verifier = 'a-verifier-of-more-than-forty-three-characters-00'
  const challenge = {
    code_challenge: createHash('sha256').update(verifier).digest('base64url'),
    code_challenge_method: 'S256',
  }
  const cases = [
    { name: 'the right verifier', authorize: challenge, token: { code_verifier: verifier }, status: 200 },
    { name: 'another verifier', authorize: challenge, token: { code_verifier: `${verifier}1` }, status: 400 },
    { name: 'no verifier', authorize: challenge, token: {}, status: 400 },
    {
      name: 'a verifier without a challenge',
      authorize: {},
      token: { code_verifier: verifier },
      status: 400,
    },
  ]
  for (const { name, authorize, token, status } of cases) {
    const code = await codeFor(sandbox, authorize)
    t.equal((await tokenRequest(sandbox, { ...CODE, code, ...token })).status, status, name)
  }
})

t.test('the password grant can be open to everyone, or not activated', async (t) => {
  const everyone = await startSandbox(t, { passwordGrant: 'everyone' })
  const bob = { ...PASSWORD, username: 'bob', password: 'builder' }
  t.equal((await tokenRequest(everyone, bob)).status, 200)
  const off = await startSandbox(t, { passwordGrant: 'off' })
  t.equal(await errorOf(await tokenRequest(off, PASSWORD)), 'unauthorized_client')
})

t.test('a token request with a missing, repeated or unknown field is an OAuth error', async (t) => {
  const sandbox = await startSandbox(t)
  const complete = {
    authorization_code: { redirect_uri: REDIRECT_URI, code: 'x' },
    password: { redirect_uri: REDIRECT_URI, username: 'alice', password: 'wonderland', scope: SCOPE },
    client_credentials: { scope: SCOPE },
    refresh_token: { refresh_token: 'x' },
  }
  for (const [grantType, fields] of Object.entries(complete)) {
    for (const missing of Object.keys(fields)) {
      const form = Object.fromEntries(Object.entries(fields).filter(([name]) => name !== missing))
      const response = await tokenRequest(sandbox, { grant_type: grantType, ...form })
      t.equal(await errorOf(response), 'invalid_request', `${grantType} without ${missing}`)
    }
  }
  const cases = [
    { fields: {}, error: 'invalid_request' },
    { fields: { grant_type: 'constructor' }, error: 'unsupported_grant_type' },
    { fields: { grant_type: 'refresh_token', refresh_token: 'unknown' }, error: 'invalid_grant' },
    { fields: { grant_type: 'client_credentials', scope: 'openid' }, error: 'invalid_scope' },
  ]
  for (const { fields, error } of cases) {
    const response = await tokenRequest(sandbox, fields as Record<string, string>)
    t.equal(response.status, 400)
    t.equal(await errorOf(response), error)
  }
})

t.test('the client must send its exact secret in the form', async (t) => {
  const sandbox = await startSandbox(t)
  const grant = { grant_type: 'client_credentials', scope: SCOPE }
  for (const change of [{ client_id: 'other' }, { client_secret: 's3+c&r=e%t%20ü' }, { client_secret: '' }]) {
    const response = await tokenRequest(sandbox, { ...grant, ...change })
    t.equal(response.status, 401)
    t.equal(await errorOf(response), 'invalid_client')
  }
  const basic = await fetch(`${sandbox.url}/oauth/token`, {
    method: 'POST',
    headers: { authorization: 'Basic eDp5' },
    body: new URLSearchParams(grant),
  })
  t.equal(basic.status, 401)
  t.match(basic.headers.get('www-authenticate'), /^Basic /)
  const json = await fetch(`${sandbox.url}/oauth/token`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(grant),
  })
  t.equal(await errorOf(json), 'invalid_request')
})
