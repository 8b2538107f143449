import { EventEmitter, once } from 'node:events'
import net from 'node:net'
import t from 'tap'
import { createBodyBudget } from '../../src/proxy/body-budget.ts'
import { cookieWithoutSession, startBff, startSandbox } from '../helpers/system.ts'
import { portOf } from '../http/wire.ts'

const FULL = { code: 'upstream_unavailable', status: 503, headers: { 'retry-after': '5' } }

t.test('updates of all sessions keep so many bytes at most, and what would keep more is 503', async (t) => {
  const count = createBodyBudget(60, 100)
  const update = (length?: number) => {
    const raw = new EventEmitter()
    const headers = length === undefined ? {} : { 'content-length': String(length) }
    count({ headers } as never, { raw } as never)
    return () => raw.emit('close')
  }
  const end = update(60)
  t.throws(() => update(41), FULL)
  update(40)
  t.throws(() => update(1), FULL)
  end()
  const endOfChunked = update()
  t.throws(() => update(1), FULL, 'a body without a length may have the most that one may have')
  endOfChunked()
  update(1_000)
  t.throws(() => update(1), FULL, 'one that is longer is refused when it is read')
})

t.test('bodies that still come are counted, also of cookies whose session has ended', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { BODY_LIMIT_BYTES: '10485760' })
  const cookie = cookieWithoutSession().join(': ')
  const begin = async (): Promise<string> => {
    const socket = net.connect(portOf(bff), '127.0.0.1')
    t.teardown(() => socket.destroy())
    socket.on('error', () => {})
    socket.write(
      `PUT /site/1 HTTP/1.1\r\nHost: a\r\nX-CSRF: 1\r\n${cookie}\r\nContent-Type: application/json\r\nContent-Length: 10485760\r\nExpect: 100-continue\r\n\r\n`,
    )
    const [chunk] = (await once(socket, 'data')) as [Buffer]
    return chunk.toString().slice(9, 12)
  }
  for (let count = 0; count < 8; count += 1) t.equal(await begin(), '100')
  t.equal(await begin(), '503')
})
