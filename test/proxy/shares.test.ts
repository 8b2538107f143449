import assert from 'node:assert/strict'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { Duplex } from 'node:stream'
import t from 'tap'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import { wasSlowReader } from '../../src/http/connections.ts'
import { Relay } from '../../src/proxy/relay.ts'
import { Shares } from '../../src/proxy/upstream-connections.ts'
import { cookieHeader } from '../helpers/browser.ts'
import { signedIn } from '../helpers/shared.ts'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import { elapsed, turns, unlessHeldUp, until } from '../helpers/wait.ts'
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
} from './resource-client-harness.ts'

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

t.test('an upload whose browser leaves while it waits for a connection is forgotten', async (t) => {
  const upstream = await rawUpstream(t, () => {})
  const upload = outgoing({ method: 'PUT', uploadLength: 0 })
  // A quarter of the connections is for uploads.
  const { port, sends, outcome } = await bff(
    t,
    { baseUrl: upstream.url, connections: 4 },
    { outgoing: upload },
  )
  const send = (holder: string) => browse(t, port, '/x', `X-Holder: ${holder}`)
  const first = send('a')
  await upstream.request(0)
  const left = send('b')
  await sends(2)
  left.socket.destroy()
  t.same(await outcome(0), { kind: 'client_gone' })
  const next = send('c')
  await sends(3)
  upstream.received[0]!.socket.write(OK)
  t.equal((await first.answer).status, 200)
  ;(await upstream.request(1)).socket.write(OK)
  t.equal((await next.answer).status, 200)
  t.equal(upstream.sockets.length, 2, 'no connection for the one that has left')
})

t.test('a call is refused at once if those of its holder that wait keep too many bytes', async (t) => {
  const shares = new Shares(1, 100)
  const share = shares.of('a')
  const call = (keptBytes: number) => ({ keptBytes, cameAt: 0, start() {}, giveWay: () => false })
  const first = call(1_000)
  const enter = (keptBytes: number) => shares.enter(share, call(keptBytes))
  t.equal(shares.enter(share, first), 'started', 'it does not wait')
  t.strictSame([enter(60), enter(41), enter(40), enter(1)], ['waits', 'full', 'waits', 'full'])
  t.equal(shares.enter(shares.of('b'), call(1_000)), 'started', 'of another holder')
  shares.leave(share, first)
  t.strictSame([enter(61), enter(60)], ['full', 'waits'], 'the first has left 60')
  const [left] = share.waiting
  shares.forget(share, left!)
  t.equal(enter(40), 'waits', 'and one that left 40')
})

t.test('only a call that came long enough before gives way to a younger one', async (t) => {
  const shares = new Shares(2)
  const share = shares.of('a')
  const asked: string[] = []
  const call = (name: string, cameAt: number, givesWay = true) => ({
    keptBytes: 0,
    cameAt,
    start: () => void asked.push(`${name} starts`),
    giveWay(heir: object): boolean {
      asked.push(name)
      return heir === young && givesWay
    },
  })
  const [deaf, old] = [call('deaf', 0, false), call('old', 900)]
  const young = call('young', 1_899)
  for (const one of [deaf, old]) shares.enter(share, one)
  t.equal(shares.enter(share, call('waits', 950)), 'waits')
  t.equal(shares.enter(share, young), 'waits')
  asked.length = 0
  t.equal(shares.overtake(share, young, 1_000), false, 'the other is 999 ms older')
  t.strictSame(asked.splice(0), ['deaf'])
  t.equal(shares.overtake(share, young, 999), true)
  t.strictSame(asked.splice(0), ['deaf', 'old'])
  t.equal(shares.overtake(share, young, 999), false, 'one in so long')
  t.strictSame(asked, [])
  shares.leave(share, old, young)
  t.strictSame(asked.splice(0), ['young starts'], 'before the one that has waited longer')
  shares.leave(share, young, old)
  t.strictSame(asked, ['waits starts'], 'an heir that does not wait any more gets nothing')
})

t.test('a read takes the place of the oldest that has no response, which waits again, once', async (t) => {
  const upstream = await rawUpstream(t, (socket, { path }) => {
    if (path === '/begun') socket.write(HEAD)
  })
  const { port, sends, outcome } = await bff(t, { baseUrl: upstream.url, share: 3, overtakeMs: 50 })
  const read = (path: string) => browse(t, port, path, 'X-Holder: a')
  const begun = read('/begun')
  await begun.sees('text/csv')
  const left = read('/left')
  await upstream.request(1)
  const other = read('/other')
  await upstream.request(2)
  await elapsed(60)
  const first = read('/first')
  t.equal((await upstream.request(3)).path, '/first', 'the place of /left')
  await until('its connection is closed', () => upstream.received[1]!.socket.destroyed)
  upstream.received[3]!.socket.write(OK)
  t.equal((await first.answer).status, 200)
  t.equal((await upstream.request(4)).path, '/left', 'is sent again when a place is free')
  await elapsed(60)
  const second = read('/second')
  t.equal((await upstream.request(5)).path, '/second', 'the place of /other')
  await elapsed(60)
  const third = read('/third')
  await sends(6)
  t.match(await outcome(1), { kind: 'crowded' }, 'it gives way once')
  t.equal((await left.answer).raw, 'crowded')
  t.equal((await upstream.request(6)).path, '/third')
  for (const at of [5, 6]) upstream.received[at]!.socket.write(OK)
  t.equal((await second.answer).status, 200)
  t.equal((await third.answer).status, 200)
  ;(await upstream.request(7)).socket.write(OK)
  t.equal((await other.answer).status, 200, 'what waits again gets its response')
  t.equal(upstream.received.filter(({ path }) => path === '/begun').length, 1, 'one with a response stays')
})

t.test(
  'of a holder one read at a time is overtaken, and those that wait get their places in turn',
  async (t) => {
    const upstream = await rawUpstream(t, () => {})
    const { port } = await bff(t, { baseUrl: upstream.url, share: 2, overtakeMs: 50 })
    const read = (path: string) => browse(t, port, path, 'X-Holder: a')
    for (const [at, path] of ['/left', '/gone'].entries()) {
      read(path)
      await upstream.request(at)
    }
    await elapsed(60)
    for (const path of ['/first', '/second']) read(path)
    const taken = [await upstream.request(2), await upstream.request(3)]
    t.strictSame(taken.map(({ path }) => path).sort(), ['/first', '/second'])
  },
)

t.test('no update gives way to another', async (t) => {
  const upstream = await rawUpstream(t, () => {})
  const { port } = await bff(t, { baseUrl: upstream.url, share: 1, overtakeMs: 1 })
  const update = () => write(t, port, 'PUT', 'X-Holder: a')
  const first = update()
  const { socket } = await upstream.request(0)
  const second = update()
  await elapsed(100)
  t.equal(upstream.received.length, 1)
  socket.write(OK)
  t.equal((await first).status, 200)
  ;(await upstream.request(1)).socket.write(OK)
  t.equal((await second).status, 200)
})

t.test(
  'a rejected response with a slow body counts for its holder until its connection is free, soon',
  async (t) => {
    const PAGE = 'HTTP/1.1 500 Broken\r\nContent-Type: text/html\r\nContent-Length: 999\r\n\r\n<'
    const seen: string[] = []
    const upstream = await rawUpstream(t, async (socket, { path }) => {
      socket.on('close', () => seen.push(`end of ${path}`))
      // What was closed before this request was sent is noticed first.
      await turns()
      seen.push(path)
      socket.write(path === '/page' ? PAGE : OK)
    })
    const { port } = await bff(t, { baseUrl: upstream.url, share: 1 })
    const read = (path: string, holder: string) => get(t, port, path, `X-Holder: ${holder}`)
    t.equal((await read('/page', 'a')).raw, 'upstream_error')
    const next = read('/next', 'a')
    t.equal((await read('/other', 'b')).status, 200)
    // The page never comes to its end.
    t.equal((await next).status, 200)
    t.ok(seen.includes('end of /page') && seen.indexOf('end of /page') < seen.indexOf('/next'), seen.join())
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
  const hold = async () => {
    const lines = ['GET /flux/large HTTP/1.1', `Host: localhost:${portOf(server)}`, `Cookie: ${cookie}`]
    const reader = rawBrowser(t, portOf(server), [...lines, 'Sec-Fetch-Site: same-origin'])
    const isHeld = await reader.begins(200)
    reader.socket.pause()
    t.ok(isHeld || (await reader.begins(504)), 'the resource server may only seem too late')
    assert.ok(isHeld)
  }
  for (let held = 0; held < 32; held += 1) await unlessHeldUp(200, hold)
  const answer = await ask(portOf(server), { target: '/flux/small', headers: [OWN, ['Cookie', cookie]] })
  t.equal(answer.status, 429)
  t.match(problemOf(answer), { code: 'rate_limited' })
  t.equal(field(answer, 'retry-after'), '1')
  await unlessHeldUp(200, async () => {
    assert.equal((await other.fetch('/flux/small')).status, 200, 'another session')
  })
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
    await elapsed(readerTimeoutMs * 0.6)
    for (let done = taken.shift(); done !== undefined; done = taken.shift()) done()
    await isWanted
    passed += chunk.length
  }
  t.ok(isClosed)
  t.ok(passed <= 64 * 1024, `${passed} bytes`)
  t.ok(wasSlowReader(response), 'the line in the log says why')
})
