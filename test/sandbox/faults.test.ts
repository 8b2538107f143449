import t, { type Test } from 'tap'
import type { Faults } from '../../sandbox/faults.ts'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import { CLIENT, errorOf, getFlux, refresh, startSandbox, tokensOf } from './started.ts'

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

t.test('a fault ends after its count, and affects only the grant that it names', async (t) => {
  const sandbox = await startSandbox(t)
  sandbox.faults.set({ tokenEndpoint: { mode: 'status', status: 500, times: 2, only: 'refresh_token' } })
  const form = { grant_type: 'client_credentials', scope: 'http://platform.example' }
  const credentials = new URLSearchParams({
    ...form,
    client_id: CLIENT.clientId,
    client_secret: CLIENT.clientSecret,
  })
  const other = await fetch(`${sandbox.url}/oauth/token`, { method: 'POST', body: credentials })
  t.equal(other.status, 200)
  const { refresh_token } = sandbox.issueTokens('alice')
  t.equal((await refresh(sandbox, refresh_token)).status, 500)
  t.equal((await refresh(sandbox, refresh_token)).status, 500)
  t.equal((await refresh(sandbox, refresh_token)).status, 200)
})

t.test('a client can leave an endpoint that hangs or stalls, and the sandbox can close', async (t) => {
  const sandbox = await startSandbox(t)
  const { access_token } = sandbox.issueTokens('alice')
  sandbox.faults.set({ resource: { mode: 'hang' } })
  const hanging = getFlux(sandbox, access_token)
  await sandbox.journal.until({ endpoint: 'resource', fault: 'hang' })
  sandbox.faults.set({ resource: { mode: 'stall' } })
  const stalled = await getFlux(sandbox, access_token)
  t.equal(stalled.status, 200, 'the head and the first half arrive')
  sandbox.faults.set({ resource: { mode: 'slow', ms: 3_600_000 } })
  const slow = getFlux(sandbox, access_token)
  await sandbox.journal.until({ endpoint: 'resource', fault: 'slow' })
  await Promise.all([sandbox.close(), t.rejects(hanging), t.rejects(stalled.text()), t.rejects(slow)])
})

t.test('a slow endpoint sends its correct response late', async (t) => {
  const sandbox = await startSandbox(t, { faults: { resource: { mode: 'slow', ms: 60 } } })
  const { access_token } = sandbox.issueTokens('alice')
  const start = performance.now()
  t.equal((await getFlux(sandbox, access_token)).status, 200)
  t.ok(performance.now() - start >= 59)
})

t.test('a resource response can be cut off half-way', async (t) => {
  const sandbox = await startSandbox(t, { faults: { resource: { mode: 'cut' } } })
  const response = await getFlux(sandbox, sandbox.issueTokens('alice').access_token)
  t.equal(response.status, 200)
  await t.rejects(response.text())
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

t.test('header fields can be added to and removed from every resource response', async (t) => {
  const sandbox = await startSandbox(t)
  const { access_token } = sandbox.issueTokens('alice')
  const resourceHeaders = { 'set-cookie': ['a=1', 'b=2'], 'Content-Type': null, etag: null }
  sandbox.faults.set({ resourceHeaders })
  const { headers } = await getFlux(sandbox, access_token)
  t.strictSame(headers.getSetCookie(), ['a=1', 'b=2'])
  t.notOk(headers.has('content-type'))
  t.notOk(headers.has('etag'))
})

t.test('a failed revocation changes nothing', async (t) => {
  const sandbox = await startSandbox(t)
  const { refresh_token = '' } = sandbox.issueTokens('alice')
  sandbox.faults.set({ revocationEndpoint: { mode: 'status', status: 503 } })
  const form = { client_id: CLIENT.clientId, client_secret: CLIENT.clientSecret, token: refresh_token }
  const body = new URLSearchParams(form)
  t.equal((await fetch(`${sandbox.url}/oauth/revoke`, { method: 'POST', body })).status, 503)
  t.equal((await refresh(sandbox, refresh_token)).status, 200)
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

t.test('many slow responses at once cause no warning of Node', async (t) => {
  const sandbox = await startSandbox(t)
  const warnings: Error[] = []
  const note = (warning: Error): void => void warnings.push(warning)
  process.on('warning', note)
  t.teardown(() => process.off('warning', note))
  sandbox.faults.set({ resource: { mode: 'slow', ms: 100 } })
  const { access_token } = sandbox.issueTokens('alice')
  const answers = await Promise.all(Array.from({ length: 30 }, () => getFlux(sandbox, access_token)))
  t.strictSame([...new Set(answers.map(({ status }) => status))], [200])
  t.strictSame(warnings, [])
})
