import t from 'tap'
import { checkRedis } from '../../operator/check-redis.ts'
import { configOf } from '../config/environment.ts'
import { logLines } from '../helpers/log-lines.ts'
import { startRedis } from '../helpers/redis.ts'
import { startCluster, startSentinelGroup } from '../helpers/redis-groups.ts'
import { presentations, signInExpired } from '../helpers/replicas.ts'
import { opsStatus, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'

const FORMS = {
  'a single Redis': startRedis,
  'a Sentinel group': startSentinelGroup,
  'a Cluster': startCluster,
}

t.jobs = 3

for (const [what, start] of Object.entries(FORMS)) {
  t.test(`over TLS ${what} is used if its certificate is trusted, and not otherwise`, async (t) => {
    const redis = await start(t, { tls: true })
    const sandbox = await startSandbox(t)
    const bff = await startBff(t, sandbox, { REDIS_URL: redis.url, REDIS_CA_FILE: redis.caFile ?? '' })
    await untilReady(bff)
    const browser = await signInExpired(bff, sandbox)
    t.equal((await browser.fetch('/flux/temperature')).status, 200)
    t.equal(presentations(sandbox).length, 1, 'refreshed')

    const doubting = await startBff(t, sandbox, { REDIS_URL: redis.url })
    const reasons = () =>
      logLines(doubting.log(), 'store.unreachable').map(({ reason, msg }) => `${reason}: ${msg}`)
    const why = () => reasons().find((reason) => reason.includes('self-signed certificate'))
    await until('it says why', () => why() !== undefined)
    const { store } = configOf({ REDIS_URL: redis.url })
    const { verdicts } = await checkRedis(store)
    t.match(verdicts, [
      { check: 'Redis', verdict: 'fault', message: /\(.*self-signed certificate.*\).*REDIS_CA_FILE/ },
    ])
    t.match(why(), /REDIS_CA_FILE/)
    t.equal(await opsStatus(doubting), 503)
    t.equal((await doubting.browser().navigate('/auth/login')).status, 303, 'it has not ended')
    t.equal(new Set(reasons()).size, reasons().length, 'each reason is told once')
  })
}
