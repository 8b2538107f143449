import type { Redis } from 'ioredis'
import t from 'tap'
import { createChangeMessages } from '../../src/store/redis/change-messages.ts'
import { openRedis } from '../../src/store/redis/connection.ts'
import { createCommandHealth } from '../../src/store/redis/health.ts'
import { startCluster } from '../helpers/redis-groups.ts'
import { elapsed, until } from '../helpers/wait.ts'
import { heapUsed } from './heap.ts'
import { PREFIX } from './stores.ts'

t.test('the subscriber of a dead Cluster master is freed after its replica was promoted', async (t) => {
  const cluster = await startCluster(t, { replicas: 1 })
  const nodes = cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port }))
  const login = { username: null, password: null }
  const connections = openRedis({ target: { kind: 'cluster', nodes, login, tls: false }, ca: null })
  /** By port. */
  const subscribers = new Map<number, WeakRef<Redis>>()
  const messages = createChangeMessages({
    prefix: PREFIX,
    connections: {
      ...connections,
      openSubscriber(address) {
        const subscriber = connections.openSubscriber(address)
        subscribers.set(address!.port, new WeakRef(subscriber))
        return subscriber
      },
    },
    health: createCommandHealth(connections.commands),
    onError: () => {},
    onNotSubscribed: () => {},
  })
  t.teardown(() => {
    messages.close()
    connections.close()
  })
  await until('messages arrive', () => messages.isLive())

  // The first three nodes are masters.
  const [victim, ...others] = cluster.nodes
  const id = await victim!.cli('cluster', 'myid')
  await victim!.kill()
  await until('its replica has its slots', () => cluster.hasReplaced(victim!))
  for (const node of others) await node.cli('cluster', 'forget', id)
  await until('messages arrive again', () => messages.isLive())

  const isFreed = async (port: number): Promise<boolean> => {
    // A reference that was read stays until the present job ends.
    await elapsed(100)
    heapUsed()
    return subscribers.get(port)!.deref() === undefined
  }
  await until('the subscriber of the dead master is freed', () => isFreed(victim!.port), 10_000)
  t.notOk(await isFreed(others[0]!.port), 'a subscriber in use is not')
})
