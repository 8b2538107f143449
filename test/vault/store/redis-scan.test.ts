import t from 'tap'
import type { RecordKey } from '../../../src/vault/store/record.ts'
import { StoreUnavailable } from '../../../src/vault/store/store.ts'
import { startRedis } from '../../helpers/redis.ts'
import { startCluster } from '../../helpers/redis-groups.ts'
import { until } from '../../helpers/wait.ts'
import {
  clusterTarget,
  newKey,
  newRecord,
  openRedisStore,
  redisStore,
  scan,
  singleTarget,
  startSession,
  type TestStore,
  untilItWorks,
} from './stores.ts'

// The tests mostly wait, so they run concurrently.
t.jobs = 3

t.test('a scan finds only the records of its prefix, whatever characters the prefix contains', async (t) => {
  const redis = await startRedis(t)
  const prefixes = ['app:', 'app:s:', 'a*:', 'a[p]p:', 'ap?:', 'a\\p', 'a^-:', 'app']
  for (const prefix of prefixes) {
    const made = await redisStore(t, singleTarget(redis.port), { prefix })
    const keys = [await startSession(made), await startSession(made)].sort()
    t.strictSame(await scan(made.store), keys, prefix)
    await redis.cli('set', `${prefix}s:something-else`, '1')
    t.strictSame(await scan(made.store), keys, prefix)
  }
})

/** A hundred at a time: a command waits for all those before it, and has a timeout. */
async function startSessions({ store, now }: TestStore, count: number): Promise<void> {
  const start = async (): Promise<void> => {
    const key = newKey()
    await untilDone(() => store.create(key, newRecord(now()), 60_000))
    await untilDone(() => store.confirm(key))
  }
  for (let left = count; left > 0; left -= 100)
    await Promise.all(Array.from({ length: Math.min(left, 100) }, start))
}

/** Tries a step again, which changes nothing the second time, while the machine is too slow for its timeout. */
async function untilDone(step: () => Promise<unknown>): Promise<void> {
  await until('the step is done', () =>
    step().then(
      () => true,
      (error: unknown) => {
        if (error instanceof StoreUnavailable) return false
        throw error
      },
    ),
  )
}

t.test('a scan reads keys in small batches, never all at once', async (t) => {
  const redis = await startRedis(t)
  const made = await redisStore(t, singleTarget(redis.port))
  await startSessions(made, 3_000)
  t.equal((await scan(made.store)).length, 3_000)
  const stats = await redis.cli('info', 'commandstats')
  t.notMatch(stats, /cmdstat_keys:/)
  const scans = Number(/cmdstat_scan:calls=(\d+)/.exec(stats)?.[1])
  t.ok(scans >= 3 && scans <= 6, `${scans} steps`)
})

t.test('a scan whose connection breaks rejects, even if the connection is already back', async (t) => {
  const redis = await startRedis(t)
  const made = await redisStore(t, singleTarget(redis.port))
  await startSessions(made, 2_500)
  const steps = made.store.keys()[Symbol.asyncIterator]()
  t.not((await steps.next()).value.length, 0)
  const connection = async () =>
    /id=\d+ .*name=bff-commands/.exec(await redis.cli('client', 'list'))?.[0] ?? ''
  const [first] = (await connection()).split(' ')
  await redis.cli('client', 'kill', 'type', 'normal', 'skipme', 'yes')
  await until('there is another connection', async () => {
    const [now = ''] = (await connection()).split(' ')
    return now !== '' && now !== first
  })
  await untilItWorks(made.store)
  await t.rejects(steps.next(), StoreUnavailable)
  t.equal((await scan(made.store)).length, 2_500, 'the next scan is complete')
})

t.test('a scan over a Cluster covers every master, or rejects', async (t) => {
  const cluster = await startCluster(t)
  const target = clusterTarget(cluster.nodes[0]!.port)
  await t.rejects(scan(openRedisStore(t, target)), StoreUnavailable, 'while the nodes are unknown')
  const made = await redisStore(t, target)
  const keys: RecordKey[] = []
  for (let i = 0; i < 60; i++) keys.push(await startSession(made))
  // A new store first has to open its connections.
  const other = await redisStore(t, target)
  for (const { store } of [made, other]) t.strictSame(await scan(store), keys.sort())
  t.equal(await other.store.scheduleMissing(keys.map((key) => ({ key, inMs: 0 }))), 60)
  t.equal(await other.store.reseal(keys[0]!, 'sealed-1', 'resealed'), true)

  await cluster.nodes[2]!.kill()
  for (let round = 0; round < 20; round++) {
    for (const { store } of [made, other]) await t.rejects(scan(store), StoreUnavailable)
    await made.store.read(newKey()).catch(() => {})
  }
})

t.test('a scan during which a slot moves reads all it finds, and rejects', async (t) => {
  const cluster = await startCluster(t)
  const made = await redisStore(t, clusterTarget(cluster.nodes[0]!.port))
  for (let i = 0; i < 60; i++) await startSession(made)
  t.equal((await scan(made.store)).length, 60)
  for (const completes of [true, false]) {
    const found = new Set<RecordKey>()
    let move: { end(): Promise<void> } | undefined
    const steps = async (): Promise<void> => {
      for await (const batch of made.store.keys()) {
        for (const key of batch) found.add(key)
        move ??= await cluster.beginMove(await cluster.slotOf('a'))
        if (completes) await move.end()
      }
    }
    await t.rejects(steps(), StoreUnavailable, completes ? 'it has moved' : 'it is on its way')
    t.ok(found.size >= 55, `${found.size} were found`)
    await move?.end()
  }
  t.equal((await scan(made.store)).length, 60)
})
