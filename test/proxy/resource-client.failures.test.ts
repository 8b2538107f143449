import assert from 'node:assert/strict'
import { once } from 'node:events'
import net, { type Socket } from 'node:net'
import { setTimeout as wait } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import t from 'tap'
import { freePort } from '../helpers/ports.ts'
import { unlessHeldUp } from '../helpers/wait.ts'
import {
  bff,
  browse,
  closed,
  get,
  OK,
  type Received,
  rawBrowser,
  rawUpstream,
  start,
  write,
} from './resource-client-harness.ts'

const PUT = ['PUT /x HTTP/1.1', 'Host: a', 'Connection: close', 'Content-Length: 2']
const HALF = 'HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\nContent-Length: 10\r\n\r\nabc'
const HALF_CHUNKED =
  'HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n'
const UNENDED = 'HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\n\r\nabc'

const lastOf = (response: string) => response.replace('\r\n', '\r\nConnection: close\r\n')

const reset = (socket: Socket) => socket.resetAndDestroy()

for (const [what, text, breakOff, seen = 'abc'] of [
  ['with a length that is reset half-way', HALF, reset],
  ['in chunks that is reset half-way', HALF_CHUNKED, reset],
  ['in chunks that is reset half-way, on a connection that was to close', lastOf(HALF_CHUNKED), reset],
  ['with a length that is reset half-way, on a connection that was to close', lastOf(HALF), reset],
  ['without a length that is reset half-way', UNENDED, reset],
  ['that is reset between its head and its body', HALF.slice(0, -3), reset, 'content-type'],
  ['that ends short of its length', HALF, (socket) => socket.end()],
  ['that ends within its chunks', HALF_CHUNKED, (socket) => socket.end()],
  [
    'that ends within its chunks, on a connection that was to close',
    lastOf(HALF_CHUNKED),
    (socket) => socket.end(),
  ],
  ['with broken chunks', HALF_CHUNKED, (socket) => socket.write('zz\r\n')],
] as [string, string, (socket: Socket) => unknown, string?][]) {
  for (const version of ['1.0', '1.1']) {
    t.test(`a response ${what} is cut for the browser on HTTP/${version}`, async (t) => {
      const { upstream, port, outcome } = await start(t, text)
      const browser = rawBrowser(t, port, [`GET /x HTTP/${version}`, 'Host: a', 'Connection: close'])
      await browser.sees(seen)
      breakOff(upstream.sockets[0]!)
      const { raw, headers, error } = await browser.answer
      t.same(await outcome(0), { kind: 'cut', status: 200 })
      if (headers['transfer-encoding'] === 'chunked') t.equal(raw, '3\r\nabc\r\n', 'no last chunk')
      else if ('content-length' in headers) t.equal(raw, seen === 'abc' ? 'abc' : '')
      else t.equal(error, 'ECONNRESET', 'no orderly end, which would look like the end of the body')
    })
  }
}

t.test('a resource server that does not listen is unavailable', async (t) => {
  const { port, outcome } = await bff(t, { baseUrl: `http://127.0.0.1:${await freePort()}`, connections: 1 })
  const answers = await Promise.all([get(t, port), get(t, port), get(t, port)])
  for (const [index, answer] of answers.entries()) {
    t.equal(answer.status, 599)
    t.equal((await outcome(index)).kind, 'unavailable')
  }
})

t.test('an app that polls every five seconds uses one connection upstream', async (t) => {
  const { upstream, port } = await start(t)
  await get(t, port)
  // Longer than undici keeps a connection by default.
  await wait(5_000)
  await get(t, port)
  t.equal(upstream.sockets.length, 1)
})

t.test('a connection that is old carries no further read, so that a new address is seen', async (t) => {
  const { upstream, port, outcome } = await start(t, undefined, { keptForMs: 0 })
  for (const index of [0, 1, 2]) {
    t.equal((await get(t, port)).status, 200)
    t.match(await outcome(index), { kind: 'finished', status: 200 })
  }
  t.strictSame(
    upstream.received.map(({ position }) => position),
    [0, 0, 0],
  )
  for (const socket of upstream.sockets) await closed(socket)
})

for (const end of ['end', 'resetAndDestroy'] as const) {
  t.test(
    `a new connection that is lost before the head (${end}) makes the resource server unavailable`,
    async (t) => {
      const { upstream, port, outcome } = await start(t, (socket) => socket[end]())
      t.equal((await get(t, port)).status, 599)
      t.equal((await outcome(0)).kind, 'unavailable')
      t.equal(upstream.received.length, 1)
    },
  )

  t.test(`a read is sent again only once, and not after its response has begun (${end})`, async (t) => {
    let healthy = true
    const { upstream, port, outcome } = await start(t, (socket, { path }) => {
      if (healthy) socket.write(OK)
      else if (path === '/begun')
        socket.write('HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 20', () => socket[end]())
      else socket[end]()
    })
    await get(t, port)
    healthy = false
    await get(t, port)
    t.equal((await outcome(1)).kind, 'unavailable')
    t.equal(upstream.received.length, 3)
    healthy = true
    await get(t, port)
    healthy = false
    await get(t, port, '/begun')
    t.not((await outcome(3)).kind, 'finished')
    t.equal(upstream.received.filter(({ path }) => path === '/begun').length, 1)
  })
}

/** Whether a method may be sent a second time, over another connection. */
const REPEATABLE = { GET: true, HEAD: true, PUT: false, POST: false, PATCH: false, DELETE: false }

for (const [method, repeatable] of Object.entries(REPEATABLE))
  for (const end of ['end', 'resetAndDestroy'] as const)
    t.test(
      repeatable
        ? `${method} uses a kept connection, and is sent again if the far end has closed it (${end})`
        : `each ${method} has a connection of its own, and is never sent twice (${end})`,
      async (t) => {
        let dies = false
        const { upstream, port, outcome } = await start(t, (socket, { position, text }) => {
          if (dies && (position > 0 || !repeatable)) socket[end]()
          else socket.write(text.startsWith('HEAD') ? OK.slice(0, OK.indexOf('{')) : OK)
        })
        const send = async (method: string) => (await write(t, port, method)).status
        t.equal(await send('GET'), 200)
        t.equal(await send(method), 200)
        t.equal(upstream.received[1]?.position, repeatable ? 1 : 0)
        t.equal(await send('GET'), 200)
        dies = true
        t.equal(await send(method), repeatable ? 200 : 599)
        t.equal((await outcome(3)).kind, repeatable ? 'finished' : 'unavailable')
        t.equal(upstream.received.length, repeatable ? 5 : 4)
      },
    )

/** Responds to the head of a request and closes without having read the body: in a thread, so that it does so while we write. */
const CLOSES_EARLY = `
  const { parentPort, workerData } = require('node:worker_threads')
  const server = require('node:net').createServer((socket) => {
    socket.on('error', () => {})
    socket.once('data', () => {
      socket.pause()
      socket.write(workerData, () => socket.destroy())
    })
  })
  server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port))`

for (const [what, text] of [
  ['with a length', OK.replace('200 OK', '413 Too Large')],
  ['in chunks', `${HALF_CHUNKED.replace('200 OK', '413 Too Large')}0\r\n\r\n`],
] as const)
  t.test(
    `a response ${what} to an unread body arrives, although the resource server has closed`,
    async (t) => {
      const worker = new Worker(CLOSES_EARLY, { eval: true, workerData: text })
      t.teardown(() => worker.terminate())
      const [upstreamPort] = (await once(worker, 'message')) as [number]
      const { port } = await bff(t, { baseUrl: `http://127.0.0.1:${upstreamPort}` })
      const body = '#'.repeat(8_000_000)
      const head = [...PUT.slice(0, -1), `Content-Length: ${body.length}`]
      for (let call = 0; call < 10; call += 1) {
        const { status, headers, error } = await rawBrowser(t, port, head, body).answer
        t.match({ status, error }, { status: 413, error: null }, JSON.stringify(headers))
      }
    },
  )

for (const [when, text] of [
  ['before the head', ''],
  ['in mid-body', HALF],
  ['during an inspection', HALF.replace('200 OK', '400 Bad Request')],
] as const) {
  t.test(`a browser that goes away ${when} aborts the request upstream at once`, async (t) => {
    const { upstream, port, outcome } = await start(t, text)
    const browser = browse(t, port)
    const { socket } = await upstream.request(0)
    if (text === HALF) await browser.sees('abc')
    const over = closed(socket)
    browser.socket.destroy()
    await over
    t.same(await outcome(0), { kind: 'client_gone' })
  })
}

t.test('a browser that left before the call causes no request upstream', async (t) => {
  const gone = { closed: false, destroyed: true }
  const { upstream, port, outcome } = await start(t, OK, {}, { response: gone as never })
  const browser = browse(t, port)
  t.same(await outcome(0), { kind: 'client_gone' })
  browser.socket.destroy()
  t.equal(upstream.received.length, 0)
})

t.test(
  'a response that is left half-way leaves no connection, and the next update has its own',
  async (t) => {
    const { upstream, port, outcome, close } = await start(t, (socket) => {
      socket.write(upstream.received.length < 3 ? HALF : OK)
    })
    for (const [index, browser] of [browse(t, port), rawBrowser(t, port, PUT, '{}')].entries()) {
      await browser.sees('abc')
      browser.socket.destroy()
      t.same(await outcome(index), { kind: 'client_gone' })
      await closed(upstream.sockets[index]!)
    }
    t.equal((await write(t, port)).status, 200)
    t.equal((await get(t, port)).status, 200)
    await close()
    for (const socket of upstream.sockets) await closed(socket)
    t.equal(upstream.sockets.length, 4, 'one for each call, and none without a request')
    t.strictSame(
      upstream.received.map(({ position }) => position),
      [0, 0, 0, 0],
    )
  },
)

t.test('a resource server that does not respond, or stops half-way, causes a timeout', async (t) => {
  const silent = await start(t, () => {}, { timeoutMs: 200 })
  const started = performance.now()
  t.equal((await get(t, silent.port)).status, 599)
  t.same(await silent.outcome(0), { kind: 'timeout' })
  t.ok(performance.now() - started >= 200)
  await unlessHeldUp(100, async () => {
    const half = await start(t, HALF, { timeoutMs: 200 })
    const [{ raw }, outcome] = [await get(t, half.port), await half.outcome(0)]
    assert.deepEqual([raw, outcome], ['abc', { kind: 'cut', status: 200 }])
  })
})

t.test('a request that gets no connection in time causes a timeout', async (t) => {
  const answer = (socket: Socket, { path }: Received) => socket.write(path === '/slow' ? HALF : OK)
  // What is held up ends the slow response too.
  await unlessHeldUp(200, async () => {
    const { upstream, port, outcome } = await start(t, answer, { timeoutMs: 400, connections: 1 })
    const slow = browse(t, port, '/slow')
    await slow.sees('abc')
    const alive = setInterval(() => upstream.sockets[0]?.write('d'), 100)
    t.teardown(() => clearInterval(alive))
    const waiting = await get(t, port, '/waiting')
    clearInterval(alive)
    await slow.answer
    const later = await get(t, port, '/later')
    assert.deepEqual(
      [waiting.status, await outcome(0), later.status, upstream.paths()],
      [599, { kind: 'timeout' }, 200, ['/slow', '/later']],
    )
  })
})

t.test('a connection that is not accepted in time causes a timeout', async (t) => {
  // A certificate is awaited from a peer that never speaks.
  const upstream = await rawUpstream(t, () => {})
  const { port, outcome } = await bff(t, { baseUrl: upstream.url.replace('http:', 'https:'), timeoutMs: 200 })
  t.equal((await get(t, port)).status, 599)
  t.same(await outcome(0), { kind: 'timeout' })
})

const BIG = 64 * 1024 * 1024

for (const [what, status, options] of [
  ['stops reading counts as gone after the reader timeout', '200 OK', { readerTimeoutMs: 300 }],
  ['leaves in the middle of a long error does not count as served', '400 Bad Request', {}],
] as const) {
  t.test(`a browser that ${what}`, async (t) => {
    const head = `HTTP/1.1 ${status}\r\nContent-Type: text/csv\r\nContent-Length: ${BIG}\r\n\r\n`
    const { upstream, port, outcome } = await start(
      t,
      (socket) => {
        socket.write(head)
        socket.write(Buffer.alloc(BIG))
      },
      options,
    )
    const socket = net.connect(port, '127.0.0.1').on('error', () => {})
    t.teardown(() => socket.destroy())
    socket.write('GET /x HTTP/1.1\r\nHost: a\r\n\r\n')
    await once(socket, 'readable')
    if (!('readerTimeoutMs' in options)) socket.destroy()
    t.same(await outcome(0), { kind: 'client_gone' })
    await closed(upstream.sockets[0]!)
  })
}

t.test('an unrequested 100 Continue is no response, as the limits say', async (t) => {
  const { upstream, port, outcome } = await start(t, `HTTP/1.1 100 Continue\r\n\r\n${OK}`)
  t.equal((await get(t, port)).status, 599, 'nothing was written, so a problem can be')
  t.match(await outcome(0), { kind: 'unavailable' })
  t.equal(upstream.received.length, 1, 'and the request is not sent again')
})
