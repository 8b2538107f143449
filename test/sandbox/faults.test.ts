import t, { type Test } from 'tap'
import type { Faults } from '../../sandbox/faults.ts'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import { errorOf, getFlux, refresh, startSandbox, tokensOf } from './started.ts'

t.test('switches change the members of the token response', async (t) => {
  const sandbox = await startSandbox(t)
  const answer = (faults: Partial<Faults>) => {
    sandbox.reset()
    sandbox.faults.set(faults)
    return sandbox.issueTokens('alice')
  }
  t.equal(answer({ tokenLifeSeconds: 5 }).expires_in, 5)
  t.notOk('expires_in' in answer({ expiresIn: 'absent' }))
  for (const value of [null, '3600', -1, 'soon', 1e300]) {
    t.equal(answer({ expiresIn: { value } }).expires_in, value)
  }
  t.notOk('refresh_token' in answer({ omitRefreshToken: true }))
  const patched = answer({ tokenAnswer: { set: { id_token: 'x', scope: null }, remove: ['token_type'] } })
  t.match(patched, { id_token: 'x', scope: null })
  t.notOk('token_type' in patched)
})

t.test('the token endpoint can refuse and fail before the work', async (t) => {
  const sandbox = await startSandbox(t)
  const { refresh_token } = sandbox.issueTokens('alice')
  const answer = async (tokenEndpoint: Faults['tokenEndpoint']) => {
    sandbox.faults.set({ tokenEndpoint })
    return refresh(sandbox, refresh_token)
  }
  t.equal(await errorOf(await answer({ mode: 'refuse' })), 'invalid_grant')
  t.equal(await errorOf(await answer({ mode: 'refuse', error: 'invalid_scope' })), 'invalid_scope')
  t.equal((await answer({ mode: 'invalid_client' })).status, 401)
  const busy = await answer({ mode: 'status', status: 503, headers: { 'retry-after': '7' } })
  t.equal(busy.status, 503)
  t.equal(busy.headers.get('retry-after'), '7')
  const html = await answer({ mode: 'html' })
  t.equal(html.status, 200)
  t.match(html.headers.get('content-type'), 'text/html')
  await t.rejects(answer({ mode: 'drop' }))
  t.equal((await answer({ mode: 'ok' })).status, 200, 'the refresh token is as good as before')
  t.equal(sandbox.counters()['token refresh_token fault'], 6)
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

t.test('an invalid token is reported in the shape that the switch names', async (t: Test) => {
  const sandbox = await startSandbox(t)
  const { access_token } = sandbox.issueTokens('alice')
  const cases = [
    { shape: 'standard', status: 401, challenge: true, body: /"error":"invalid_token"/ },
    { shape: 'bare401', status: 401, challenge: false, body: /^$/ },
    { shape: 'json400', status: 400, challenge: false, body: /"error":"invalid_token"/ },
    { shape: 'challenge403', status: 403, challenge: true, body: /^$/ },
    { shape: 'servicestack', status: 401, challenge: false, body: /"errorCode":"invalid_token"/ },
  ] as const
  for (const { shape, status, challenge, body } of cases) {
    for (const resourceEncoding of ['identity', 'gzip', 'deflate', 'br'] as const) {
      sandbox.faults.set({ invalidToken: shape, resource: { mode: 'invalid-token' }, resourceEncoding })
      const response = await getFlux(sandbox, access_token)
      t.equal(response.status, status, shape)
      t.equal(response.headers.has('www-authenticate'), challenge)
      t.match(await response.text(), body)
      sandbox.faults.set({ resource: { mode: 'ok' } })
      t.equal((await getFlux(sandbox, 'no-such-token')).status, status)
    }
  }
  const packed = await getFlux(sandbox, access_token)
  t.equal(packed.headers.get('content-encoding'), 'br')
  t.match(await packed.json(), { wType: 'Flux' })
})

t.test('an offline sandbox refuses connections, and keeps its state until it is online', async (t) => {
  const sandbox: Sandbox = await startSandbox(t)
  const { url } = sandbox
  const { refresh_token } = sandbox.issueTokens('alice')
  await sandbox.goOffline()
  await t.rejects(refresh(sandbox, refresh_token), { cause: { code: 'ECONNREFUSED' } })
  await sandbox.goOnline()
  t.equal(sandbox.url, url)
  const refreshed = await tokensOf(await refresh(sandbox, refresh_token))
  t.equal((await getFlux(sandbox, refreshed.access_token)).status, 200)
})
