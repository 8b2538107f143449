import { Cluster } from 'ioredis'
import t from 'tap'
import { isConnected } from '../../src/store/redis/connection.ts'
import { createReach } from '../../src/store/redis/reach.ts'
import { ONE_SERVER, openCommands, until } from './stores.ts'

for (const [name, start] of Object.entries(ONE_SERVER)) {
  t.test(`${name}: a connection that is being closed counts as none, though it is still there`, async (t) => {
    const client = openCommands(t, await start(t))
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
