import { writeFileSync } from 'node:fs'
import t from 'tap'
import { PROFILES } from '../../sandbox/profiles.ts'
import { logLines } from '../helpers/log-lines.ts'
import { signInExpired } from '../helpers/replicas.ts'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { makeFolder } from '../helpers/watchdog.ts'

t.test('a refresh that failed and is granted later says so: refresh.recovered', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const browser = await signInExpired(bff, sandbox)
  sandbox.faults.set({
    tokenEndpoint: { mode: 'status', status: 503, headers: { 'retry-after': '1' }, times: 1 },
  })
  t.equal((await browser.fetch('/flux/a')).status, 503)
  await until('new tokens', async () => (await browser.fetch('/flux/a')).status === 200)
  const [failed] = logLines(bff.log(), 'refresh.unavailable')
  const recovered = logLines(bff.log(), 'refresh.recovered')
  t.match(recovered, [{ level: 'info', attempts: 2, recordKey: failed?.recordKey }])
  t.equal(recovered.length, 1)
  for (const ms of [recovered[0]?.ms, failed?.retryInMs]) {
    t.ok(Number.isSafeInteger(ms) && Number(ms) > 0, `${ms} is whole milliseconds`)
  }
})

t.test(
  'the description of an error of a refresh does not show the access token that it replaces',
  async (t) => {
    const sandbox = await startSandbox(t)
    const bff = await startBff(t, sandbox)
    const browser = bff.browser()
    await signIn(browser, sandbox)
    t.equal((await browser.fetch('/flux/a')).status, 200)
    const [call] = sandbox.journal.entries({ endpoint: 'resource' })
    const accessToken = String(call?.headers.authorization).replace('Bearer ', '')
    const body = JSON.stringify({ error: 'invalid_request', error_description: `not ${accessToken}` })
    sandbox.faults.set({ tokenEndpoint: { mode: 'status', status: 400, body } })
    sandbox.expireAccessTokens()
    t.equal((await browser.fetch('/flux/a')).status, 503)
    const [failed] = logLines(bff.log(), 'refresh.unavailable')
    t.match(failed, { description: 'not ***' })
    t.notMatch(bff.log(), accessToken)
  },
)

t.test('the lines of a refresh without tokens have the words of the token endpoint', async (t) => {
  const profile = PROFILES.keycloak!
  const sandbox = await startSandbox(t, { profile, faults: { exactRedirect: false } })
  const bff = await startBff(t, sandbox, { ...sandbox.env, OAUTH_REDIRECT: 'fixed' })
  const words = (event: string) => logLines(bff.log(), event).map(({ description }) => description)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  sandbox.faults.set({ database: 'away' })
  sandbox.expireAccessTokens()
  t.equal((await browser.fetch('/flux/a')).status, 503)
  t.strictSame(words('refresh.in_doubt'), ['For more on this error consult the server log.'])
  sandbox.faults.set({ database: 'there' })
  const other = bff.browser()
  await signIn(other, sandbox)
  sandbox.revokeAll()
  t.equal((await other.fetch('/flux/a')).status, 401)
  t.strictSame(words('refresh.refused'), ['Session not active'])
})

t.test('refresh.refused comes before the session.ended that it causes, which names the user', async (t) => {
  const sandbox = await startSandbox(t)
  const file = `${makeFolder('identity')}/operations.json`
  writeFileSync(
    file,
    JSON.stringify({
      operations: { GetMe: { method: 'GET', path: '/{wac}/User/me' } },
      identity: { operation: 'GetMe', id: '/id', name: '/name' },
    }),
  )
  const bff = await startBff(t, sandbox, { OPERATIONS_FILE: file })
  const browser = bff.browser()
  await signIn(browser, sandbox)
  sandbox.faults.set({ tokenEndpoint: { mode: 'refuse' } })
  sandbox.expireAccessTokens()
  t.equal((await browser.fetch('/flux/a')).status, 401)
  const lines = logLines(bff.log())
  const of = (event: string) => lines.findIndex((line) => line.event === event)
  t.match(lines[of('refresh.refused')], { level: 'info', reason: 'invalid_grant' })
  t.match(lines[of('session.ended')], {
    reason: 'refused',
    user: lines[of('login.succeeded')]?.user,
    recordKey: lines[of('refresh.refused')]?.recordKey,
  })
  t.match(lines[of('session.ended')]?.user, /^[0-9a-f]{12}$/)
  t.ok(of('refresh.refused') < of('session.ended'))
})

t.test(
  'invalid_client after tokens with the same credentials says until when they were accepted',
  async (t) => {
    const sandbox = await startSandbox(t)
    const bff = await startBff(t, sandbox)
    sandbox.faults.set({ tokenEndpoint: { mode: 'invalid_client', times: 1 } })
    await signIn(bff.browser(), sandbox)
    const before = Date.now()
    await signIn(bff.browser(), sandbox)
    sandbox.faults.set({ tokenEndpoint: { mode: 'invalid_client' } })
    await signIn(bff.browser(), sandbox)
    const reasons = logLines(bff.log(), 'login.failed').map(({ reason }) => String(reason))
    t.equal(reasons.length, 2)
    t.notMatch(reasons[0], /until/, 'nothing was granted before')
    t.match(reasons[1], /invalid_client.*unable to look the client up/)
    const acceptedUntil = Date.parse(/until (\S+?)\)/.exec(reasons[1]!)?.[1] ?? '')
    t.ok(acceptedUntil >= before && acceptedUntil <= Date.now(), reasons[1]!)
  },
)

t.test('an access token above 7 KB is one warning', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const signInWith = async (bytes: number) => {
    sandbox.faults.set({ tokenAnswer: { set: { access_token: 'x'.repeat(bytes) } } })
    await signIn(bff.browser(), sandbox)
    return logLines(bff.log(), 'platform.large_token')
  }
  t.strictSame(await signInWith(7_168), [])
  await signInWith(7_169)
  const lines = await signInWith(8_000)
  t.match(lines, [{ level: 'warn', bytes: 7_169, msg: /nginx/ }])
  t.equal(lines.length, 1)
})

t.test('a 403 insufficient_scope of the resource server is one warning that names OAUTH_SCOPE', async (t) => {
  const sandbox = await startSandbox(t)
  const body = '{"error":"insufficient_scope"}'
  for (const said of [
    { headers: { 'www-authenticate': 'Bearer error="insufficient_scope", scope="data"' } },
    { headers: { 'content-type': 'application/json' }, body },
  ]) {
    const bff = await startBff(t, sandbox)
    const browser = bff.browser()
    sandbox.faults.reset()
    await signIn(browser, sandbox)
    const answers = async (status: number, more: object) => {
      sandbox.faults.set({ resource: { mode: 'status', status, ...more } })
      const answer = await browser.fetch('/flux/a')
      t.equal(answer.status, status)
      return answer
    }
    await answers(403, {})
    await answers(400, { body })
    t.strictSame(logLines(bff.log(), 'platform.insufficient_scope'), [])
    for (let call = 0; call < 2; call += 1) {
      const { text } = await answers(403, said)
      if ('body' in said) t.equal(text, body, 'the page gets it as it is')
    }
    const lines = logLines(bff.log(), 'platform.insufficient_scope')
    t.match(lines, [{ level: 'warn', msg: /OAUTH_SCOPE/ }])
    t.equal(lines.length, 1)
  }
})

t.test('a token response that is too large says so', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  sandbox.faults.set({ tokenAnswer: { set: { more: 'x'.repeat(70_000) } } })
  await signIn(bff.browser(), sandbox)
  t.match(logLines(bff.log(), 'login.failed'), [{ reason: /larger than 65536 bytes/ }])
})
