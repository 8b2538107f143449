import t from 'tap'
import { type Browser, createBrowser } from '../helpers/browser.ts'
import { type RedisServer, startRedis } from '../helpers/redis.ts'
import { presentations, through } from '../helpers/replicas.ts'
import { startServer } from '../helpers/server-process.ts'
import { storedRecord } from '../helpers/stored-record.ts'
import { platformEnv, signIn, startSandbox } from '../helpers/system.ts'
import { elapsed, until } from '../helpers/wait.ts'

t.jobs = 3

const SESSIONS = 30
const LIFE_SECONDS = 3

t.test('replicas that are killed or stopped during background refreshes lose no session', async (t) => {
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t, { tokenLifeSeconds: LIFE_SECONDS, journalSize: 10_000 })
  const env = {
    REDIS_URL: redis.url,
    SESSION_STORE: 'redis',
    ...platformEnv(sandbox),
  }
  const start = () => startServer(t, env)
  const [killed, stopped, stays] = await Promise.all([start(), start(), start()])
  const browsers: Browser[] = []
  for (let at = 0; at < SESSIONS; at += 1) {
    const browser = createBrowser([killed, stopped, stays][at % 3]!.publicUrl)
    await until('the sign-in', async () => (await signIn(browser, sandbox)).status === 303)
    browsers.push(browser)
  }
  // Each answer takes a little, so that some are under way at any moment.
  sandbox.faults.set({ tokenEndpoint: { mode: 'slow', ms: 150, point: 'after' } })
  await elapsed(LIFE_SECONDS * 1_000)

  const gate = sandbox.hold('token', { point: 'after', only: 'refresh_token' })
  await gate.arrived
  stopped.send('SIGTERM')
  gate.release()
  t.equal((await stopped.ended).code, 0, 'it stored what was under way')
  t.notMatch(stopped.output(), /"level":"(error|fatal)"/)

  await elapsed(LIFE_SECONDS * 1_000)
  t.equal(sandbox.counters().reuseDetected, 0)
  const lost = sandbox.hold('token', { point: 'after', only: 'refresh_token' })
  await lost.arrived
  await killed.stop('SIGKILL')
  // Whoever presents a token has the lease, from before that until the new ones are stored.
  const underWay = await leasesIn(redis)
  lost.release()
  t.ok(underWay > 0, `${underWay} refreshes were under way at the kill`)

  // The next tokens live long, so that a slow machine is done with all refreshes at some time.
  sandbox.faults.set({ tokenLifeSeconds: 3_600 })
  let statuses: number[] = []
  await until('all other sessions are served', async () => {
    const here = browsers.map((browser) => through(stays, browser).fetch('/flux/temperature'))
    statuses = (await Promise.all(here)).map(({ status }) => status)
    return statuses.filter((status) => status !== 200).length <= underWay
  })
  // 503: it is not yet certain that the process that was killed will not be granted.
  t.strictSame(
    statuses.filter((status) => ![200, 401, 503].includes(status)),
    [],
  )
  const sent = presentations(sandbox).map(({ form }) => form?.refresh_token)
  const again = sent.length - new Set(sent).size
  t.ok(again <= underWay, `${again} refresh tokens were presented again, in doubt`)
  t.equal(await stays.stop(), 0)
})

async function leasesIn(redis: RedisServer): Promise<number> {
  const records = (await redis.cli('keys', 'bff:s:*')).split('\n')
  const found = await Promise.all(records.map((record) => storedRecord(redis, record)))
  return found.filter((record) => record !== null && record.lease !== '').length
}
