import t from 'tap'
import type { Faults } from '../../sandbox/faults.ts'
import { refresh, startSandbox } from './started.ts'

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
