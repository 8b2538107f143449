import t from 'tap'
import type { Faults } from '../../sandbox/faults.ts'
import { getFlux, refresh, startSandbox } from './started.ts'

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

t.test('an invalid token is reported in the shape that the switch names', async (t) => {
  const sandbox = await startSandbox(t)
  const { access_token } = sandbox.issueTokens('alice')
  for (const { shape, status, challenge, body } of [
    { shape: 'standard', status: 401, challenge: true, body: /"error":"invalid_token"/ },
    { shape: 'bare401', status: 401, challenge: false, body: /^$/ },
    { shape: 'json400', status: 400, challenge: false, body: /"error":"invalid_token"/ },
    { shape: 'challenge403', status: 403, challenge: true, body: /^$/ },
    { shape: 'servicestack', status: 401, challenge: false, body: /"errorCode":"invalid_token"/ },
  ] as const) {
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
})
