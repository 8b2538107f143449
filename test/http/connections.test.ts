import { once } from 'node:events'
import net, { type AddressInfo } from 'node:net'
import Fastify from 'fastify'
import t from 'tap'
import { trackConnections } from '../../src/http/connections.ts'
import { elapsed } from '../helpers/replicas.ts'

const BYTES = 16_000_000

t.test('a closing server sends a slow reader the rest of its response before it ends', async (t) => {
  const app = Fastify({ forceCloseConnections: 'idle' })
  const connections = trackConnections(app.server)
  app.addHook('preClose', async () => connections.close())
  let complete = false
  app.get('/', (_request, reply) => {
    connections.begin(reply.raw)
    reply.raw.on('close', () => connections.end(reply.raw))
    reply.send(Buffer.alloc(BYTES))
    complete = true
  })
  await app.listen({ host: '127.0.0.1', port: 0 })
  t.teardown(() => app.close())
  const idle = net.connect((app.server.address() as AddressInfo).port, '127.0.0.1')
  const reader = net.connect((app.server.address() as AddressInfo).port, '127.0.0.1')
  let received = 0
  reader.on('data', (chunk: Buffer) => {
    received += chunk.length
  })
  reader.pause()
  reader.write('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n')
  while (!complete) await elapsed(10)

  const closed = app.close()
  await once(idle.resume(), 'close')
  await elapsed(200)
  reader.resume()
  await once(reader, 'close')
  await closed
  t.ok(received > BYTES, `${received} bytes`)
})
