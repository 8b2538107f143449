import t from 'tap'
import { startRedis } from '../helpers/redis.ts'
import { platformEnv, startSandbox } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { sessions } from '../operator/run.ts'
import { redisStore, singleTarget } from '../store/stores.ts'
import { makeSessions, startCalls, startDeployment } from './rotation-deployment.ts'

const A = 'secret-A-of-the-tests-of-32-characters'
const B = 'secret-B-of-the-tests-of-32-characters'
const IDLE = 40
const SHORT = 24
const BUSY = 40

interface Seals {
  older: number
  unreadable: number
  newest: number
}

// Half of it on a quiet machine.
t.setTimeout(120_000)

t.test('secrets change by rolling restarts under load, and nobody is signed out', async (t) => {
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t)
  const { store } = await redisStore(t, singleTarget(redis.port))
  const due = (index: number): number => 4 + (index * 10) / SHORT
  // Nobody uses these while the secrets change; nor do they need a refresh.
  const idle = await makeSessions(store, sandbox, A, Array<number>(IDLE).fill(3_600))
  // These are refreshed while the secrets change, half of them with no call at all.
  const short = await makeSessions(
    store,
    sandbox,
    A,
    Array.from({ length: SHORT }, (_, i) => due(i)),
  )
  const busy = await makeSessions(store, sandbox, A, Array<number>(BUSY).fill(3_600))
  const called = [...busy, ...short.filter((_, i) => i % 2 === 0)]
  const all = [...idle, ...short, ...busy]

  const deployment = await startDeployment(
    t,
    {
      SESSION_STORE: undefined,
      REDIS_URL: redis.url,
      ...platformEnv(sandbox),
    },
    A,
  )
  const seals = async (...secrets: string[]): Promise<Seals> => {
    const env = { REDIS_URL: redis.url, SESSION_SECRET: secrets.join(',') }
    const { lines } = await sessions(t, env, 'count', '--old-key', '--json')
    return JSON.parse(lines[0]!) as Seals
  }
  const calls = startCalls(deployment, called, 4)
  await calls.rounds(1)
  const mixed = () => calls.rounds(1)

  await deployment.roll(`${A},${B}`, mixed)
  await deployment.roll(`${B},${A}`, mixed)
  // Each through both replicas.
  await calls.rounds(3)
  const before = await seals(B, A)
  t.equal(before.unreadable, 0)
  t.ok(
    before.older >= IDLE + BUSY && before.older <= all.length,
    `${before.older}: those that were not refreshed`,
  )

  const env = { REDIS_URL: redis.url, SESSION_SECRET: `${B},${A}` }
  t.match(await sessions(t, env, 'reseal', '--json'), { code: 0, lines: [/"older":0/] })
  t.strictSame(await seals(B, A), { older: 0, unreadable: 0, newest: all.length })

  // In the place of SESSION_MAX_SECONDS: by then no browser has a cookie that A has signed.
  for (const jar of all) t.equal(await deployment.call(jar, '/auth/session'), 200)
  const refreshed = () => sandbox.counters()['token refresh_token granted'] ?? 0
  await deployment.roll(B, async () => {
    await mixed()
    // A fast machine is here before the last of them is due.
    await until('each short one is refreshed on the way', () => refreshed() >= SHORT)
  })
  await calls.rounds(1)
  await calls.stop()

  t.strictSame([...calls.answers.keys()].sort(), ['200 /auth/session', '200 /flux/temperature'])
  const statuses = new Set<number>()
  for (const jar of all) statuses.add(await deployment.call(jar, '/flux/temperature'))
  t.strictSame([...statuses], [200], 'every session goes on under the new secret alone')
  t.strictSame(await seals(B), { older: 0, unreadable: 0, newest: all.length })
  t.equal(sandbox.counters().reuseDetected, 0)
  t.notMatch(deployment.output(), /session\.unreadable|"level":"error"/)
})
