import t, { type Test } from 'tap'
import type { Faults } from '../../sandbox/faults.ts'
import { presentations, signInExpired } from '../helpers/replicas.ts'
import { startBff, startSandbox } from '../helpers/system.ts'
import { until, watchLateness } from '../helpers/wait.ts'

t.jobs = 6

/** One for each kind of outcome: test/oauth/client.test.ts has all responses. */
const HARMLESS: Record<string, Faults['tokenEndpoint']> = {
  'a 503': { mode: 'status', status: 503 },
  invalid_client: { mode: 'invalid_client' },
  'a reset connection': { mode: 'drop' },
}

/** A session whose access token has expired. */
async function start(t: Test) {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  return { sandbox, browser: await signInExpired(bff, sandbox) }
}

for (const [what, fault] of Object.entries(HARMLESS)) {
  t.test(`${what} instead of tokens ends no session, and recovery is noticed`, async (t) => {
    const { sandbox, browser } = await start(t)
    sandbox.faults.set({ tokenEndpoint: fault })
    const first = await browser.fetch('/flux/temperature')
    t.equal(first.status, 503)
    t.match(first.json(), { code: 'authorization_server_unavailable' })
    t.match(first.headers['retry-after'], /^[1-5]$/)

    const [before, startedAt, endWatch] = [presentations(sandbox).length, performance.now(), watchLateness()]
    for (let call = 0; call < 10; call += 1) t.equal((await browser.fetch('/flux/temperature')).status, 503)
    // A slow machine reaches the ends of back-offs meanwhile.
    const most = Math.min(1 + (performance.now() - startedAt) / 500, 4 + endWatch().lateMs / 500)
    t.ok(presentations(sandbox).length <= before + most, 'calls are answered while backing off')
    t.match((await browser.fetch('/auth/session')).json(), { authenticated: true })

    sandbox.faults.set({ tokenEndpoint: { mode: 'ok' } })
    await until('a good answer', async () => (await browser.fetch('/flux/temperature')).status === 200)
    t.equal(sandbox.counters().reuseDetected, 0)
  })
}

t.test('Retry-After is honoured', async (t) => {
  const { sandbox, browser } = await start(t)
  const headers = { 'retry-after': '4' }
  sandbox.faults.set({ tokenEndpoint: { mode: 'status', status: 429, headers, times: 1 } })
  const startedAt = performance.now()
  const seconds = (await browser.fetch('/flux/temperature')).headers['retry-after']
  const tookSeconds = (performance.now() - startedAt) / 1_000
  t.match(seconds, /^[1-4]$/)
  t.ok(Number(seconds) >= Math.ceil(4 - tookSeconds), `${seconds} after ${tookSeconds} s`)
  await until('a good answer', async () => (await browser.fetch('/flux/temperature')).status === 200)
  const [first, second] = presentations(sandbox)
  t.ok(second!.at >= first!.at + 3_950, 'not before')
})

t.test('a refresh response without a refresh token keeps the old one', async (t) => {
  const { sandbox, browser } = await start(t)
  sandbox.faults.set({ omitRefreshToken: true, expiresIn: { value: 0 } })
  const endWatch = watchLateness()
  for (let call = 0; call < 3; call += 1) t.equal((await browser.fetch('/flux/temperature')).status, 200)
  const sent = presentations(sandbox).map(({ form }) => form?.refresh_token)
  // The background refreshes after ten seconds.
  t.ok(sent.length >= 3 && sent.length <= 3 + endWatch().lateMs / 5_000, `${sent.length} refreshes`)
  t.equal(new Set(sent).size, 1)
  t.match((await browser.fetch('/auth/session')).json(), { refreshable: true })
})
