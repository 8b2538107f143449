import { once } from 'node:events'
import { readdirSync, readlinkSync } from 'node:fs'
import net, { type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { problem } from '../../src/errors.ts'
import { portOfUrl } from '../helpers/ports.ts'
import { signedIn } from '../helpers/shared.ts'
import { startBff, startSandbox } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { withHooks } from './hooks-server.ts'
import { speak } from './wire.ts'

/** More than the buffers of a connection on its way. */
const LARGE = Buffer.alloc(16 * 1024 * 1024, 'x')

const get = (path: string, ...fields: string[]) => `GET ${path} HTTP/1.1\r\nHost: a\r\n${fields.join('')}\r\n`

/** A server whose fallback is held at `/held` until `release`, and what has begun and what was measured. */
async function withTurns(t: Test) {
  const begun: string[] = []
  const measured: string[] = []
  let release = (): void => {}
  const held = new Promise<void>((resolve) => {
    release = resolve
  })
  const { lines, listen, server } = await withHooks(
    t,
    async (request, reply) => {
      begun.push(`${request.method} ${request.url}`)
      if (request.url === '/held') await held
      if (request.url === '/none') throw problem('not_found')
      return reply.send(request.url)
    },
    { observe: ({ method, status }) => void measured.push(`${method} ${status}`) },
  )
  const port = portOfUrl(await listen())
  const connect = (bytes: string): Socket => {
    const socket = net.connect(port, '127.0.0.1', () => socket.write(bytes))
    t.teardown(() => socket.destroy())
    return socket.on('error', () => {})
  }
  return { begun, connect, lines, measured, port, release, server }
}

t.test('pipelined requests begin and end in their order, each with its line and its metric', async (t) => {
  const { begun, lines, measured, port, release } = await withTurns(t)
  const put = 'PUT /put HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}'
  const head = 'HEAD /head HTTP/1.1\r\nHost: a\r\n\r\n'
  // The last is an error of the router, which ends the connection.
  const sent = [get('/held'), head, get('/none'), put, get('/odd%')]
  const heard = speak(port, sent.join(''))
  await until('the first has begun', () => begun.length > 0)
  // What was sent with it is here by now.
  await speak(port, get('/other', 'Connection: close\r\n'))
  t.strictSame(begun, ['GET /held', 'GET /other'])
  release()
  await heard
  t.strictSame(begun, ['GET /held', 'GET /other', 'HEAD /head', 'GET /none', 'PUT /put'])
  const statuses = ['GET 200', 'GET 200', 'HEAD 200', 'GET 404', 'PUT 200', 'GET 400']
  t.strictSame(measured, statuses)
  t.strictSame(
    lines().map(({ path, status }) => [path, status]),
    [
      ['/none', 404],
      ['/odd%', 400],
    ],
  )
})

t.test('a request whose connection ends before its turn has done nothing', async (t) => {
  const { begun, connect, lines, measured } = await withTurns(t)
  const socket = connect(get('/held') + get('/none').repeat(20))
  await until('the first has begun', () => begun.length > 0)
  socket.destroy()
  await until('the first is over', () => measured.length > 0)
  t.strictSame(begun, ['GET /held'])
  t.strictSame(measured, ['GET 499'])
  t.match(lines(), [{ path: '/held', code: 'client_gone' }])
})

t.test('the body of a request that waits for its turn stays with its client', async (t) => {
  const { begun, connect, release, server } = await withTurns(t)
  let peer: Socket | undefined
  server.server.once('connection', (socket: Socket) => {
    peer = socket
  })
  const head = `PUT /put HTTP/1.1\r\nHost: a\r\nContent-Length: ${LARGE.length}\r\n\r\n`
  connect(get('/held') + head + LARGE.toString())
  await until('the first has begun', () => begun.length > 0)
  // A server that read it would read all.
  let seen = -1
  await until('nothing more is read', () => {
    const still = peer!.bytesRead === seen
    seen = peer!.bytesRead
    return still
  })
  t.ok(seen < 1024 * 1024, `${seen} bytes`)
  release()
  await until('it has its turn', () => begun.length > 1)
})

t.test('a fault in the body of a waiting request is answered at its turn', async (t) => {
  const { begun, port, release } = await withTurns(t)
  const chunked = 'PUT /put HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\n'
  const heard = speak(port, get('/held') + chunked)
  await until('the first has begun', () => begun.length > 0)
  release()
  const { answers, closed } = await heard
  t.strictSame(
    answers.map(({ status }) => status),
    [200, 400],
  )
  t.ok(closed)
})

t.test(
  'a request to change the protocol is answered as any other, as the last of its connection',
  async (t) => {
    const { begun, port } = await withTurns(t)
    for (const protocol of ['h2c', 'websocket']) {
      const upgrade = get('/page', 'Connection: Upgrade\r\n', `Upgrade: ${protocol}\r\n`)
      const { answers, closed } = await speak(port, upgrade + get('/next'))
      t.match(answers, [{ status: 200, headers: new Map([['connection', ['close']]]) }])
      t.equal(answers.length, 1)
      t.ok(closed)
    }
    t.strictSame(begun, ['GET /page', 'GET /page'])
  },
)

t.test('requests behind the last response of a connection end it before they are many', async (t) => {
  const { begun, port, server } = await withTurns(t)
  const wereEnded: boolean[] = []
  server.server.prependListener('request', ({ socket }) => wereEnded.push(socket.destroyed))
  // A client that does not end its side, so that only the server ends the connection.
  const socket = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true })
  t.teardown(() => socket.destroy())
  socket.on('error', () => {}).write(get('/refused', 'Host: b\r\n'))
  await once(socket, 'data')
  socket.write(get('/late').repeat(40))
  await until('they are read', () => wereEnded.length > 40)
  t.strictSame([wereEnded.at(0), wereEnded.at(-1)], [false, true])
  t.strictSame(begun, [])
})

t.test('CONNECT behind an open request ends the connection', async (t) => {
  const { begun, port, release } = await withTurns(t)
  const { answers, closed } = await speak(port, `${get('/held')}CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n`)
  t.strictSame(begun, ['GET /held'])
  t.strictSame(answers, [])
  t.ok(closed)
  release()
})

t.test('files that a client asked for and left stay open in no descriptor', async (t) => {
  const dir = t.testdir({ 'index.html': 'page', 'large.js': LARGE })
  const sandbox = await startSandbox(t)
  const { app, publicUrl } = await startBff(t, sandbox, { STATIC_DIR: dir })
  const openFiles = () =>
    readdirSync('/proc/self/fd').filter((fd) => linkOf(`/proc/self/fd/${fd}`).startsWith(dir)).length
  let connections = 0
  app.server.server.on('connection', (socket: Socket) => {
    connections += 1
    socket.on('close', () => {
      connections -= 1
    })
  })
  const clients = Array.from({ length: 5 }, () => {
    const socket = net.connect(portOfUrl(publicUrl), '127.0.0.1', () =>
      socket.write(get('/large.js').repeat(20)),
    )
    return socket.pause().on('error', () => {})
  })
  await until('files are open', () => openFiles() > 0)
  t.ok(openFiles() <= clients.length, 'one for each connection')
  for (const socket of clients) socket.destroy()
  await until('the connections have ended', () => connections === 0)
  await until('no file is open', () => openFiles() === 0)
})

function linkOf(path: string): string {
  try {
    return readlinkSync(path)
  } catch {
    // Closed since it was listed.
    return ''
  }
}

t.test('an update behind unread responses is not sent once its connection has ended', async (t) => {
  const dir = t.testdir({ 'index.html': 'page', 'large.js': LARGE })
  const { bff, cookie, port, sandbox } = await signedIn({ STATIC_DIR: dir, ACCESS_LOG: 'all' })
  const fields = [
    `${cookie[0]}: ${cookie[1]}`,
    'Sec-Fetch-Site: same-origin',
    'Content-Type: application/json',
  ]
  const update = `PUT /site/1 HTTP/1.1\r\nHost: a\r\n${fields.join('\r\n')}\r\nContent-Length: 12\r\n\r\n{"name":"x"}`
  const socket = net.connect(port, '127.0.0.1', () => socket.write(get('/large.js') + update))
  socket.pause().on('error', () => {})
  await until('the file is asked for', () => socket.bytesWritten > 0)
  await new Promise((resolve) => socket.once('readable', resolve))
  socket.destroy()
  await until('the file is in the log', () => bff.log().includes('"path":"/large.js"'))
  t.notMatch(bff.log(), '/site/1')
  t.strictSame(sandbox.journal.entries(), [])
})
