import { once } from 'node:events'
import { createServer } from 'node:http'
import net, { type Socket } from 'node:net'
import Fastify, { type FastifyReply, type FastifyRequest } from 'fastify'
import t, { type Test } from 'tap'
import { closeSlowly, createConnections, endSlowly, FIRST_REQUEST_MS } from '../../src/http/connections.ts'
import { createServer as createHttpServer } from '../../src/http/server.ts'
import { createLog } from '../../src/log.ts'
import { configOf } from '../config/environment.ts'
import { portOfUrl } from '../helpers/ports.ts'
import { cookieWithoutSession, startBff, startSandbox } from '../helpers/system.ts'
import { elapsed, holdUp, turns, until } from '../helpers/wait.ts'

const BYTES = 16_000_000

t.test('KEEP_ALIVE_SECONDS is how long a connection is kept between requests, and says so', async (t) => {
  const sandbox = await startSandbox(t)
  for (const [env, seconds] of [
    [{}, 72],
    [{ KEEP_ALIVE_SECONDS: '600' }, 600],
  ] as const) {
    const bff = await startBff(t, sandbox, env)
    const answer = await fetch(`${bff.publicUrl}/auth/session`)
    t.equal(answer.headers.get('keep-alive'), `timeout=${seconds}`)
    t.equal(bff.app.server.server.keepAliveTimeout, seconds * 1_000)
    await answer.text()
  }
})

const REQUEST = 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'

interface Tracked {
  /** Of its stop: it follows the end of the connections. */
  nextStep?: () => void
  /** Before each response. */
  onRequest?: () => void
  body?: string | Buffer
}

/** A server whose one route sends this body, and its connections. */
async function startTracked(
  t: Test,
  { nextStep = () => {}, onRequest = () => {}, body = 'body' }: Tracked = {},
) {
  const connections = createConnections()
  const app = Fastify({
    ...{ forceCloseConnections: 'idle', return503OnClosing: false },
    serverFactory: (handler) => createServer(connections.inTurn(handler)),
  })
  connections.watch(app.server)
  app.addHook('preClose', () => connections.close())
  app.addHook('preClose', async () => nextStep())
  app.get('/', (_request, reply) => {
    onRequest()
    reply.send(body)
  })
  const refuse = (request: FastifyRequest, reply: FastifyReply): void => {
    closeSlowly(request.raw.socket)
    reply.header('connection', 'close').send('refused')
  }
  app.route({ method: 'POST', url: '/', onRequest: refuse, handler: refuse })
  const port = portOfUrl(await app.listen({ host: '127.0.0.1', port: 0 }))
  t.teardown(() => app.close())
  return { app, connections, port }
}

function connectTo(port: number): Socket {
  return net.connect(port, '127.0.0.1').on('error', () => {})
}

/** A client that goes on sending after the server has ended its side, and the errors of its connection. */
function connectStubborn(t: Test, port: number) {
  const socket = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true })
  const errors: Error[] = []
  const madeAt = performance.now()
  // A second after its end the server closes the connection: a slow machine is not done by then.
  socket.on('error', (error) => {
    if (performance.now() - madeAt < 900) errors.push(error)
  })
  t.teardown(() => socket.destroy())
  async function sendOn() {
    for (let part = 0; part < 20; part += 1) {
      socket.write(Buffer.alloc(10_000, ' '))
      await elapsed(5)
    }
  }
  return { socket, errors, sendOn }
}

/** All that the server sends on this connection until its end. */
async function readAll(socket: Socket): Promise<string> {
  let text = ''
  socket.on('data', (chunk: Buffer) => {
    text += chunk.toString('latin1')
  })
  await once(socket, 'close')
  return text
}

t.test('a closing server sends a slow reader the rest of its response before it ends', async (t) => {
  const { app, port } = await startTracked(t, { body: Buffer.alloc(BYTES) })
  const idle = connectTo(port)
  const reader = connectTo(port)
  let received = 0
  reader.on('data', (chunk: Buffer) => {
    received += chunk.length
  })
  reader.pause()
  const begun = once(app.server, 'request')
  reader.write(REQUEST)
  await begun

  const closed = app.close()
  await once(idle.resume(), 'close')
  await elapsed(200)
  reader.resume()
  await once(reader, 'close')
  await closed
  t.ok(received > BYTES, `${received} bytes`)
})

t.test('a connection ends that has more than 32 requests open at once', async (t) => {
  const { app, port } = await startTracked(t)
  let begun = 0
  app.server.on('request', () => {
    begun += 1
  })
  const few = connectTo(port)
  few.write(REQUEST.repeat(32))
  await until('all have begun', () => begun >= 32)
  few.end()
  t.equal((await readAll(few)).split('HTTP/1.1 200').length - 1, 32, 'all of fewer are answered')
  const many = connectTo(port)
  many.write(REQUEST.repeat(1_500))
  const responses = (await readAll(many)).split('HTTP/1.1 200').length - 1
  t.ok(responses <= 32, `${responses} responses`)
})

t.test('a draining server ends each connection with its next response', async (t) => {
  const { connections, port } = await startTracked(t)
  const socket = connectTo(port)
  socket.write(REQUEST)
  const [first] = (await once(socket, 'data')) as [Buffer]
  t.match(first.toString(), /^Connection: keep-alive\r$/im)
  connections.drain()
  socket.write(REQUEST)
  t.match(await readAll(socket), /^HTTP\/1\.1 200 [\s\S]*^Connection: close\r$[\s\S]*body$/im)
  const fresh = connectTo(port)
  fresh.write(REQUEST)
  t.match(
    await readAll(fresh),
    /^HTTP\/1\.1 200 [\s\S]*^Connection: close\r$/im,
    'new connections are served',
  )
})

t.test('a closing server responds on each connection that came before its port closed', async (t) => {
  let isOpen = true
  const { app, port } = await startTracked(t, {
    nextStep: () => {
      isOpen = app.server.listening
    },
  })
  const silent = connectTo(port)
  await once(silent, 'connect')
  const silentText = readAll(silent)

  // The system has accepted this connection and this process has not.
  const waiting = connectTo(port)
  waiting.write(REQUEST)
  const waitingText = readAll(waiting)
  const closedAt = performance.now()
  const closed = app.close()
  await once(waiting, 'connect')
  await turns()
  silent.write(REQUEST)
  const isInTime = performance.now() - closedAt < FIRST_REQUEST_MS
  t.match(await waitingText, /^HTTP\/1\.1 200 /, 'one that was accepted while the server closed')
  const text = await silentText
  // A machine that is held up sends it too late.
  if (isInTime) t.match(text, /^HTTP\/1\.1 200 /, 'one whose first request was on its way')
  t.equal(isOpen, false, 'no other step of the stop gives the system time to accept more')
  await closed
})

t.test('connections that come while a server closes are served or refused, and none is reset', async (t) => {
  const ends: Promise<string>[] = []
  const connect = (): void => {
    const socket = net.connect(port, '127.0.0.1')
    socket.write(REQUEST)
    const status = readAll(socket).then((text) => text.slice(9, 12))
    ends.push(status.catch((error: NodeJS.ErrnoException) => error.code!))
  }
  // A busy proxy: as soon as a request is handled the next connection comes.
  const { app, port } = await startTracked(t, { onRequest: connect })
  for (let count = 0; count < 30; count += 1) connect()
  await app.close()
  const outcomes = new Set<string>()
  for (let at = 0; at < ends.length; at += 1) outcomes.add(await ends[at]!)
  t.strictSame([...outcomes].sort(), ['200', 'ECONNREFUSED'])
})

t.test('a stop begins at once, however many connections come', async (t) => {
  const order: string[] = []
  const server = createHttpServer(configOf({}), createLog('silent'), () => order.push('it begins'))
  await server.listen({ host: '127.0.0.1', port: 0 })
  const { close } = server.server
  server.server.close = (...given) => {
    order.push('the port closes')
    return close.apply(server.server, given)
  }
  await server.close()
  t.strictSame(order.slice(0, 2), ['it begins', 'the port closes'])
})

t.test('a closing server accepts no more connections than may have waited when it began', async (t) => {
  let [isClosing, accepted] = [false, 0]
  const { app, port } = await startTracked(t, {
    nextStep: () => {
      isClosing = false
    },
  })
  app.server.on('connection', () => {
    if (isClosing) accepted += 1
    // There is always one more.
    for (let count = 0; isClosing && count < 2; count += 1) connectTo(port)
  })
  for (let count = 0; count < 10; count += 1) connectTo(port)
  isClosing = true
  await app.close()
  t.ok(accepted < 600, `${accepted} connections`)
})

t.test('a connection that comes while a closing server is busy with others is served', async (t) => {
  const { app, port } = await startTracked(t)
  const kept = connectTo(port)
  await once(kept, 'connect')
  await turns()
  const ends: Promise<string>[] = []
  let requests = 0
  // One in each turn. After some of them a connection comes, when the server has looked for new ones in that turn.
  app.server.prependListener('request', () => {
    if (requests === 12) return
    requests += 1
    kept.write(REQUEST)
    if (requests % 3 === 0) {
      const late = connectTo(port)
      late.write(REQUEST)
      ends.push(readAll(late))
    }
    holdUp(5)
  })
  kept.write(REQUEST)
  await app.close()
  t.equal(ends.length, 4)
  for (const text of await Promise.all(ends)) t.match(text, /^HTTP\/1\.1 200 /)
})

t.test('a closing server resets no client that goes on sending a body that was refused', async (t) => {
  const { app, port } = await startTracked(t)
  const { socket, errors, sendOn } = connectStubborn(t, port)
  socket.write('POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n')
  socket.resume()
  await once(socket, 'end')
  const closed = app.close()
  await sendOn()
  t.strictSame(errors, [])
  socket.destroy()
  await closed
})

t.test('the end of a response does not cut short a connection that ends slowly', async (t) => {
  const { app, port } = await startTracked(t)
  const accepted = once(app.server, 'connection') as Promise<[Socket]>
  const client = connectStubborn(t, port).socket
  const [socket] = await accepted
  endSlowly(socket)
  await once(client.resume(), 'end')
  // Node calls it when the last response of a connection is over.
  socket.destroySoon()
  t.equal(socket.destroyed, false, 'what the client still sends meets no reset')
})

for (const [name, status] of [
  ['that is too large', 413],
  ['without a session', 401],
] as const) {
  t.test(`a client that goes on sending a body ${name} receives the response`, async (t) => {
    const bff = await startBff(t, await startSandbox(t), { ACCESS_LOG: 'all' })
    const { server } = bff.app.server
    const accepted = once(server, 'connection') as Promise<[Socket]>
    const { socket, errors, sendOn } = connectStubborn(t, portOfUrl(bff.publicUrl))
    const [peer] = await accepted
    const ended = new Promise<void>((resolve) => peer.once('close', () => resolve()))
    const fields = ['Host: localhost', 'Sec-Fetch-Site: same-origin', 'Content-Type: application/json']
    if (status === 413) fields.push(cookieWithoutSession().join(': '))
    socket.write(`PUT /site/1 HTTP/1.1\r\n${fields.join('\r\n')}\r\nContent-Length: 200000\r\n\r\n`)
    const [answer] = (await once(socket, 'data')) as [Buffer]
    t.match(answer.toString(), /^Connection: close\r$/im)
    t.equal(answer.toString().split(' ')[1], String(status))
    await once(socket, 'end')
    await sendOn()
    t.strictSame(errors, [])
    const parsed = once(server, 'request')
    socket.write(`POST /auth/logout HTTP/1.1\r\n${fields.join('\r\n')}\r\nContent-Length: 0\r\n\r\n`)
    await Promise.race([parsed, ended])
    socket.destroy()
    // By then every response on this connection has its line.
    await ended
    await until('the refusal is logged', () => bff.log().includes(`"path":"/site/1","status":${status}`))
    t.notMatch(bff.log(), '/auth/logout', 'a request after `Connection: close` has no effect')
  })
}
