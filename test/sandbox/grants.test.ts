import { createHash } from 'node:crypto'
import t from 'tap'
import type { Faults } from '../../sandbox/faults.ts'
import {
  CLIENT,
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

t.test('a code grants exactly the members that the document shows, once', async (t) => {
  const sandbox = await startSandbox(t)
  const code = await codeFor(sandbox)
  const response = await tokenRequest(sandbox, { ...CODE, code })
  t.equal(response.headers.get('cache-control'), 'no-store')
  const { access_token, refresh_token, ...rest } = await tokensOf(response)
  const callback = 'http://app.localhost:3000/auth/callback'
  t.strictSame(rest, { token_type: 'bearer', expires_in: 3600, scope: SCOPE, callback })
  t.equal((await getFlux(sandbox, access_token)).status, 200)

  const again = await tokenRequest(sandbox, { ...CODE, code })
  t.strictSame([again.status, await errorOf(again)], [400, 'invalid_grant'])
  t.equal((await getFlux(sandbox, access_token)).status, 401, 'its tokens are revoked')
  t.equal((await refresh(sandbox, refresh_token)).status, 400)
})

t.test('a code is bound to its redirect_uri and its challenge, and expires after a minute', async (t) => {
  let now = Date.now()
  const sandbox = await startSandbox(t, { now: () => now })
  const verifier = 'a-verifier-of-more-than-forty-three-characters-00'
  const challenge = {
    code_challenge: createHash('sha256').update(verifier).digest('base64url'),
    code_challenge_method: 'S256',
  }
  type Fields = Record<string, string>
  const cases: [what: string, authorize: Fields, token: Fields, status: number, ms?: number][] = [
    ['the right verifier', challenge, { code_verifier: verifier }, 200],
    ['another verifier', challenge, { code_verifier: `${verifier}1` }, 400],
    ['no verifier', challenge, {}, 400],
    ['a verifier without a challenge', {}, { code_verifier: verifier }, 400],
    ['another redirect_uri', {}, { redirect_uri: `${REDIRECT_URI}d` }, 400],
    ['a code of nearly a minute', {}, {}, 200, 59_999],
    ['a code of a minute', {}, {}, 400, 60_000],
  ]
  for (const [what, authorize, token, status, ms = 0] of cases) {
    const code = await codeFor(sandbox, authorize)
    now += ms
    t.equal((await tokenRequest(sandbox, { ...CODE, code, ...token })).status, status, what)
  }
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
  for (const [fields, error] of [
    [{}, 'invalid_request'],
    [{ grant_type: 'constructor' }, 'unsupported_grant_type'],
    [{ grant_type: 'refresh_token', refresh_token: 'unknown' }, 'invalid_grant'],
    [{ grant_type: 'client_credentials', scope: 'openid' }, 'invalid_scope'],
  ] as [Record<string, string>, string][])
    t.equal(await errorOf(await tokenRequest(sandbox, fields)), error)
})

t.test('a refresh token that is presented twice ends the authorization and is counted', async (t) => {
  const sandbox = await startSandbox(t)
  const other = sandbox.issueTokens('alice')
  const first = sandbox.issueTokens('alice')
  const all = await Promise.all(Array.from({ length: 10 }, () => refresh(sandbox, first.refresh_token)))
  const granted = all.filter(({ status }) => status === 200)
  t.equal(granted.length, 1, 'one of many at once is granted')
  t.equal(sandbox.counters().reuseDetected, 9)
  const second = await tokensOf(granted[0]!)
  t.equal((await refresh(sandbox, second.refresh_token)).status, 400, 'the newest refresh token is dead')
  for (const { access_token } of [first, second]) t.equal((await getFlux(sandbox, access_token)).status, 401)
  t.equal((await refresh(sandbox, other.refresh_token)).status, 200, 'another authorization lives on')
})

t.test('revocation ends a refresh token with its authorization, an access token alone', async (t) => {
  const sandbox = await startSandbox(t)
  const revoke = async (token: string, client_secret = CLIENT.clientSecret) => {
    const body = new URLSearchParams({ client_id: CLIENT.clientId, client_secret, token })
    return (await fetch(`${sandbox.url}/oauth/revoke`, { method: 'POST', body })).status
  }
  const one = sandbox.issueTokens('alice')
  t.equal(await revoke(one.access_token, 'wrong'), 401)
  t.equal((await getFlux(sandbox, one.access_token)).status, 200)
  t.equal(await revoke(one.access_token), 200)
  t.equal((await getFlux(sandbox, one.access_token)).status, 401)
  const refreshed = await tokensOf(await refresh(sandbox, one.refresh_token))
  t.equal(await revoke(refreshed.refresh_token ?? ''), 200)
  t.equal((await getFlux(sandbox, refreshed.access_token)).status, 401)
  t.equal((await refresh(sandbox, refreshed.refresh_token ?? '')).status, 400)
  t.equal(await revoke('unknown'), 200)
})

t.test('the token endpoint can rotate and then withhold the response', async (t) => {
  const sandbox = await startSandbox(t)
  const cases: Faults['tokenEndpoint'][] = [
    { mode: 'drop', point: 'after' },
    { mode: 'status', status: 502, point: 'after' },
    { mode: 'html', point: 'after' },
    { mode: 'truncated' },
    { mode: 'cut' },
  ]
  for (const tokenEndpoint of cases) {
    const { refresh_token } = sandbox.issueTokens('alice')
    sandbox.faults.set({ tokenEndpoint })
    await t.rejects(
      refresh(sandbox, refresh_token).then((response) => response.json()),
      tokenEndpoint.mode,
    )
    sandbox.faults.set({ tokenEndpoint: { mode: 'ok' } })
    t.equal((await refresh(sandbox, refresh_token)).status, 400, 'the refresh token is used up')
  }
  t.equal(sandbox.counters()['token refresh_token granted'], cases.length)
  t.equal(sandbox.counters().reuseDetected, cases.length)
})
