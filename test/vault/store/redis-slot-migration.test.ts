import t from 'tap'
import { startCluster } from '../../helpers/redis-groups.ts'
import { clusterTarget, newKey, redisStore, startSession } from './stores.ts'

t.test(
  'while its slot moves, every operation on a session works, and its end keeps its reason',
  async (t) => {
    const cluster = await startCluster(t)
    const target = clusterTarget(cluster.nodes[1]!.port)
    const one = await redisStore(t, target)
    const other = await redisStore(t, target)
    const { store } = one

    const key = await startSession(one)
    const move = await cluster.beginMove(await cluster.slotOf(`bff:s:${key}`))
    t.ok(await store.read(key))
    t.ok(await store.confirm(key))
    t.ok(await store.touch(key))
    t.equal((await store.replaceTokens(key, { gen: 1, tokens: 'sealed-2' })).kind, 'replaced')
    t.equal(await store.reseal(key, 'sealed-2', 'sealed-3'), true)

    t.strictSame(await store.end(key, { reason: 'logout' }), { kind: 'ended', tokens: 'sealed-3' })
    t.equal((await store.readEnd(key))?.reason, 'logout')
    t.equal(await store.read(key), null)
    t.equal(await other.store.readState(key), null, 'also for another replica')
    t.strictSame(await store.end(key, { reason: 'logout' }), { kind: 'gone' })
    await move.end()
    t.equal((await store.readEnd(key))?.reason, 'logout')
    t.equal(await store.read(key), null)
    t.strictSame(await store.end(newKey()), { kind: 'gone' })
  },
)
