import t from 'tap'
import { recordKeyOf } from '../../src/http/cookies.ts'
import { type Browser, createBrowser } from '../helpers/browser.ts'
import { type RedisServer, startRedis } from '../helpers/redis.ts'
import { presentations, through } from '../helpers/replicas.ts'
import { startServer } from '../helpers/server-process.ts'
import { storedRecord } from '../helpers/stored-record.ts'
import { platformEnv, signInSurely, startSandbox } from '../helpers/system.ts'
import { elapsed, until } from '../helpers/wait.ts'
import { sessionsOn } from './load.ts'

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
    await signInSurely(browser, sandbox)
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
  // Whoever presents a token has the lease, from before that until the new ones are stored.
  let underWay = new Set<string>()
  for (let tries = 1; ; tries += 1) {
    const lost = sandbox.hold('token', { point: 'after', only: 'refresh_token' })
    await lost.arrived
    // From now on it takes no lease.
    killed.send('SIGSTOP')
    underWay = await leasesIn(redis)
    // Where the machine was held up, all sessions are due at once.
    const isEnough = underWay.size < SESSIONS || tries === 5
    if (isEnough) await killed.stop('SIGKILL')
    else killed.send('SIGCONT')
    lost.release()
    if (isEnough) break
  }
  t.ok(underWay.size > 0 && underWay.size < SESSIONS, `${underWay.size} refreshes were under way at the kill`)

  // The next tokens live long, so that a slow machine is done with all refreshes at some time.
  sandbox.faults.set({ tokenLifeSeconds: 3_600 })
  const isInDoubt = browsers.map((browser) => underWay.has(recordOf(browser)))
  let statuses: number[] = []
  await until('all other sessions are served', async () => {
    const here = browsers.map((browser) => through(stays, browser).fetch('/flux/temperature'))
    statuses = (await Promise.all(here)).map(({ status }) => status)
    return statuses.every((status, at) => status === 200 || isInDoubt[at])
  })
  // 503: it is not yet certain that the process that was killed will not be granted.
  t.strictSame(
    statuses.filter((status) => ![200, 401, 503].includes(status)),
    [],
  )
  const sent = presentations(sandbox).map(({ form }) => form?.refresh_token)
  const again = sent.length - new Set(sent).size
  t.ok(again <= underWay.size, `${again} refresh tokens were presented again, in doubt`)
  t.equal(await stays.stop(), 0)
})

/** The name of the record of this browser's session. */
function recordOf({ cookies }: Browser): string {
  return `bff:s:${recordKeyOf(cookies.get('session')!.value.slice(0, 43))}`
}

/** The names of the records with a lease. */
async function leasesIn(redis: RedisServer): Promise<Set<string>> {
  const names = await sessionsOn(redis)
  const found = await Promise.all(names.map((name) => storedRecord(redis, name)))
  return new Set(names.filter((_, at) => found[at] !== null && found[at]!.lease !== ''))
}
