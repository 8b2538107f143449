import t from 'tap'
import { isProblem } from '../helpers/browser.ts'
import { presentations, startReplicas, through } from '../helpers/replicas.ts'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import { counted } from './load.ts'

t.test('without a refresh token, invalid_token ends the session for all callers', async (t) => {
  const { sandbox, replicas } = await startReplicas(t)
  sandbox.faults.set({ omitRefreshToken: true })
  const browser = replicas[0].browser()
  await signIn(browser, sandbox)
  const browsers = replicas.map((replica) => through(replica, browser))
  for (const each of browsers) t.equal((await each.fetch('/flux/temperature')).status, 200)
  sandbox.expireAccessTokens()
  const answers = await Promise.all(
    Array.from({ length: 30 }, (_, at) => browsers[at % 3]!.fetch('/flux/temperature')),
  )
  for (const answer of answers) {
    t.equal(answer.status, 401, answer.text)
    t.match(answer.json(), { code: 'login_required', loginUrl: '/auth/login', detail: /ended/ })
  }
  t.match((await browser.fetch('/auth/session')).json(), { authenticated: false })
  t.equal(await counted(replicas, 'bff_sessions_ended_total{reason="refused"}'), 1, 'counted once')
})

t.test('without a refresh token, a refusal that does not name invalid_token keeps the session', async (t) => {
  const sandbox = await startSandbox(t, { faults: { omitRefreshToken: true } })
  const bff = await startBff(t, sandbox)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  sandbox.faults.set({ resource: { mode: 'invalid-token' }, invalidToken: 'bare401' })
  const answer = await browser.fetch('/flux/temperature')
  t.equal(answer.status, 403)
  t.match(answer.json(), { code: 'upstream_refused' })
  sandbox.faults.set({ resource: { mode: 'ok' } })
  t.equal((await browser.fetch('/flux/temperature')).status, 200)
})

t.test('a resource server that refuses every token as invalid ends no session', async (t) => {
  const { sandbox, replicas } = await startReplicas(t)
  const browser = replicas[0].browser()
  await signIn(browser, sandbox)
  const browsers = replicas.map((replica) => through(replica, browser))
  for (const each of browsers) t.equal((await each.fetch('/flux/temperature')).status, 200)
  sandbox.faults.set({ resource: { mode: 'invalid-token' } })
  sandbox.journal.clear()
  isProblem(t, await browser.fetch('/flux/temperature'), 403, 'upstream_refused', 'the new one as well')
  t.equal(sandbox.journal.entries({ endpoint: 'resource' }).length, 2, 'one retry')
  for (let round = 0; round < 2; round += 1) {
    const answers = await Promise.all(
      Array.from({ length: 15 }, (_, at) => browsers[at % 3]!.fetch('/flux/temperature')),
    )
    for (const answer of answers) isProblem(t, answer, 403, 'upstream_refused', `round ${round}`)
  }
  t.equal(presentations(sandbox).length, 1, 'one refresh for all callers, and one a minute')
  sandbox.faults.set({ resource: { mode: 'ok' } })
  for (const each of browsers) t.equal((await each.fetch('/flux/temperature')).status, 200, 'it lives')
})
