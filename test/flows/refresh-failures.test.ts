import t, { type Test } from 'tap'
import type { Faults } from '../../sandbox/faults.ts'
import type { Browser } from '../helpers/browser.ts'
import { presentations, signInExpired, signInFor } from '../helpers/replicas.ts'
import { startBff, startSandbox } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'

t.jobs = 6

/** A short timeout, but a sign-in on a slow machine takes less. A stop waits two thirds of its time for a hanging response. */
const TIMES_OUT_SOON = { TOKEN_TIMEOUT_MS: '5000', SHUTDOWN_SECONDS: '4' }

/** One for each kind of outcome: test/oauth/client.test.ts has all responses. */
const HARMLESS: Record<string, Faults['tokenEndpoint']> = {
  'a 503': { mode: 'status', status: 503 },
  'a web page': { mode: 'html' },
  invalid_client: { mode: 'invalid_client' },
  'invalid_grant with status 503': {
    mode: 'status',
    status: 503,
    headers: { 'content-type': 'application/json' },
    body: '{"error":"invalid_grant"}',
  },
  'a reset connection': { mode: 'drop' },
}

/** A session whose access token has expired. */
async function start(t: Test, env: Record<string, string> = {}) {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, env)
  return { sandbox, bff, browser: await signInExpired(bff, sandbox) }
}

t.test('a token request without a response ends no session and delays no other session', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, TIMES_OUT_SOON)
  const [hung, other] = [await signInExpired(bff, sandbox), await signInExpired(bff, sandbox)]
  sandbox.faults.set({ tokenEndpoint: { mode: 'hang' } })
  t.equal((await hung.fetch('/flux/temperature')).status, 503)
  t.equal((await hung.fetch('/flux/temperature')).status, 503)
  sandbox.faults.set({ tokenEndpoint: { mode: 'ok' } })
  await until('a good answer', async () => (await other.fetch('/flux/temperature')).status === 200)
  // Its presentation may be answered for 30 seconds. No request asks for the next one, which follows all the same.
  const granted = { endpoint: 'token', kind: 'refresh_token', outcome: 'granted' } as const
  await until('the background', () => sandbox.journal.entries(granted).length === 2)
  t.equal((await hung.fetch('/flux/temperature')).status, 200)
  t.equal(sandbox.counters().reuseDetected, 0)
})

for (const [what, fault] of Object.entries(HARMLESS)) {
  t.test(`${what} instead of tokens ends no session, and recovery is noticed`, async (t) => {
    const { sandbox, browser } = await start(t)
    sandbox.faults.set({ tokenEndpoint: fault })
    const first = await browser.fetch('/flux/temperature')
    t.equal(first.status, 503)
    t.match(first.json(), { code: 'authorization_server_unavailable' })
    t.match(first.headers['retry-after'], /^[1-5]$/)

    const before = presentations(sandbox).length
    for (let call = 0; call < 10; call += 1) t.equal((await browser.fetch('/flux/temperature')).status, 503)
    // A slow machine may reach the end of a back-off meanwhile.
    t.ok(presentations(sandbox).length < before + 5, 'most calls are answered while backing off')
    t.match((await browser.fetch('/auth/session')).json(), { authenticated: true })

    sandbox.faults.set({ tokenEndpoint: { mode: 'ok' } })
    await until('a good answer', async () => (await browser.fetch('/flux/temperature')).status === 200)
    t.equal(sandbox.counters().reuseDetected, 0)
  })
}

for (const status of [400, 401]) {
  t.test(`invalid_grant with status ${status} ends the session`, async (t) => {
    const { sandbox, browser } = await start(t)
    const body = JSON.stringify({ error: 'invalid_grant' })
    const headers = { 'content-type': 'text/plain', 'www-authenticate': 'Bearer error="invalid_token"' }
    sandbox.faults.set({ tokenEndpoint: { mode: 'status', status, headers, body } })
    const answer = await browser.fetch('/flux/temperature')
    t.equal(answer.status, 401)
    t.match(answer.json(), { code: 'login_required', detail: /no longer accepts/ })
    t.match((await browser.fetch('/auth/session')).json(), { authenticated: false })
    t.equal(presentations(sandbox).length, 1)
  })
}

t.test('Retry-After is honoured', async (t) => {
  const { sandbox, browser } = await start(t)
  const headers = { 'retry-after': '4' }
  sandbox.faults.set({ tokenEndpoint: { mode: 'status', status: 429, headers, times: 1 } })
  t.equal((await browser.fetch('/flux/temperature')).headers['retry-after'], '4')
  await until('a good answer', async () => (await browser.fetch('/flux/temperature')).status === 200)
  const [first, second] = presentations(sandbox)
  t.ok(second!.at >= first!.at + 3_950, 'not before')
})

t.test('a response that is lost after the rotation leads to one clean sign-in', async (t) => {
  const { sandbox, browser } = await start(t)
  sandbox.faults.set({ tokenEndpoint: { mode: 'drop', point: 'after', times: 1 } })
  t.equal((await browser.fetch('/flux/temperature')).status, 503)
  await until('the end', async () => (await browser.fetch('/flux/temperature')).status === 401)
  t.equal(presentations(sandbox).length, 2)
  t.match((await browser.fetch('/auth/session')).json(), { authenticated: false })
})

t.test('a server that is slow after an outage signs nobody out', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const browsers: Browser[] = []
  while (browsers.length < 8) browsers.push(await signInExpired(bff, sandbox))
  sandbox.faults.set({ tokenEndpoint: { mode: 'drop' } })
  for (const browser of browsers) t.equal((await browser.fetch('/flux/temperature')).status, 503)
  // Each refresh token is in doubt and each access token has expired; half of TOKEN_TIMEOUT_MS for an answer.
  sandbox.faults.set({ tokenEndpoint: { mode: 'slow', ms: 5_000 } })
  for (const browser of browsers) {
    await until('a good answer', async () => (await browser.fetch('/flux/temperature')).status === 200)
  }
  t.equal(sandbox.counters().reuseDetected, 0)
})

t.test('a response that arrives after its timeout is stored, and its token is presented once', async (t) => {
  const { sandbox, bff, browser } = await start(t, TIMES_OUT_SOON)
  const gate = sandbox.hold('token', { point: 'after', only: 'refresh_token' })
  t.equal((await browser.fetch('/flux/temperature')).status, 503)
  t.match(bff.log(), 'refresh.unanswered')
  gate.release()
  await until('a good answer', async () => (await browser.fetch('/flux/temperature')).status === 200)
  t.equal(presentations(sandbox).length, 1)
  t.equal(sandbox.counters().reuseDetected, 0)
})

t.test(
  'after a reset connection a refresh token is presented again when the access token has expired, with pauses',
  async (t) => {
    // A tenth of it is time enough for each step, also on a slow machine.
    const sandbox = await startSandbox(t, { tokenLifeSeconds: 30 })
    const bff = await startBff(t, sandbox)
    const browser = await signInFor(bff, sandbox, 30)
    const { accessTokenExpiresAt } = await (await browser.fetch('/auth/session')).json()
    const expiresAt = Date.parse(String(accessTokenExpiresAt))
    // Without its tokens being used up: so that it can be seen how often it is presented.
    sandbox.faults.set({ tokenEndpoint: { mode: 'drop' } })
    await sandbox.journal.until({ endpoint: 'token', kind: 'refresh_token' })
    t.equal((await browser.fetch('/flux/temperature')).status, 200, 'the token that lives is used')
    await until('more', () => presentations(sandbox).length >= 3)
    sandbox.faults.set({ tokenEndpoint: { mode: 'ok' } })
    t.strictSame(
      presentations(sandbox)
        .map(({ at }) => at < expiresAt)
        .slice(0, 3),
      [true, false, false],
    )
    await until('a good answer', async () => (await browser.fetch('/flux/temperature')).status === 200)
  },
)

t.test('a refresh response without a refresh token keeps the old one', async (t) => {
  const { sandbox, browser } = await start(t)
  sandbox.faults.set({ omitRefreshToken: true, expiresIn: { value: 0 } })
  for (let call = 0; call < 3; call += 1) t.equal((await browser.fetch('/flux/temperature')).status, 200)
  const sent = presentations(sandbox).map(({ form }) => form?.refresh_token)
  t.equal(sent.length, 3)
  t.equal(new Set(sent).size, 1)
  t.match((await browser.fetch('/auth/session')).json(), { refreshable: true })
})
