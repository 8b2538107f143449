import t from 'tap'
import type { RecordKey } from '../../src/store/store.ts'
import { type RedisServer, startRedis } from '../helpers/redis.ts'
import { until } from '../helpers/wait.ts'
import { PREFIX, redisStore, singleTarget, startSession, type TestStore } from './stores.ts'

const LONG = 60_000
const begin = (
  { store }: TestStore,
  key: RecordKey,
  attempt: string,
  gen = 1,
  forcedWindowMs = 0,
  livesMs = 0,
) => store.beginRefresh(key, { gen, attempt, leaseMs: LONG, openMs: 0, livesMs, forcedWindowMs })

/** A server whose replication history the test can change, as a promotion does. */
async function start(t: Parameters<typeof startRedis>[0]): Promise<{ redis: RedisServer; made: TestStore }> {
  const redis = await startRedis(t, { args: ['--enable-debug-command', 'yes'] })
  return { redis, made: await redisStore(t, singleTarget(redis.port)) }
}

t.jobs = 4

t.test('after a change of history no refresh begins for some seconds, not even a forced one', async (t) => {
  const { redis, made } = await start(t)
  const key = await startSession(made)
  await redis.cli('debug', 'change-repl-id')
  for (const [attempt, window] of [
    ['a', 0],
    ['b', LONG],
  ] as const) {
    const begun = await begin(made, key, attempt, 1, window)
    t.equal(begun.kind, 'paused')
    t.ok(begun.kind === 'paused' && begun.waitMs > 3_000 && begun.waitMs <= 4_000)
  }
  const waited = await until(
    'the pause has ended',
    async () => (await begin(made, key, 'a')).kind === 'granted',
  )
  t.ok(waited > 3_000, `after ${Math.round(waited)} ms`)
  t.equal((await made.store.read(key))?.doubts, 1, 'the pause leaves no doubt')
})

t.test('while the access token is valid the pause lasts one lease, but never past its expiry', async (t) => {
  const { redis, made } = await start(t)
  for (const [livesMs, pauseMs] of [
    [2 * LONG, LONG],
    [LONG / 2, LONG / 2],
    [1_000, 4_000],
  ] as const) {
    const key = await startSession(made)
    await redis.cli('debug', 'change-repl-id')
    t.strictSame(await begin(made, key, 'a', 1, 0, livesMs), { kind: 'paused', waitMs: pauseMs })
  }
})

t.test(
  'a presentation in doubt whose lease was lost counts, and delays the next refresh after the pause',
  async (t) => {
    const { redis, made } = await start(t)
    const key = await startSession(made)
    const name = `${PREFIX}s:${key}`
    const before = (await redis.cli('hgetall', name)).split('\n')
    await begin(made, key, 'a')
    // As on a replica that had not received the lease.
    await redis.cli('del', name)
    await redis.cli('hset', name, ...before)
    await redis.cli('debug', 'change-repl-id')
    t.equal((await begin(made, key, 'b', 1, 0, LONG)).kind, 'paused')
    await made.store.releaseLease(key, { attempt: 'a', inDoubt: { gen: 1, doubts: 1 }, retryInMs: LONG })
    t.equal((await begin(made, key, 'b', 1, 0, LONG)).kind, 'paused', 'still')
    t.match(await made.store.read(key), { doubts: 1 })
    await redis.cli('hset', name, 'leaseUntil', '0')
    t.equal((await begin(made, key, 'b')).kind, 'backing_off')
  },
)

t.test('each history causes one pause', async (t) => {
  const { redis, made } = await start(t)
  const key = await startSession(made)
  t.equal((await begin(made, key, 'a')).kind, 'granted', 'no pause in the history of its creation')
  await made.store.releaseLease(key, { attempt: 'a', inDoubt: null, retryInMs: 0 })
  await redis.cli('debug', 'change-repl-id')
  await begin(made, key, 'a')
  await redis.cli('hset', `${PREFIX}s:${key}`, 'leaseUntil', '0')
  t.equal((await begin(made, key, 'a')).kind, 'granted')
  await made.store.releaseLease(key, { attempt: 'a', inDoubt: null, retryInMs: 0 })
  await redis.cli('debug', 'change-repl-id')
  t.equal((await begin(made, key, 'b')).kind, 'paused')
})

t.test('the holder of a lease keeps it, and the pause follows', async (t) => {
  const { redis, made } = await start(t)
  const key = await startSession(made)
  await begin(made, key, 'a')
  await redis.cli('debug', 'change-repl-id')
  t.match(await begin(made, key, 'a'), { kind: 'granted', doubts: 0, openForMs: 0 })
  const other = await begin(made, key, 'b')
  t.ok(other.kind === 'busy' && other.waitMs > 30_000)
  await made.store.releaseLease(key, { attempt: 'a', inDoubt: null, retryInMs: 0 })
  const next = await begin(made, key, 'b')
  t.ok(next.kind === 'paused' && next.waitMs <= 4_000)
})

t.test('tokens that are written during the pause do not end it, since newer ones may follow', async (t) => {
  const { redis, made } = await start(t)
  const key = await startSession(made)
  await redis.cli('debug', 'change-repl-id')
  await begin(made, key, 'a')
  for (const gen of [1, 2]) {
    await made.store.replaceTokens(key, { gen, tokens: 'sealed' })
    t.equal((await begin(made, key, 'a', gen + 1)).kind, 'paused')
  }
})

t.test('a Redis user without permission for INFO refreshes without a pause', async (t) => {
  const { redis, made } = await start(t)
  const key = await startSession(made)
  await redis.cli('acl', 'setuser', 'default', '-info')
  await redis.cli('debug', 'change-repl-id')
  t.equal((await begin(made, key, 'a')).kind, 'granted')
  t.equal((await begin(made, await startSession(made), 'a')).kind, 'granted')
})
