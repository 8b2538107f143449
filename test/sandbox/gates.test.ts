import t from 'tap'
import { getFlux, refresh, startSandbox } from './started.ts'

t.test('a gate before the work holds a refresh that has not happened yet', async (t) => {
  const sandbox = await startSandbox(t)
  const { refresh_token } = sandbox.issueTokens('alice')
  const gate = sandbox.hold('token')
  const held = refresh(sandbox, refresh_token)
  const entry = await gate.arrived
  t.equal(entry.kind, 'refresh_token')
  t.equal(entry.outcome, null)
  t.equal(gate.waiting(), 1)
  sandbox.revokeUser('alice')
  gate.release()
  t.equal((await held).status, 400, 'the revocation came first')
})

t.test('a gate after the work holds the response to a refresh that has happened', async (t) => {
  const sandbox = await startSandbox(t)
  const { refresh_token } = sandbox.issueTokens('alice')
  const gate = sandbox.hold('token', { point: 'after', only: 'refresh_token' })
  const held = refresh(sandbox, refresh_token)
  t.equal((await gate.arrived).outcome, 'granted')
  sandbox.release()
  t.equal((await held).status, 200)
  t.equal((await refresh(sandbox, refresh_token)).status, 400, 'a released gate holds nobody')
})

t.test('a gate counts arrivals and passes what it does not name', async (t) => {
  const sandbox = await startSandbox(t)
  const { access_token } = sandbox.issueTokens('alice')
  const updates = sandbox.hold('resource', { only: 'UpdateSite' })
  t.equal((await getFlux(sandbox, access_token)).status, 200)
  const gate = sandbox.hold('resource', { only: 'GetFlux' })
  const held = [getFlux(sandbox, access_token), getFlux(sandbox, access_token)]
  await gate.arrivals(2)
  t.equal(updates.waiting(), 0)
  const third = t.rejects(gate.arrivals(3), /2 of 3/)
  gate.release()
  await third
  t.strictSame(
    (await Promise.all(held)).map(({ status }) => status),
    [200, 200],
  )
})

t.test('closing releases held requests', async (t) => {
  const sandbox = await startSandbox(t)
  const gate = sandbox.hold('resource')
  const held = getFlux(sandbox, 'x')
  await gate.arrived
  await Promise.all([sandbox.close(), t.rejects(held)])
})
