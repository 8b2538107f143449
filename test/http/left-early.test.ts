import { EventEmitter, once } from 'node:events'
import net, { type AddressInfo } from 'node:net'
import t from 'tap'
import { hooks } from '../../src/http/hooks.ts'
import { createServer } from '../../src/http/server.ts'
import { createLog } from '../../src/log.ts'
import { navigationPage } from '../../src/login/pages.ts'
import { addStaticFiles } from '../../src/spa/routes.ts'
import { configOf } from '../config/environment.ts'
import { collectLog } from '../helpers/log-lines.ts'

t.test('a browser that leaves before its file is read is client_gone, and no fault is logged', async (t) => {
  const { sink, lines } = collectLog()
  const server = createServer(configOf({}), createLog('silent'))
  t.teardown(() => server.close())
  const dir = t.testdir({ 'index.html': 'page' })
  const serveFile = await addStaticFiles(server, { dir, csp: {}, permissionsPolicy: null })
  const events = new EventEmitter()
  const [asked, failed] = [once(events, 'asked'), once(events, 'failed')]
  await server.register(hooks, {
    ...{ secure: false, hasOperations: false, accessLog: 'errors', log: createLog('info', sink) },
    observe() {},
    sessionOf: () => null,
    async fallback(request, reply) {
      const left = once(reply.raw, 'close')
      events.emit('asked')
      await left
      return await serveFile(request, reply)
    },
    navigationPage,
  })
  server.addHook('onError', async (_request, _reply, error) => void events.emit('failed', error))
  await server.listen({ host: '127.0.0.1', port: 0 })
  const browser = net.connect((server.server.address() as AddressInfo).port, '127.0.0.1')
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
