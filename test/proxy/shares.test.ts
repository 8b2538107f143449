import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { Duplex } from 'node:stream'
import t from 'tap'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import { Relay } from '../../src/proxy/relay.ts'
import { Shares } from '../../src/proxy/shares.ts'
import { cookieHeader } from '../helpers/browser.ts'
import { signedIn } from '../helpers/shared.ts'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import { elapsed, until } from '../helpers/wait.ts'
import { ask, field, OWN, portOf, problemOf } from '../http/wire.ts'
import {
  bff,
  browse,
  get,
  OK,
  outgoing,
  PROVEN,
  rawBrowser,
  rawUpstream,
  write,
} from './resource-server-harness.ts'

/** More than the buffers of all connections on its way. */
const LARGE = Buffer.alloc(32 * 1024 * 1024)
const HEAD = `HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\nContent-Length: ${LARGE.length}\r\n\r\n`

t.test('reads beyond the share of their holder wait for it, and others do not wait for them', async (t) => {
  const upstream = await rawUpstream(t, () => {})
  const { port, sends, outcome } = await bff(t, { baseUrl: upstream.url, share: 2 })
  const read = (holder: string, path: string) => browse(t, port, path, `X-Holder: ${holder}`)
  const [first] = [read('a', '/1'), read('a', '/2')]
  await upstream.request(1)
  const left = read('a', '/left')
  await sends(3)
  const next = read('a', '/3')
  await sends(4)
  const other = read('b', '/b')
  t.equal((await upstream.request(2)).path, '/b', 'of another holder')
  left.socket.destroy()
  t.same(await outcome(0), { kind: 'client_gone' })
  first!.socket.destroy()
  t.equal((await upstream.request(3)).path, '/3', 'once others have ended, and without one that has left')
  for (const { socket } of upstream.received.slice(2)) socket.write(OK)
  t.equal((await next.answer).status, 200)
  t.equal((await other.answer).status, 200)
  t.equal(upstream.received.length, 4)
})

t.test('updates beyond the share of their holder wait for it', async (t) => {
  const upstream = await rawUpstream(t, () => {})
  const { port } = await bff(t, { baseUrl: upstream.url, share: 1 })
  const update = (holder: string) => write(t, port, 'PUT', `X-Holder: ${holder}`)
  const first = update('a')
  await upstream.request(0)
  const second = update('a')
  const other = update('b')
  ;(await upstream.request(1)).socket.write(OK)
  t.equal((await other).status, 200)
  upstream.received[0]!.socket.write(OK)
  t.equal((await first).status, 200)
  ;(await upstream.request(2)).socket.write(OK)
  t.equal((await second).status, 200, 'once the first has ended')
})

t.test('a call is refused at once if those of its holder that wait keep too many bytes', async (t) => {
  const shares = new Shares(1, 100)
  const share = shares.of('a')
  const call = (keptBytes: number) => ({ keptBytes, start() {} })
  const enter = (keptBytes: number) => shares.enter(share, call(keptBytes))
  t.equal(enter(1_000), 'started', 'it does not wait')
  t.strictSame([enter(60), enter(41), enter(40), enter(1)], ['waits', 'full', 'waits', 'full'])
  t.equal(shares.enter(shares.of('b'), call(1_000)), 'started', 'of another holder')
  shares.leave(share)
  t.strictSame([enter(61), enter(60)], ['full', 'waits'], 'the first has left 60')
  const [left] = share.waiting
  shares.forget(share, left!)
  t.equal(enter(40), 'waits', 'and one that left 40')
})

t.test(
  'a rejected response with a slow body counts for its holder until its connection is free, soon',
  async (t) => {
    const PAGE = 'HTTP/1.1 500 Broken\r\nContent-Type: text/html\r\nContent-Length: 999\r\n\r\n<'
    const seen: string[] = []
    const upstream = await rawUpstream(t, (socket, { path }) => {
      // What was closed before this request was sent is noticed first.
      setTimeout(() => seen.push(path), 50)
      socket.write(path === '/page' ? PAGE : OK)
      socket.on('close', () => seen.push(`end of ${path}`))
    })
    const { port } = await bff(t, { baseUrl: upstream.url, share: 1 })
    const read = (path: string, holder: string) => get(t, port, path, `X-Holder: ${holder}`)
    t.equal((await read('/page', 'a')).raw, 'upstream_error')
    const next = read('/next', 'a')
    t.equal((await read('/other', 'b')).status, 200)
    // The page never comes to its end.
    t.equal((await next).status, 200)
    await until('the next read', () => seen.includes('/next'))
    t.ok(seen.indexOf('end of /page') < seen.indexOf('/next'), seen.join())
    t.ok(seen.includes('end of /page'))
  },
)

t.test('a session whose reads hold its share for UPSTREAM_TIMEOUT_MS gets 429', async (t) => {
  const upstream = await rawUpstream(t, (socket, { path }) => {
    if (path.includes('/large')) socket.write(HEAD) && socket.write(LARGE)
    else socket.write(OK)
  })
  const sandbox = await startSandbox(t)
  const server = await startBff(t, sandbox, { BASE_URL: upstream.url, UPSTREAM_TIMEOUT_MS: '1000' })
  const [slow, other] = [server.browser(), server.browser()]
  await signIn(slow, sandbox)
  await signIn(other, sandbox)
  const cookie = cookieHeader(slow)
  for (let i = 0; i < 32; i += 1) {
    const lines = ['GET /flux/large HTTP/1.1', `Host: localhost:${portOf(server)}`, `Cookie: ${cookie}`]
    const reader = rawBrowser(t, portOf(server), [...lines, 'Sec-Fetch-Site: same-origin'])
    await reader.sees('\r\n\r\n')
    reader.socket.pause()
  }
  const answer = await ask(portOf(server), { target: '/flux/small', headers: [OWN, ['Cookie', cookie]] })
  t.equal(answer.status, 429)
  t.match(problemOf(answer), { code: 'rate_limited' })
  t.equal(field(answer, 'retry-after'), '1')
  t.equal((await other.fetch('/flux/small')).status, 200, 'another session')
})

/** The Flux of the newest request that has reached the resource server. */
function lastFlux({ journal }: Sandbox): string | undefined {
  return journal.entries({ endpoint: 'resource' }).at(-1)?.path.split('/').at(-1)
}

t.test('reads without a session use connections of their own, half of them for one address', async (t) => {
  const env = { OAUTH_FLOWS: 'code,client', CLIENT_FLUX_ALLOWED: 'DEMO/open', TRUST_PROXY: '127.0.0.1' }
  const { sandbox, bff: server, browser: user } = await signedIn(env)
  const gate = sandbox.hold('resource')
  t.teardown(() => gate.release())
  const visit = (address: string, count: number) =>
    Array.from({ length: count }, () =>
      server.browser().fetch('/flux/open', { headers: { 'x-forwarded-for': address } }),
    )
  const reads = visit('192.0.2.1', 20)
  await gate.arrivals(8)
  reads.push(...visit('192.0.2.2', 140))
  await gate.arrivals(16)
  reads.push(user.fetch('/flux/mine'))
  await gate.arrivals(17)
  t.equal(lastFlux(sandbox), 'mine')
  gate.release()
  for (const { status } of await Promise.all(reads)) t.equal(status, 200, 'all are served in the end')
})

t.test('a browser that takes less than 64 KiB in the reader timeout is disconnected', async (t) => {
  const readerTimeoutMs = 200
  const chunk = Buffer.alloc(20 * 1024)
  const taken: (() => void)[] = []
  const highWaterMark = 16 * 1024
  const connection = new Duplex({
    writableHighWaterMark: highWaterMark,
    read() {},
    write: (_chunk, _encoding, done) => void taken.push(done),
  })
  connection.on('error', () => {})
  const server = createServer({ highWaterMark })
  const handled = new Promise<[IncomingMessage, ServerResponse]>((resolve) =>
    server.once('request', (...both) => resolve(both)),
  )
  server.emit('connection', connection)
  connection.push('GET / HTTP/1.1\r\nHost: a\r\n\r\n')
  const [request, response] = await handled
  let isClosed = false
  response.on('close', () => {
    isClosed = true
  })
  const wanted: (() => void)[] = []
  const relay = new Relay({
    call: {
      ...{ outgoing: outgoing(), request, response, hijack() {} },
      ...{ authorization: '', holder: '', requestId: 'req-1', traceparent: null, ...PROVEN },
    },
    controller: { pause() {}, resume: () => wanted.shift()!(), abort() {} } as never,
    ...{ status: 200, headers: {}, readerTimeoutMs, securityHeaders: [], ownPathOf: () => null },
  })
  let passed = 0
  // Each part is taken before the reader timeout, so only their sum can tell.
  while (!isClosed && passed < 10 * chunk.length) {
    const isWanted = new Promise<void>((resolve) => {
      wanted.push(resolve)
      response.on('close', resolve)
    })
    relay.write(chunk)
    t.ok(response.writableNeedDrain)
    await elapsed(readerTimeoutMs * 0.4)
    for (let done = taken.shift(); done !== undefined; done = taken.shift()) done()
    await isWanted
    passed += chunk.length
  }
  t.ok(isClosed)
  t.ok(passed <= 64 * 1024, `${passed} bytes`)
})
