import { EventEmitter, once } from 'node:events'
import net from 'node:net'
import t from 'tap'
import { createLog } from '../../src/log.ts'
import { addStaticFiles } from '../../src/spa/routes.ts'
import { portOfUrl } from '../helpers/ports.ts'
import { withHooks } from './hooks-server.ts'

t.test('a browser that leaves before its file is read is client_gone, and no fault is logged', async (t) => {
  const events = new EventEmitter()
  const [asked, failed] = [once(events, 'asked'), once(events, 'failed')]
  const { server, lines, listen } = await withHooks(t, async (request, reply) => {
    const left = once(reply.raw, 'close')
    events.emit('asked')
    await left
    return await serveFile(request, reply)
  })
  const dir = t.testdir({ 'index.html': 'page' })
  const serveFile = await addStaticFiles(server, {
    settings: { dir, csp: {}, referrerPolicy: 'same-origin', permissionsPolicy: null },
    ...{ operations: [], log: createLog('silent') },
  })
  server.addHook('onError', async (_request, _reply, error) => void events.emit('failed', error))
  const browser = net.connect(portOfUrl(await listen()), '127.0.0.1')
  // After CONNECT, Node does not tell the first request that its connection is lost.
  browser.write('GET / HTTP/1.1\r\nHost: a\r\n\r\nCONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n')
  await asked
  browser.destroy()
  t.match(await failed, [{ code: 'ERR_STREAM_PREMATURE_CLOSE' }], 'what Fastify makes of it')
  await server.close()
  const [line, ...more] = lines()
  t.match(line, { event: 'request', status: 499, code: 'client_gone' })
  t.strictSame(more, [])
})
