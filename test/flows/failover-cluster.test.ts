import t from 'tap'
import { type RedisCluster, startCluster } from '../helpers/redis-groups.ts'
import { presentations } from '../helpers/replicas.ts'
import { elapsed, until } from '../helpers/wait.ts'
import {
  isAPause,
  PATIENT,
  presentedAgain,
  sessionsOn,
  startPair,
  survives,
  untilAllRefreshed,
} from './load.ts'

t.jobs = 3

t.test('killing a Cluster master under load, with its replica behind, signs nobody out', async (t) => {
  const cluster = await startCluster(t, { replicas: 1 })
  // After a failover nobody refreshes a session for one lease at most, which is this and five seconds.
  const env = { REDIS_URL: cluster.url, TOKEN_TIMEOUT_MS: '4000' }
  const pair = await startPair(t, env, 12)

  // A machine that stops for seconds has failovers of its own, after which it is no master.
  let victim: Node
  do {
    victim = await busiestMaster(cluster)
    await cluster.cutReplication(victim)
    await untilAllRefreshed(victim)
  } while (!(await victim.cli('role')).startsWith('master'))
  // What the replica lacks now is restored, or its session is refreshed before that with the tokens that a replica holds:
  // which comes first is not ours to say. Both show in that no refresh token is presented twice.
  await survives(t, pair, async () => {
    await victim.kill()
    await until('its replica has its slots', () => cluster.hasReplaced(victim))
  })
})

t.test('for readers the kill of a Cluster master is a pause', async (t) => {
  const cluster = await startCluster(t, { replicas: 1 })
  const pair = await startPair(t, { REDIS_URL: cluster.url }, 12, PATIENT)
  const victim = await busiestMaster(cluster)
  await isAPause(t, pair, async () => {
    await victim.kill()
    await until('its replica has its slots', () => cluster.hasReplaced(victim))
  })
})

t.test('no call fails while slots move between nodes under load', async (t) => {
  const cluster = await startCluster(t)
  const { sandbox, load } = await startPair(t, { REDIS_URL: cluster.url }, 8)

  load.mark()
  const before = presentations(sandbox).length
  const moveAll = async (): Promise<void> => {
    // Two at once are half on their way: the source has the slot, the target the keys.
    for (const slots of await slotsInUse(cluster)) {
      const moves = await Promise.all(slots.map((slot) => cluster.beginMove(slot)))
      await elapsed(400)
      for (const move of moves) await move.end()
    }
  }
  // At least once, and until tokens were refreshed meanwhile.
  do await moveAll()
  while (presentations(sandbox).length === before)
  await load.untilAllServed()
  await load.stop()
  t.strictSame(load.answers(), ['200'])
  t.equal(sandbox.counters().reuseDetected, 0)
  t.equal(presentedAgain(sandbox), 0, 'no refresh token was presented twice')
})

type Node = RedisCluster['nodes'][number]

/** A third of all sessions or more: the only one of a node may be under way in a refresh when it is killed. */
async function busiestMaster(cluster: RedisCluster): Promise<Node> {
  const counts = await Promise.all(
    cluster.nodes.map(async (node) => {
      const role = await node.cli('role')
      const sessions = role.startsWith('master') ? await sessionsOn(node) : []
      return { node, sessions: sessions.length }
    }),
  )
  return counts.reduce((most, one) => (one.sessions > most.sessions ? one : most)).node
}

/** Slots that hold something, two and two. */
async function slotsInUse(cluster: RedisCluster): Promise<number[][]> {
  const names = (await Promise.all(cluster.nodes.map((node) => node.cli('keys', 'bff:*'))))
    .flatMap((lines) => lines.split('\n'))
    .filter((name) => name !== '')
  const slots = new Set(await Promise.all(names.map(cluster.slotOf)))
  const all = [...slots]
  return all.flatMap((_, at) => (at % 2 === 0 ? [all.slice(at, at + 2)] : []))
}
