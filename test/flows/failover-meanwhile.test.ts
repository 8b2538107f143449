import t from 'tap'
import { startSentinelGroup } from '../helpers/redis-groups.ts'
import { presentations, signInExpired, through } from '../helpers/replicas.ts'
import { startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'

// Most of the time is spent waiting.
t.jobs = 3

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
    // What it does not have yet when the master dies is lost.
    await until('the replica has the session', async () =>
      (await group.replica.cli('keys', 'bff:s:*')).includes('bff:s:'),
    )
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
