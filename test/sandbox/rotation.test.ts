import t from 'tap'
import { CLIENT, errorOf, getFlux, refresh, startSandbox, tokensOf } from './started.ts'

t.test('a refresh token that is presented twice ends the authorization and is counted', async (t) => {
  const sandbox = await startSandbox(t)
  const other = sandbox.issueTokens('alice')
  const first = sandbox.issueTokens('alice')
  const second = await tokensOf(await refresh(sandbox, first.refresh_token))
  const again = await refresh(sandbox, first.refresh_token)
  t.equal(again.status, 400)
  t.equal(await errorOf(again), 'invalid_grant')
  t.equal(sandbox.counters().reuseDetected, 1)
  t.equal((await refresh(sandbox, second.refresh_token)).status, 400, 'the newest refresh token is dead')
  t.equal((await getFlux(sandbox, first.access_token)).status, 401)
  t.equal((await getFlux(sandbox, second.access_token)).status, 401)
  t.equal((await refresh(sandbox, other.refresh_token)).status, 200, 'another authorization lives on')
})

t.test('one of many simultaneous refreshes with the same token is granted', async (t) => {
  const sandbox = await startSandbox(t)
  const { refresh_token } = sandbox.issueTokens('alice')
  const all = await Promise.all(Array.from({ length: 10 }, () => refresh(sandbox, refresh_token)))
  t.equal(all.filter(({ status }) => status === 200).length, 1)
  t.equal(sandbox.counters()['token refresh_token granted'], 1)
  t.equal(sandbox.counters()['token refresh_token invalid_grant'], 9)
  t.equal(sandbox.counters().reuseDetected, 9)
})

t.test('reuse can be refused without ending the authorization, or allowed', async (t) => {
  const sandbox = await startSandbox(t, { faults: { refreshReuse: 'refuse' } })
  const first = sandbox.issueTokens('alice')
  const second = await tokensOf(await refresh(sandbox, first.refresh_token))
  t.equal((await refresh(sandbox, first.refresh_token)).status, 400)
  t.equal((await refresh(sandbox, second.refresh_token)).status, 200)
  sandbox.faults.set({ refreshReuse: 'allow' })
  t.equal((await refresh(sandbox, first.refresh_token)).status, 200)
  t.equal(sandbox.counters().reuseDetected, 2)
})

t.test('a refresh can keep the refresh token, leave it out, or end the old access token', async (t) => {
  const sandbox = await startSandbox(t, { faults: { sameRefreshToken: true } })
  const { refresh_token, access_token } = sandbox.issueTokens('alice')
  t.equal((await tokensOf(await refresh(sandbox, refresh_token))).refresh_token, refresh_token)
  sandbox.faults.set({ sameRefreshToken: false, omitRefreshToken: true })
  t.notOk('refresh_token' in (await tokensOf(await refresh(sandbox, refresh_token))))
  t.equal((await getFlux(sandbox, access_token)).status, 200)
  sandbox.faults.set({ omitRefreshToken: false, rotateAccess: true })
  t.equal((await refresh(sandbox, refresh_token)).status, 200)
  t.equal((await getFlux(sandbox, access_token)).status, 401)
})

t.test('revocation ends a refresh token with its authorization, an access token alone', async (t) => {
  const sandbox = await startSandbox(t)
  const revoke = async (token: string, secret = CLIENT.clientSecret) => {
    const form = { client_id: CLIENT.clientId, client_secret: secret, token }
    const body = new URLSearchParams(form)
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
