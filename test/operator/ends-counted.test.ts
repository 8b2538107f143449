import t from 'tap'
import { startRedis } from '../helpers/redis.ts'
import { type Bff, platformEnv, signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { scan } from '../store/contract-scan.ts'
import { redisStore, singleTarget } from '../store/stores.ts'
import { sessions } from './run.ts'

async function metric(bff: Bff, series: string): Promise<number> {
  const text = await (await fetch(`${bff.opsUrl}/metrics`)).text()
  const line = text.split('\n').find((one) => one.startsWith(`${series} `))
  return Number(line?.slice(series.length) ?? 0)
}

t.test('each session that an operator ends is counted once, by one of the replicas', async (t) => {
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t)
  const env = { REDIS_URL: redis.url }
  const replicas = [await startBff(t, sandbox, env), await startBff(t, sandbox, env)]
  await Promise.all(replicas.map(untilReady))
  for (let count = 0; count < 3; count += 1)
    t.equal((await signIn(replicas[0]!.browser(), sandbox)).status, 303)
  const operator = {
    REDIS_URL: redis.url,
    SESSION_SECRET: 'the-first-secret-of-the-tests-of-32-characters',
    ...platformEnv(sandbox),
  }
  const { store } = await redisStore(t, singleTarget(redis.port))
  const keys = await scan(store)
  t.match(await sessions(t, operator, 'end-all', '--yes'), { code: 0, lines: ['ended 3'] })
  const counted = async (): Promise<number> => {
    const values = replicas.map((bff) => metric(bff, 'bff_sessions_ended_total{reason="operator"}'))
    return (await Promise.all(values)).reduce((sum, value) => sum + value)
  }
  await until('the ends are counted', async () => (await counted()) >= 3)
  const isEmpty = async (): Promise<boolean> => (await store.queueLength()) === 0
  await until('the queue is empty', isEmpty)
  // As by a refresh that was under way.
  for (const key of keys) await store.schedule(key, 0)
  await until('the queue is empty again', isEmpty)
  t.equal(await counted(), 3)
})
