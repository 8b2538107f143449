import t from 'tap'
import { StoreUnavailable } from '../../../src/vault/store/store.ts'
import type { RedisServer } from '../../helpers/redis.ts'
import { redisCommand } from '../../helpers/redis-command.ts'
import { startCluster } from '../../helpers/redis-groups.ts'
import { turns } from '../../helpers/wait.ts'
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

const NO_CONNECTION: Readonly<Record<string, (node: RedisServer) => Promise<unknown>>> = {
  'is dead': (node) => node.kill(),
  async 'refuses the login'(node) {
    await node.cli('config', 'set', 'requirepass', 'another')
    await redisCommand(node.port, ['client', 'kill', 'type', 'normal'], { password: 'another' })
  },
}

for (const [what, end] of Object.entries(NO_CONNECTION)) {
  t.test(
    `while a slot moves to a node that ${what}, its commands fail and the process goes on`,
    async (t) => {
      const unhandled: unknown[] = []
      const note = (reason: unknown): void => void unhandled.push(reason)
      process.on('unhandledRejection', note)
      t.teardown(() => process.off('unhandledRejection', note))
      const cluster = await startCluster(t, { args: ['--cluster-require-full-coverage', 'no'] })
      const one = await redisStore(t, clusterTarget(cluster.nodes[1]!.port))
      const key = await startSession(one)
      const { to } = await cluster.beginMove(await cluster.slotOf(`bff:s:${key}`))
      t.ok(await one.store.read(key))
      await end(to)
      for (let time = 0; time < 2; time += 1) await t.rejects(one.store.read(key), StoreUnavailable)
      await turns()
      t.strictSame(unhandled, [])
    },
  )
}
