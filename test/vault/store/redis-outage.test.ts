import t, { type Test } from 'tap'
import type { RecordKey } from '../../../src/vault/store/record.ts'
import { COMMAND_TIMEOUT_MS, LAST_STEP_MS } from '../../../src/vault/store/redis/command-timeout.ts'
import { type SessionStore, StoreUnavailable } from '../../../src/vault/store/store.ts'
import { DURABLE, startRedis } from '../../helpers/redis.ts'
import { startClusterOfOne } from '../../helpers/redis-groups.ts'
import { startProxy } from '../../helpers/tcp-proxy.ts'
import { elapsed, until } from '../../helpers/wait.ts'
import { callEveryMethod, everyMethod } from './every-method.ts'
import {
  clusterTarget,
  newKey,
  openRedisStore,
  redisStore,
  singleTarget,
  startSession,
  untilItWorks,
} from './stores.ts'

// The tests mostly wait, so they run concurrently.
t.jobs = 4

for (const [name, start, targetOf] of [
  ['server', startRedis, singleTarget],
  ['Cluster node', startClusterOfOne, clusterTarget],
] as const) {
  t.test(`while a ${name} hangs each method fails within a second, and works when it resumes`, async (t) => {
    const redis = await start(t)
    const made = await redisStore(t, targetOf(redis.port))
    const key = await startSession(made)
    redis.pause()
    await refusesEveryMethod(t, made.store, key)
    redis.resume()
    await untilItWorks(made.store)
    await callEveryMethod(made.store)
  })
}

t.test('a connection that silently died is replaced, also after a handshake that hung', async (t) => {
  const redis = await startRedis(t)
  const proxy = await startProxy(t, redis.port)
  const { store } = await redisStore(t, singleTarget(proxy.port))
  const before = proxy.made()
  proxy.freeze()
  await t.rejects(store.ping(), StoreUnavailable)
  await until('the connection is reopened and hangs in its handshake', () => proxy.made() > before)
  proxy.thaw()
  await untilItWorks(store)
})

t.test('after a kill of the server calls fail at once, and none is sent when it is back', async (t) => {
  const redis = await startRedis(t, { args: DURABLE })
  const made = await redisStore(t, singleTarget(redis.port))
  const { store } = made
  const key = await startSession(made)
  await redis.kill()
  await refusesEveryMethod(t, store, key, 200)
  const calls = Array.from({ length: 1_000 }, () => store.schedule(newKey(), 0))
  const answers = await Promise.allSettled(calls)
  t.ok(answers.every(({ status }) => status === 'rejected'))
  await redis.restart()
  await untilItWorks(store)
  t.equal((await store.read(key))?.gen, 1, 'the session is still there')
  t.equal(await store.queueLength(), 0)
  t.notMatch(await redis.cli('info', 'commandstats'), /cmdstat_zadd/)
  await callEveryMethod(store)
})

t.test('a command in flight when the connection breaks fails and is not resent', async (t) => {
  const redis = await startRedis(t)
  const proxy = await startProxy(t, redis.port)
  const { store } = await redisStore(t, singleTarget(proxy.port))
  proxy.cutAt('eval')
  await t.rejects(store.schedule(newKey(), 0), StoreUnavailable)
  await untilItWorks(store)
  t.equal(await store.queueLength(), 0)
})

t.test('a server that is missing at the start is used once it starts', async (t) => {
  const redis = await startRedis(t)
  await redis.kill()
  const reported: string[] = []
  const store = openRedisStore(t, singleTarget(redis.port), {
    onUnreachable: () => reported.push('unreachable'),
    onReachable: () => reported.push('reachable'),
  })
  await t.rejects(store.ping(), StoreUnavailable)
  await until('it is reported', () => reported.length > 0)
  await redis.restart()
  await untilItWorks(store)
  t.strictSame(reported, ['unreachable', 'reachable'])
})

t.test('a closed store fails at once', async (t) => {
  const redis = await startRedis(t)
  const { store } = await redisStore(t, singleTarget(redis.port))
  await store.close()
  await refusesEveryMethod(t, store, newKey(), 100)
})

t.test('each command is observed with its name, duration and success', async (t) => {
  const redis = await startRedis(t)
  const seen: [command: string, ok: boolean][] = []
  const { store } = await redisStore(t, singleTarget(redis.port), {
    observe(command, seconds, ok) {
      t.ok(seconds > 0 && seconds < 5)
      seen.push([command, ok])
    },
  })
  seen.length = 0
  await callEveryMethod(store)
  // Each step after the first knows the record; the first one also learns the replication id.
  t.equal(seen.filter(([command]) => command === 'create').length, 3)
  t.strictSame(
    seen.filter(([command]) =>
      /^(confirm|touch|.*-refresh|.*-lease|replace-tokens|reseal|end)$/.test(command),
    ).length,
    8,
  )
  t.ok(seen.every(([, ok]) => ok))
  await redis.kill()
  seen.length = 0
  await t.rejects(store.read(newKey()), StoreUnavailable)
  t.strictSame(seen, [['read', false]])
})

t.test('a server that has loaded its data sooner than it guessed is used at once', async (t) => {
  const slowly = ['--key-load-delay', '100000', '--loading-process-events-interval-bytes', '1024']
  const redis = await startRedis(t, { args: ['--rdbcompression', 'no', ...slowly] })
  const made = await redisStore(t, singleTarget(redis.port))
  const fill = `for i = 1, 400 do redis.call('SET', i, string.rep('x', 4096)) end`
  await redis.cli('eval', fill, '0')
  await redis.cli('save')
  await redis.kill()
  const restarted = redis.restart()
  const guess = async (): Promise<number> =>
    Number(/loading_eta_seconds:(\d+)/.exec(await redis.cli('info', 'persistence').catch(() => ''))?.[1] ?? 0)
  await until('it guesses half a minute', async () => (await guess()) > 30)
  // The client has asked meanwhile.
  await elapsed(1_500)
  await redis.cli('config', 'set', 'key-load-delay', '0')
  await restarted
  const works = (): Promise<boolean> =>
    made.store.ping().then(
      () => true,
      () => false,
    )
  t.ok((await until('it is used', works)) < 15_000, 'long before what Redis guessed')
})

/**
 * Calls every method at once: each rejects with `StoreUnavailable` in time. What holds up this process, as others on a busy
 * machine do, holds up a timer as well, and does not count.
 */
async function refusesEveryMethod(
  t: Test,
  store: SessionStore,
  key: RecordKey,
  withinMs = 1_000,
): Promise<void> {
  const calls = Object.entries(everyMethod(store, key)).map(async ([name, call]) => {
    const startedAt = performance.now()
    const error = await call().then(
      () => null,
      (cause: unknown) => cause,
    )
    return { name, error, ms: performance.now() - startedAt }
  })
  const heldUpMs = await howLate(Math.min(withinMs, COMMAND_TIMEOUT_MS))
  for (const { name, error, ms } of await Promise.all(calls)) {
    t.ok(error instanceof StoreUnavailable, `${name} rejects with StoreUnavailable`)
    t.ok(ms < withinMs + heldUpMs, `${name} rejects in time (${ms.toFixed()} ms)`)
  }
}

/** By how much two timers in a row, the second of them short, end later than due. */
async function howLate(ms: number): Promise<number> {
  const startedAt = performance.now()
  const lastStepMs = Math.min(ms, LAST_STEP_MS)
  await elapsed(ms - lastStepMs)
  await elapsed(lastStepMs)
  return Math.max(0, performance.now() - startedAt - ms)
}
