import { once } from 'node:events'
import net from 'node:net'
import { setTimeout as wait } from 'node:timers/promises'
import t from 'tap'
import { freePort } from '../helpers/ports.ts'
import {
  answerText,
  bff,
  browse,
  closed,
  get,
  OK,
  rawBrowser,
  rawUpstream,
  write,
} from './resource-server-harness.ts'

const HALF = 'HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\nContent-Length: 10\r\n\r\nabc'
const HALF_CHUNKED =
  'HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n'
const UNENDED = 'HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\n\r\nabc'

for (const [what, text, version] of ['1.0', '1.1'].flatMap((version) => [
  ['with a length', HALF, version] as const,
  ['in chunks', HALF_CHUNKED, version] as const,
  ['that ends with its connection', UNENDED, version] as const,
])) {
  t.test(`a response ${what} that is reset half-way is cut for the browser on HTTP/${version}`, async (t) => {
    const upstream = await rawUpstream(t, (socket) => socket.write(text))
    const { port, outcome } = await bff(t, { baseUrl: upstream.url })
    const browser = rawBrowser(t, port, [`GET /x HTTP/${version}`, 'Host: a', 'Connection: close'])
    await browser.sees('abc')
    upstream.sockets[0]?.resetAndDestroy()
    const { raw, headers, error } = await browser.answer
    t.same(await outcome(0), { kind: 'cut', status: 200 })
    if (headers['transfer-encoding'] === 'chunked') t.notMatch(raw, /0\r\n\r\n$/)
    else if ('content-length' in headers) t.equal(raw, 'abc')
    else t.equal(error, 'ECONNRESET', 'no orderly end, which would look like the end of the body')
  })
}

for (const [what, text, seen, breakOff] of [
  ['a response that ends short of its length is cut', HALF, 'abc', (socket) => socket.end()],
  ['a response that ends within its chunks is cut', HALF_CHUNKED, 'abc', (socket) => socket.end()],
  ['a response with broken chunks is cut', HALF_CHUNKED, 'abc', (socket) => socket.write('zz\r\n')],
  [
    'a response that is reset between its head and its body is cut',
    HALF.slice(0, -3),
    'content-length: 10\r\n',
    (socket) => socket.resetAndDestroy(),
  ],
] as [string, string, string, (socket: net.Socket) => void][]) {
  t.test(what, async (t) => {
    const upstream = await rawUpstream(t, (socket) => socket.write(text))
    const { port, outcome } = await bff(t, { baseUrl: upstream.url })
    const browser = browse(t, port)
    await browser.sees(seen)
    breakOff(upstream.sockets[0]!)
    const { raw } = await browser.answer
    t.notMatch(raw, /0\r\n\r\n$/)
    t.equal(raw.replace(/^3\r\n|\r\n$/g, ''), seen === 'abc' ? 'abc' : '')
    t.same(await outcome(0), { kind: 'cut', status: 200 })
  })
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
  const upstream = await rawUpstream(t, (socket) => socket.write(OK))
  const { port } = await bff(t, { baseUrl: upstream.url })
  await get(t, port)
  // Longer than undici keeps a connection by default.
  await wait(5_000)
  await get(t, port)
  t.equal(upstream.sockets.length, 1)
})

for (const end of ['end', 'resetAndDestroy'] as const) {
  t.test(
    `a new connection that is lost before the head (${end}) makes the resource server unavailable, after one request`,
    async (t) => {
      const upstream = await rawUpstream(t, (socket) => socket[end]())
      const { port, outcome } = await bff(t, { baseUrl: upstream.url })
      t.equal((await get(t, port)).status, 599)
      t.equal((await outcome(0)).kind, 'unavailable')
      t.equal(upstream.received.length, 1)
    },
  )

  t.test(`a kept connection that the far end has closed (${end}) causes no error for a read`, async (t) => {
    const upstream = await rawUpstream(t, (socket, { position }) => {
      if (position === 0) socket.write(OK)
      else socket[end]()
    })
    const { port } = await bff(t, { baseUrl: upstream.url })
    for (let i = 0; i < 4; i++) t.equal((await get(t, port)).status, 200)
    t.ok(
      upstream.received.some(({ position }) => position > 0),
      'a kept connection was used',
    )
  })

  t.test(`a read is sent again only once, and not after its response has begun (${end})`, async (t) => {
    let healthy = true
    const upstream = await rawUpstream(t, (socket, { path }) => {
      if (healthy) socket.write(OK)
      else if (path === '/begun')
        socket.write('HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 20', () => socket[end]())
      else socket[end]()
    })
    const { port, outcome } = await bff(t, { baseUrl: upstream.url })
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

for (const method of ['PUT', 'POST']) {
  t.test(`each ${method} has a connection of its own and is never sent twice`, async (t) => {
    let dies = false
    const upstream = await rawUpstream(t, (socket) => (dies ? socket.resetAndDestroy() : socket.write(OK)))
    const { port, outcome } = await bff(t, { baseUrl: upstream.url })
    for (let i = 0; i < 3; i++) t.equal((await write(t, port, method)).status, 200)
    t.same(
      upstream.received.map(({ position }) => position),
      [0, 0, 0],
    )
    dies = true
    t.equal((await write(t, port, method)).status, 599)
    t.equal((await outcome(3)).kind, 'unavailable')
    t.equal(upstream.received.length, 4)
  })
}

for (const [when, text] of [
  ['before the head', ''],
  ['in mid-body', HALF],
  ['during an inspection', HALF.replace('200 OK', '400 Bad Request')],
] as const) {
  t.test(`a browser that goes away ${when} aborts the request upstream at once`, async (t) => {
    const upstream = await rawUpstream(t, (socket) => socket.write(text))
    const { port, outcome } = await bff(t, { baseUrl: upstream.url })
    const browser = browse(t, port)
    const { socket } = await upstream.request(0)
    if (text === HALF) await browser.sees('abc')
    const over = closed(socket)
    browser.socket.destroy()
    await over
    t.same(await outcome(0), { kind: 'client_gone' })
  })
}

t.test(
  'a browser that goes away while its request waits for a connection causes no request upstream',
  async (t) => {
    const upstream = await rawUpstream(t, (socket, { path }) => {
      if (path !== '/held') socket.write(OK)
    })
    const { port, outcome } = await bff(t, { baseUrl: upstream.url, connections: 1 })
    const held = browse(t, port, '/held')
    await upstream.request(0)
    const leaving = browse(t, port, '/leaving')
    await once(leaving.socket, 'connect')
    const staying = browse(t, port, '/staying')
    await once(staying.socket, 'connect')
    leaving.socket.end()
    t.same(await outcome(0), { kind: 'client_gone' })
    upstream.sockets[0]?.write(OK)
    t.equal((await held.answer).status, 200)
    t.equal((await staying.answer).status, 200)
    t.strictSame(upstream.paths(), ['/held', '/staying'])
    t.equal(upstream.sockets.length, 1, 'the connection outlives the request that was withdrawn')
  },
)

t.test('a browser that left before the call causes no request upstream', async (t) => {
  const upstream = await rawUpstream(t, (socket) => socket.write(OK))
  const gone = { closed: false, destroyed: true }
  const { port, outcome } = await bff(t, { baseUrl: upstream.url }, { response: gone as never })
  const browser = browse(t, port)
  t.same(await outcome(0), { kind: 'client_gone' })
  browser.socket.destroy()
  t.equal(upstream.received.length, 0)
})

t.test('pipelined requests behind an open one end with their connection', async (t) => {
  const upstream = await rawUpstream(t, (socket, { path }) => {
    if (path === '/done') socket.write(OK)
  })
  const { port, outcome } = await bff(t, { baseUrl: upstream.url })
  const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: a`
  const browser = rawBrowser(t, port, [[get('/open'), get('/done'), get('/open')].join('\r\n\r\n')])
  await upstream.request(2)
  browser.socket.destroy()
  for (const index of [0, 1, 2]) t.same(await outcome(index), { kind: 'client_gone' })
})

t.test('a resource server that does not respond, or stops half-way, causes a timeout', async (t) => {
  const upstream = await rawUpstream(t, (socket, { path }) => {
    if (path === '/half') socket.write(HALF)
  })
  const { port, outcome } = await bff(t, { baseUrl: upstream.url, timeoutMs: 200 })
  const started = performance.now()
  t.equal((await get(t, port, '/silent')).status, 599)
  t.same(await outcome(0), { kind: 'timeout' })
  const between = performance.now()
  t.ok(between - started >= 200)
  t.equal((await get(t, port, '/half')).raw, 'abc')
  t.same(await outcome(1), { kind: 'cut', status: 200 })
})

t.test('a request that gets no connection in time causes a timeout', async (t) => {
  const upstream = await rawUpstream(t, (socket, { path }) => {
    socket.write(path === '/slow' ? HALF : OK)
  })
  const { port, outcome } = await bff(t, { baseUrl: upstream.url, timeoutMs: 400, connections: 1 })
  const slow = browse(t, port, '/slow')
  await slow.sees('abc')
  const alive = setInterval(() => upstream.sockets[0]?.write('d'), 100)
  t.teardown(() => clearInterval(alive))
  t.equal((await get(t, port, '/waiting')).status, 599)
  t.same(await outcome(0), { kind: 'timeout' })
  clearInterval(alive)
  await slow.answer
  t.equal((await get(t, port, '/later')).status, 200)
  t.strictSame(upstream.paths(), ['/slow', '/later'])
})

t.test('a connection that is not accepted in time causes a timeout', async (t) => {
  // A certificate is awaited from a peer that never speaks.
  const upstream = await rawUpstream(t, () => {})
  const { port, outcome } = await bff(t, { baseUrl: upstream.url.replace('http:', 'https:'), timeoutMs: 200 })
  t.equal((await get(t, port)).status, 599)
  t.same(await outcome(0), { kind: 'timeout' })
})

const BIG = 96 * 1024 * 1024

t.test('a browser that reads slowly slows the resource server down, and gets the whole body', async (t) => {
  let written = 0
  const upstream = await rawUpstream(t, (socket) => {
    socket.write(`HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\nContent-Length: ${BIG}\r\n\r\n`)
    const chunk = Buffer.alloc(65_536, 'a')
    const more = () => {
      while (written < BIG) {
        written += chunk.length
        if (!socket.write(chunk)) return
      }
    }
    socket.on('drain', more)
    more()
  })
  const { port, outcome } = await bff(t, { baseUrl: upstream.url })
  const socket = net.connect(port, '127.0.0.1')
  t.teardown(() => socket.destroy())
  socket.write('GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n')
  await once(socket, 'readable')
  await stable(() => written)
  t.ok(written < BIG / 2, `${written} bytes were let through to buffers`)
  let received = 0
  socket.on('data', (data: Buffer) => {
    received += data.length
  })
  await once(socket, 'end')
  t.ok(received > BIG)
  t.same(await outcome(0), { kind: 'finished', status: 200 })
})

t.test('a browser that stops reading counts as gone after the reader timeout', async (t) => {
  const upstream = await rawUpstream(t, (socket) => {
    socket.write(`HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\nContent-Length: ${BIG}\r\n\r\n`)
    socket.write(Buffer.alloc(BIG))
  })
  const { port, outcome } = await bff(t, { baseUrl: upstream.url, readerTimeoutMs: 300 })
  const socket = net.connect(port, '127.0.0.1')
  t.teardown(() => socket.destroy())
  socket.on('error', () => {})
  socket.write('GET /x HTTP/1.1\r\nHost: a\r\n\r\n')
  t.same(await outcome(0), { kind: 'client_gone' })
  const far = upstream.sockets[0]!
  await closed(far)
})

t.test('a browser that leaves in the middle of a long error does not count as served', async (t) => {
  const size = 32 * 1024 * 1024
  const upstream = await rawUpstream(t, (socket) => {
    socket.write(`HTTP/1.1 400 Bad Request\r\nContent-Type: text/csv\r\nContent-Length: ${size}\r\n\r\n`)
    socket.write(Buffer.alloc(size))
  })
  const { port, outcome } = await bff(t, { baseUrl: upstream.url })
  const socket = net.connect(port, '127.0.0.1')
  socket.on('error', () => {})
  socket.write('GET /x HTTP/1.1\r\nHost: a\r\n\r\n')
  await once(socket, 'readable')
  socket.destroy()
  t.same(await outcome(0), { kind: 'client_gone' })
})

t.test('after the close the resource server is unavailable', async (t) => {
  const upstream = await rawUpstream(t, (socket) =>
    socket.write(answerText('200 OK', ['Content-Type: text/csv'], 'a')),
  )
  const { port, outcome, close } = await bff(t, { baseUrl: upstream.url })
  t.equal((await get(t, port)).status, 200)
  await close()
  t.equal((await get(t, port)).status, 599)
  t.equal((await outcome(1)).kind, 'unavailable')
})

/** Resolves once `read()` has given the same value for 300 ms. */
async function stable(read: () => number): Promise<void> {
  for (let last = -1, since = performance.now(); performance.now() - since < 300; ) {
    await wait(20)
    if (read() !== last) {
      last = read()
      since = performance.now()
    }
  }
}

t.test('an unrequested 100 Continue is no response, as the limits say', async (t) => {
  const upstream = await rawUpstream(t, (socket) => socket.write(`HTTP/1.1 100 Continue\r\n\r\n${OK}`))
  const { port, outcome } = await bff(t, { baseUrl: upstream.url })
  t.equal((await get(t, port)).status, 599, 'nothing was written, so a problem can be')
  t.match(await outcome(0), { kind: 'unavailable' })
  t.equal(upstream.received.length, 1, 'and the request is not sent again')
})
