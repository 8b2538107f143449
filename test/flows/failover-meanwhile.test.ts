import t from 'tap'
import { startSentinelGroup } from '../helpers/redis-groups.ts'
import { presentations, signInExpired, through } from '../helpers/replicas.ts'
import { signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'

// Most of the time is spent waiting.
t.jobs = 3

t.test('with an outage grace, cached sessions are served throughout a Sentinel failover', async (t) => {
  const group = await startSentinelGroup(t)
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { REDIS_URL: group.url, STORE_OUTAGE_GRACE_SECONDS: '60' })
  await untilReady(bff)
  const browser = bff.browser()
  t.equal((await signIn(browser, sandbox)).status, 303)
  t.equal((await browser.fetch('/flux/a')).status, 200)

  await group.master.kill()
  const seen = new Set<number>()
  await until(
    'the grace has ended',
    async () => {
      seen.add((await browser.fetch('/flux/a')).status)
      return bff.log().includes('grace.ended')
    },
    20_000,
  )
  t.strictSame([...seen], [200])
  t.equal(await group.masterPort(), group.replica.port)
  t.match(await browser.fetch('/auth/session'), { status: 200 })
})

for (const [when, ms] of Object.entries({ 'while there is no master': 1_000, 'after it': 7_000 })) {
  t.test(`tokens granted during a failover, ${when}, are stored on the new master`, async (t) => {
    const group = await startSentinelGroup(t)
    const sandbox = await startSandbox(t)
    const env = { REDIS_URL: group.url }
    const holder = await startBff(t, sandbox, env)
    const other = await startBff(t, sandbox, env)
    await Promise.all([holder, other].map(untilReady))
    const browser = await signInExpired(holder, sandbox)
    sandbox.faults.set({ tokenEndpoint: { mode: 'slow', ms, only: 'refresh_token', times: 1 } })

    const first = browser.fetch('/flux/a')
    await until('the refresh token is on its way', () => presentations(sandbox).length === 1)
    await group.master.kill()
    const elsewhere = through(other, browser)
    await until('all is well there', async () => (await elsewhere.fetch('/flux/a')).status === 200)
    t.ok([200, 503].includes((await first).status))
    t.equal((await browser.fetch('/flux/a')).status, 200)

    t.equal(await group.masterPort(), group.replica.port)
    const late = await startBff(t, sandbox, env)
    await untilReady(late)
    t.equal((await through(late, browser).fetch('/flux/a')).status, 200)
    t.equal(presentations(sandbox).length, 1, 'no refresh token was presented twice')
    t.equal(sandbox.counters().reuseDetected, 0)
  })
}
