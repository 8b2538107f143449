// A process that was held up (a pause of its machine, of the garbage collector) runs its timers before it reads its sockets. Each
// peer here writes, then holds up this process beyond a limit. Not in a timer: after those of one turn sockets are read.

import { once } from 'node:events'
import { createServer } from 'node:http'
import net, { type Socket } from 'node:net'
import { Worker } from 'node:worker_threads'
import t from 'tap'
import { connectorBy } from '../../src/egress.ts'
import { createClientErrors } from '../../src/http/client-errors.ts'
import { createConnections } from '../../src/http/connections.ts'
import { createOwnCalls } from '../../src/proxy/own-calls.ts'
import { Patience } from '../../src/proxy/patience.ts'
import { uploadOf } from '../../src/proxy/upload.ts'
import { Secret } from '../../src/secret.ts'
import { withTimeout } from '../../src/timeout.ts'
import { configOf } from '../config/environment.ts'
import { listenOnLoopback, portOfUrl } from '../helpers/ports.ts'
import { startBff, startSandbox } from '../helpers/system.ts'
import { elapsed, holdUp, turns, until } from '../helpers/wait.ts'
import { ALICE, sendPassword } from '../login/sign-ins.ts'
import { clientOf, http, rawTokenEndpoint } from '../oauth/raw-token-endpoint.ts'
import { browse, OK, rawUpstream, start } from '../proxy/resource-client-harness.ts'
import { installVirtualTime } from '../vault/refresh/virtual-time.ts'

/** A machine that is slow for another reason answers well within it. */
const LIMIT_MS = 1_000
const BEYOND_MS = LIMIT_MS + 300

/** Tries again while the answer came too late to tell. `begin` is called with what to call before this process is held up. */
async function whileInTime<T>(limitMs: number, begin: (answered: () => void) => Promise<T>): Promise<T> {
  for (;;) {
    const begunAt = performance.now()
    let answeredAt = Number.POSITIVE_INFINITY
    const result = await begin(() => {
      answeredAt = performance.now()
    })
    if (answeredAt - begunAt < limitMs) return result
  }
}

t.test('a request on a kept connection is answered', async (t) => {
  const bff = await startBff(t, await startSandbox(t), { KEEP_ALIVE_SECONDS: '1' })
  const request = 'GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n'
  const received = await whileInTime(LIMIT_MS, async (answered) => {
    const client = net.connect(portOfUrl(bff.publicUrl), '127.0.0.1').on('error', () => {})
    let text = ''
    client.on('data', (data: Buffer) => {
      text += data.toString('latin1')
    })
    client.write(request)
    await until('the first response', () => text.endsWith('}'))
    await turns()
    answered()
    text = ''
    client.write(request)
    // Node adds a second.
    holdUp(BEYOND_MS + 1_000)
    await Promise.race([once(client, 'data'), once(client, 'close')])
    client.destroy()
    return text
  })
  t.match(received, /^HTTP\/1\.1 200 /)
})

t.test('a connection without a request ends after KEEP_ALIVE_SECONDS', async (t) => {
  const bff = await startBff(t, await startSandbox(t), { KEEP_ALIVE_SECONDS: '1' })
  const client = net.connect(portOfUrl(bff.publicUrl), '127.0.0.1').on('error', () => {})
  client.resume().write('GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n')
  await once(client, 'close')
  t.pass('it has ended')
})

t.test('the rest of a request is read before the request counts as late', async (t) => {
  const connections = createConnections()
  const errors = createClientErrors({ newRequestId: () => 'id', secure: false })
  const limits = { headersTimeout: LIMIT_MS, requestTimeout: LIMIT_MS, connectionsCheckingInterval: 50 }
  const server = createServer(
    limits,
    connections.inTurn((request, response) => void request.resume().on('end', () => response.end('whole'))),
  )
  server.on('clientError', errors.onClientError)
  const port = await listenOnLoopback(t, server)
  const parts = ['POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{', '}'] as const
  async function send(first: string, rest: string) {
    return await whileInTime(LIMIT_MS, async (answered) => {
      const client = net.connect(port, '127.0.0.1').on('error', () => {})
      const accepted = once(server, 'connection')
      client.write(first)
      const [socket] = (await accepted) as [Socket]
      await until('its first part', () => socket.bytesRead === first.length)
      await turns()
      answered()
      client.write(rest)
      holdUp(BEYOND_MS)
      const [data] = (await once(client, 'data')) as [Buffer]
      client.destroy()
      return data.toString()
    })
  }
  t.match(await send(...parts), /^HTTP\/1\.1 200 /, 'half a body')
  t.match(await send('GET / HT', 'TP/1.1\r\nHost: a\r\n\r\n'), /^HTTP\/1\.1 200 /, 'half a head')
  t.match(await send('GET / HT', 'TP/1.1\r\nHost'), /^HTTP\/1\.1 408 /, 'one that stays half')
})

t.test('a token response is taken', async (t) => {
  let answered = (): void => {}
  const { url } = await rawTokenEndpoint(t, (socket) => {
    answered()
    socket.write(http('200 OK', '{"access_token":"at","token_type":"bearer","refresh_token":"rt"}'))
    holdUp(BEYOND_MS)
  })
  const client = clientOf(t, url, { TOKEN_TIMEOUT_MS: String(LIMIT_MS) })
  const exchange = { redirectUri: 'http://localhost:1/auth/callback/a', code: 'c', verifier: null }
  const { kind } = await whileInTime(LIMIT_MS, (done) => {
    answered = done
    return client.redeemCode(exchange)
  })
  t.equal(kind, 'granted')
})

t.test('a token response is stored at the end of a stop', async (t) => {
  // Until two of its three seconds have passed a stop waits for token responses.
  const waitMs = 2_000
  const grant = (expiresIn: number): string =>
    http(
      '200 OK',
      `{"access_token":"at","token_type":"bearer","refresh_token":"rt","expires_in":${expiresIn}}`,
    )
  const log = await whileInTime(waitMs - 500, async (answered) => {
    let close: () => PromiseLike<unknown> = () => Promise.resolve()
    let closed: PromiseLike<unknown> | undefined
    const { url: authUrl } = await rawTokenEndpoint(t, async (socket, request) => {
      if (!request.includes('grant_type=refresh_token')) return void socket.write(grant(1))
      closed = close()
      await turns()
      answered()
      socket.write(grant(3_600))
      holdUp(waitMs + 300)
    })
    const env = { SHUTDOWN_SECONDS: '3', OAUTH_FLOWS: 'code,password' }
    const bff = await startBff(t, { authUrl, baseUrl: authUrl }, env)
    close = () => bff.app.server.close()
    const browser = bff.browser()
    t.equal((await sendPassword(browser, ALICE)).status, 200)
    await until('the stop', () => closed !== undefined)
    await closed
    return bff.log()
  })
  t.notMatch(log, /"refresh\.[a-z_]+"/, 'nothing to tell of the refresh')
})

t.test('an answer about the user is taken', async (t) => {
  let answered = (): void => {}
  const upstream = await rawUpstream(t, (socket) => {
    answered()
    socket.write(OK)
    holdUp(BEYOND_MS)
  })
  const limits = { connections: 1, connectMs: LIMIT_MS, timeoutMs: LIMIT_MS, maxBytes: 1_000 }
  const calls = createOwnCalls(configOf({ BASE_URL: upstream.url }), limits)
  t.teardown(calls.close)
  const asked = await whileInTime(LIMIT_MS, (done) => {
    answered = done
    const token = new Secret('a token')
    return calls.call(token, { method: 'GET', path: '/', requestId: 'id' }).catch(String)
  })
  t.match(asked, { status: 200, isWhole: true })
})

t.test('the body of a refusal is searched before it is judged', async (t) => {
  const body = '{"error":"invalid_token"}'
  let answered = (): void => {}
  const { port, outcome } = await start(
    t,
    (socket) => {
      socket.write(
        `HTTP/1.1 401 No\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n{`,
      )
      // Its head has been read by then.
      void elapsed(100).then(async () => {
        await turns()
        answered()
        socket.write(body.slice(1))
        holdUp(BEYOND_MS)
      })
    },
    { timeoutMs: LIMIT_MS },
  )
  let asked = 0
  const found = await whileInTime(LIMIT_MS, async (done) => {
    answered = done
    const { answer } = browse(t, port)
    asked += 1
    await answer
    return await outcome(asked - 1)
  })
  t.strictSame(found, { kind: 'token_refused', namesInvalidToken: true, status: 401 })
})

t.test('a connection through the egress proxy is used', async (t) => {
  let answered = (): void => {}
  const proxy = await rawUpstream(t, (socket) => {
    answered()
    socket.write('HTTP/1.1 200 OK\r\n\r\n')
    holdUp(BEYOND_MS)
  })
  const { hostname: host, port } = new URL(proxy.url)
  const connect = connectorBy({ tls: false, host, port: Number(port), authorization: null }, LIMIT_MS)
  const error = await whileInTime(LIMIT_MS, (done) => {
    answered = done
    const target = { hostname: 'a.test', host: 'a.test', protocol: 'http:', port: '80' }
    return new Promise((resolve) =>
      connect(target, (failure, socket) => {
        socket?.destroy()
        resolve(failure)
      }),
    )
  })
  t.equal(error, null)
})

t.test('what is awaited for a while is taken', async (t) => {
  const server = net.createServer((socket) => {
    socket.write('a')
    holdUp(BEYOND_MS)
  })
  const port = await listenOnLoopback(t, server)
  const client = net.connect(port, '127.0.0.1')
  t.ok(await withTimeout(once(client, 'data'), LIMIT_MS))
})

t.test('an upload whose bytes have come goes on', async (t) => {
  const server = createServer((request) => {
    uploadOf(request, LIMIT_MS / 10, () => request.socket.destroy())
      .resume()
      .on('end', () => request.socket.end('whole'))
    // More would not be in one socket on every system.
    client.write(Buffer.alloc(70_000))
    holdUp(BEYOND_MS)
    client.write(Buffer.alloc(70_000))
  })
  const port = await listenOnLoopback(t, server)
  const client = net.connect(port, '127.0.0.1').on('error', () => {})
  client.write('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 140000\r\n\r\n')
  const [ended] = (await Promise.race([once(client, 'data'), once(client, 'close')])) as [unknown]
  t.equal(String(ended), 'whole')
})

/** Connects, and reads nothing until it is told to. */
const READER = `
  const { workerData, parentPort } = require('node:worker_threads')
  const socket = require('node:net').connect(workerData.port, '127.0.0.1')
  let bytes = 0
  socket.on('data', (data) => { bytes += data.length }).on('error', () => {}).pause()
  socket.on('close', () => parentPort.postMessage(bytes))
  socket.write('GET / HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n')
  parentPort.once('message', () => socket.resume())
`

t.test('a browser that has taken its response meanwhile gets the rest', async (t) => {
  const part = Buffer.alloc(100_000)
  const parts = 300
  let sent = 0
  let sentAt = 0
  const sendOn = (socket: Socket): void => {
    sent += 1
    sentAt = performance.now()
    if (sent <= parts) socket.write(part, () => sendOn(socket))
  }
  const { port, outcome } = await start(
    t,
    (socket) => {
      socket.write(
        `HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: ${parts * part.length}\r\n\r\n`,
      )
      sendOn(socket)
    },
    { readerTimeoutMs: LIMIT_MS },
  )
  const reader = new Worker(READER, { eval: true, workerData: { port } })
  t.teardown(() => reader.terminate())
  const received = once(reader, 'message') as Promise<[number]>
  await until('all buffers are full', () => sent > 0 && performance.now() - sentAt > LIMIT_MS / 5)
  t.ok(sent < parts)
  await turns()
  reader.postMessage('read')
  holdUp(BEYOND_MS)
  t.ok((await received)[0] > parts * part.length)
  t.strictSame(await outcome(0), { kind: 'finished', status: 200 })
})

t.test('the patience with the other side hardly passes meanwhile', async (t) => {
  const time = installVirtualTime(t)
  const { now } = performance
  performance.now = time.now
  t.teardown(() => Object.assign(performance, { now }))
  let over = 0
  const patience = new Patience(60_000, () => {
    over += 1
  })
  patience.run()
  time.stall(3_600_000)
  await time.advance(47_000)
  patience.pause()
  await time.advance(3_600_000)
  patience.run()
  t.equal(over, 0)
  await time.advance(14_000)
  t.equal(over, 1, 'it passes all the same')
  patience.renew()
  patience.run()
  await time.advance(59_000)
  t.equal(over, 1)
  await time.advance(2_000)
  t.equal(over, 2)
})
