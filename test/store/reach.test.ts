import { Cluster } from 'ioredis'
import t from 'tap'
import { createReach } from '../../src/store/reach.ts'
import { createCommandClient, disconnect, isConnected } from '../../src/store/redis-client.ts'
import { startRedis } from '../helpers/redis.ts'
import { clusterTarget, singleTarget, startClusterOfOne, until } from './stores.ts'

const TARGETS = {
  'a single Redis': async () => singleTarget((await startRedis(t)).port),
  'a Cluster': async () => clusterTarget((await startClusterOfOne(t)).port),
}

for (const [name, start] of Object.entries(TARGETS)) {
  t.test(`${name}: a connection that is being closed counts as none, though it is still there`, async (t) => {
    const client = createCommandClient({ target: await start(), ca: null })
    t.teardown(() => disconnect(client))
    const reach = createReach(client)
    await until('it is connected', () => client.status === 'ready')
    t.equal(await client.set('a', '1'), 'OK')
    reach.answered()
    t.equal(isConnected(client), true)
    for (const node of client instanceof Cluster ? client.nodes() : [client]) {
      node.stream.end()
      t.equal(node.status, 'ready')
    }
    t.equal(isConnected(client), false)
    t.equal(reach.failed(new Error('a command found no connection')), true)
  })
}
