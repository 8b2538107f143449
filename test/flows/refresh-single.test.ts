import t from 'tap'
import { cookieHeader } from '../helpers/browser.ts'
import { presentations, signInExpired, startReplicas, through } from '../helpers/replicas.ts'

t.test('60 calls over three replicas on an expired token send one refresh, and all succeed', async (t) => {
  const { sandbox, replicas } = await startReplicas(t)
  const browser = await signInExpired(replicas[0], sandbox)
  const gate = sandbox.hold('token', { only: 'refresh_token' })
  const browsers = replicas.map((replica) => through(replica, browser))
  const calls = Array.from({ length: 60 }, (_, at) => browsers[at % 3]!.fetch('/flux/temperature'))
  await gate.arrived
  gate.release()
  const answers = await Promise.all(calls)
  t.strictSame([...new Set(answers.map(({ status }) => status))], [200])
  t.equal(presentations(sandbox).length, 1)
  const bearers = sandbox.journal
    .entries({ endpoint: 'resource' })
    .map(({ headers }) => headers.authorization)
  t.equal(bearers.length, 60)
  t.equal(new Set(bearers).size, 1, 'all with the new token')
  t.equal(sandbox.counters().reuseDetected, 0)
})

t.test('a browser that leaves during a refresh changes nothing', async (t) => {
  const { sandbox, replicas } = await startReplicas(t)
  const browser = await signInExpired(replicas[0], sandbox)
  const gate = sandbox.hold('token', { point: 'after', only: 'refresh_token' })
  const leaving = new AbortController()
  const headers = { cookie: cookieHeader(browser), 'sec-fetch-site': 'same-origin' }
  const left = fetch(`${replicas[0].publicUrl}/flux/temperature`, { headers, signal: leaving.signal })
  await gate.arrived
  leaving.abort()
  await t.rejects(left, { name: 'AbortError' })
  gate.release()
  const answer = await through(replicas[1], browser).fetch('/flux/temperature')
  t.equal(answer.status, 200)
  t.equal(presentations(sandbox).length, 1, 'its refresh was kept')
  t.equal(sandbox.counters().reuseDetected, 0)
})

for (const { where, from } of [
  { where: 'the same replica', from: 0 },
  { where: 'another replica', from: 1 },
]) {
  t.test(`signing out on ${where} wins over a refresh in flight`, async (t) => {
    const { sandbox, replicas, redis } = await startReplicas(t)
    const browser = await signInExpired(replicas[0], sandbox)
    const gate = sandbox.hold('token', { point: 'after', only: 'refresh_token' })
    const waiting = [0, 1, 2].map((at) => through(replicas[at]!, browser).fetch('/flux/temperature'))
    await gate.arrived
    const out = await through(replicas[from]!, browser).fetch('/auth/logout', { method: 'POST' })
    t.equal(out.status, 204)
    for (const answer of await Promise.all(waiting)) {
      t.equal(answer.status, 401, 'without waiting for the authorization server')
      t.match(answer.json(), { code: 'login_required', reason: 'logout' })
    }
    t.equal(gate.waiting(), 1)
    await sandbox.journal.until({ endpoint: 'revoke' }, 2)
    gate.release()
    // The tokens of before, and those that came too late.
    await sandbox.journal.until({ endpoint: 'revoke' }, 4)
    t.equal(await redis.cli('keys', 'bff:s:*'), '')
    t.equal((await through(replicas[2], browser).fetch('/flux/temperature')).status, 401)
    t.equal(sandbox.journal.entries({ endpoint: 'resource' }).length, 0)
  })
}
