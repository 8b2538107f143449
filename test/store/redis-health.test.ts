import { Cluster } from 'ioredis'
import t from 'tap'
import { createCommandHealth } from '../../src/store/redis/health.ts'
import { ONE_SERVER, openCommands, until } from './stores.ts'

for (const [name, start] of Object.entries(ONE_SERVER)) {
  t.test(`${name}: a connection that is being closed counts as closed`, async (t) => {
    const client = openCommands(t, await start(t))
    const health = createCommandHealth(client)
    await until('it is connected', () => client.status === 'ready')
    t.equal(await client.set('a', '1'), 'OK')
    health.succeeded()
    t.equal(health.failed(new Error('a command found no connection')), false, 'it is connected')
    for (const node of client instanceof Cluster ? client.nodes() : [client]) {
      node.stream.end()
      t.equal(node.status, 'ready')
    }
    t.equal(health.failed(new Error('a command found no connection')), true)
    t.equal(health.isUnreached(), true)
  })
}
