import t from 'tap'
import { StoreUnavailable } from '../../../src/vault/store/store.ts'
import { startRedis } from '../../helpers/redis.ts'
import { startCluster } from '../../helpers/redis-groups.ts'
import { elapsed, until } from '../../helpers/wait.ts'
import { clusterTarget, newKey, redisStore, singleTarget, startSession, type TestStore } from './stores.ts'

t.jobs = 3

/** Counts the incidents that are reported from now on. */
function watch({ store }: TestStore): () => number {
  let reported = 0
  store.health.onIncident(() => {
    reported += 1
  })
  return () => reported
}

/** Starts a session, again if a stalled machine delayed the reply. */
async function startInTime(made: TestStore): Promise<string> {
  for (;;) {
    try {
      return await startSession(made)
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error
    }
  }
}

t.test('a command that the ACL forbids is no incident', async (t) => {
  const redis = await startRedis(t)
  const made = await redisStore(t, singleTarget(redis.port))
  const reported = watch(made)
  await redis.cli('acl', 'setuser', 'default', '-zcount', '-scan', '-zadd')
  const before = made.store.health.msSinceIncident(newKey())
  await t.rejects(made.store.queueLength(), StoreUnavailable)
  await t.rejects(made.store.schedule(newKey(), 1), StoreUnavailable)
  t.equal(reported(), 0)
  t.ok(made.store.health.msSinceIncident(newKey()) >= before)
})

t.test('a server that accepts no writes is an incident, whatever its error code', async (t) => {
  const redis = await startRedis(t)
  const made = await redisStore(t, singleTarget(redis.port))
  const key = await startSession(made)
  const reported = watch(made)
  let before = 0
  const refuses = async (code: string): Promise<void> => {
    const startedAt = performance.now()
    await t.rejects(made.store.ping(), StoreUnavailable, `${code}: unavailable, although it responds`)
    const failed = await t.rejects(made.store.touch(key), StoreUnavailable)
    t.match(String((failed as Error | undefined)?.cause), code)
    t.ok(reported() > before, code)
    t.ok(made.store.health.msSinceIncident(key) <= performance.now() - startedAt)
    before = reported()
  }
  await redis.cli('config', 'set', 'min-replicas-to-write', '1')
  await refuses('NOREPLICAS')
  await redis.cli('config', 'set', 'min-replicas-to-write', '0')
  await redis.cli('replicaof', '127.0.0.1', '1')
  await refuses('READONLY')
})

t.test('a lost connection is an incident, and a new one too', async (t) => {
  const redis = await startRedis(t)
  const made = await redisStore(t, singleTarget(redis.port))
  const reported = watch(made)
  await redis.kill()
  await until('the loss is reported', () => reported() > 0)
  const lost = reported()
  // The client retries several times without success.
  for (let count = 0; count < 20; count += 1) {
    await t.rejects(made.store.ping(), StoreUnavailable)
    await elapsed(100)
  }
  t.equal(reported(), lost)
  await redis.restart()
  await until('its return is reported', () => reported() > lost)
})

t.test(
  'a Cluster shard that refuses writes or stays unavailable is no incident for the others',
  async (t) => {
    const cluster = await startCluster(t)
    const made = await redisStore(t, clusterTarget(cluster.nodes[1]!.port))
    const { store } = made
    for (const node of cluster.nodes) await node.cli('config', 'set', 'cluster-require-full-coverage', 'no')
    const keys = await Promise.all(Array.from({ length: 40 }, () => startInTime(made)))

    const before = keys.map(store.health.msSinceIncident)
    const refusing = cluster.nodes[2]!
    t.equal(
      await refusing.cli('cluster', 'countkeysinslot', await refusing.cli('cluster', 'keyslot', 'bff:ping')),
      '1',
    )
    await refusing.cli('config', 'set', 'min-replicas-to-write', '1')
    await t.rejects(store.ping(), StoreUnavailable)
    const blamed = keys.filter((key, at) => store.health.msSinceIncident(key) < before[at]!)
    const refused: string[] = []
    for (const key of keys)
      await store.touch(key).catch((error: StoreUnavailable) => {
        if (/NOREPLICAS/.test(String(error.cause))) refused.push(key)
      })
    t.ok(refused.length > 0 && refused.length < keys.length)
    t.strictSame(blamed, refused, 'only for the sessions of the server that refused')
    await refusing.cli('config', 'set', 'min-replicas-to-write', '0')

    await cluster.nodes[0]!.kill()
    const isAway = async (key: string): Promise<boolean> =>
      await store.read(key).then(
        () => false,
        () => true,
      )
    await until('its incident is reported', () =>
      keys.some((key) => store.health.msSinceIncident(key) < 1_000),
    )
    await until('six seconds have passed, with failures in each', async () => {
      for (let nonce = 0; nonce < 16; nonce += 1)
        await store.claimNonce(`${nonce}`, 'a', 1_000).catch(() => {})
      const away = await Promise.all(keys.map(isAway))
      if (away.every((each) => !each) || away.every((each) => each)) return false
      return keys.every((key, at) => away[at] || store.health.msSinceIncident(key) > 6_000)
    })
  },
)
