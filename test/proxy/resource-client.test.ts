import zlib from 'node:zlib'
import t from 'tap'
import { VERSION } from '../../src/version.ts'
import { bff, get, OK, rawBrowser, rawUpstream, start, write } from './resource-client-harness.ts'

/** The lines of a request to this address that are always there, but for those of its method. */
const ours = (url: string, ...more: string[]): string[] =>
  [
    'accept: application/json',
    'authorization: Bearer the-token',
    'content-type: application/json',
    `host: ${new URL(url).host}`,
    `user-agent: token-handler-bff/${VERSION}`,
    'x-request-id: req-1',
    ...more,
  ].toSorted()

const TRACEPARENT = 'traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'

/** Header fields that are passed on. */
const LISTED = [
  'Accept-Encoding: gzip, br',
  'Accept-Language: fr',
  'If-Match: "a"',
  'If-None-Match: "b"',
  'If-Modified-Since: Mon, 02 Nov 2026 10:00:00 GMT',
  'If-Unmodified-Since: Tue, 03 Nov 2026 10:00:00 GMT',
  'If-Range: "c"',
  'Range: bytes=0-1',
  TRACEPARENT,
]

/** Fields that are not, or with a value of ours. */
const OTHERS = [
  'Cookie: session=secret',
  'Authorization: Bearer of-the-browser',
  'X-Forwarded-For: 10.0.0.1',
  'X-Forwarded-Host: evil.test',
  'Forwarded: for=10.0.0.1',
  'X-HTTP-Method-Override: DELETE',
  'Referer: https://app.test/secret',
  'User-Agent: Mozilla/5.0',
  'Proxy-Authorization: Basic eA==',
  'TE: trailers',
  'Accept: text/html',
  'Content-Type: text/evil',
  'tracestate: a=b',
  'Via: 1.1 edge',
]

const passedOn = (line: string): string => line.replace(/^[^:]+/, (name) => name.toLowerCase())

t.test('a read carries our own headers and the listed ones of the browser, and no others', async (t) => {
  const { upstream, port } = await start(t)
  const answer = await get(t, port, '/WAC1/flux/a?format=JSON', ...OTHERS, ...LISTED)
  t.equal(answer.status, 200)
  t.match(upstream.received[0]?.text, /^GET \/WAC1\/flux\/a\?format=JSON HTTP\/1\.1\r\n/)
  t.same(
    upstream.received[0]?.lines.toSorted(),
    ours(upstream.url, 'connection: keep-alive', 'via: 1.1 edge, 1.1 bff', ...LISTED.map(passedOn)),
  )
})

t.test('headers that the browser names in Connection are not sent, unless they are ours', async (t) => {
  const { upstream, port } = await start(t)
  const named =
    'Authorization, accept, Content-Type, RANGE, if-none-match,via , accept-language, traceparent, If-Range'
  const head = [
    'GET /x HTTP/1.1',
    'Host: bff.test',
    `Connection: close, ${named}`,
    'Connection: accept-encoding',
  ]
  await rawBrowser(t, port, [...head, ...OTHERS, ...LISTED]).answer
  const kept = LISTED.filter((line) => /^If-(Match|.*-Since)/.test(line)).map(passedOn)
  const fixed = ['accept-encoding: identity', 'connection: keep-alive', 'via: 1.1 bff']
  t.same(upstream.received[0]?.lines.toSorted(), ours(upstream.url, ...fixed, ...kept))
})

t.test('a header that the browser repeats is sent as one line', async (t) => {
  const { upstream, port } = await start(t)
  const ranges = ['Range: bytes=0-1', 'Range: bytes=5-6']
  await get(t, port, '/x', 'If-None-Match: "a"', 'If-None-Match: "b"', ...ranges, 'Via: 1.0 a', 'Via: 1.1 b')
  t.same(upstream.received[0]?.lines.filter((line) => /^(if-none-match|range|via):/.test(line)).toSorted(), [
    'if-none-match: "a", "b"',
    'range: bytes=0-1, bytes=5-6',
    'via: 1.0 a, 1.1 b, 1.1 bff',
  ])
})

t.test('Via of a request over HTTP/1.0 says 1.0, and a malformed traceparent is dropped', async (t) => {
  const { upstream, port } = await start(t)
  await rawBrowser(t, port, ['GET /x HTTP/1.0', 'traceparent: 00-xyz-01']).answer
  t.ok(upstream.received[0]?.lines.includes('via: 1.0 bff'))
  t.notMatch(upstream.received[0]?.text, /traceparent/)
})

t.test('UPSTREAM_VIA=off sends no Via, not that of the browser either', async (t) => {
  const { upstream, port } = await start(t, undefined, { via: false })
  await get(t, port, '/x', 'Via: 1.1 edge')
  t.notMatch(upstream.received[0]?.text, /^via:/im)
  t.match(upstream.received[0]?.text, /^accept-encoding: identity\r$/m)
})

t.test('only encodings that this Node can decode are asked for', async (t) => {
  const { upstream, port } = await start(t)
  // From Node 20.19 on; zstd from 22.15 on.
  const zstd = typeof zlib.createZstdDecompress === 'function'
  const cases: [received: string, sent: string][] = [
    ['gzip, deflate, br, zstd', zstd ? 'gzip, deflate, br, zstd' : 'gzip, deflate, br'],
    ['zstd', zstd ? 'zstd' : 'identity'],
    ['zstd;q=1, gzip;q=0.5, compress', zstd ? 'zstd, gzip;q=0.5' : 'gzip;q=0.5'],
    ['*', zstd ? 'gzip, deflate, br, zstd' : 'gzip, deflate, br'],
    ['br, *;q=0.1', `br, gzip;q=0.1, deflate;q=0.1${zstd ? ', zstd;q=0.1' : ''}`],
    ['gzip;q=0, *', `gzip;q=0, deflate, br${zstd ? ', zstd' : ''}`],
    ['dcb, identity', 'identity'],
  ]
  for (const [received] of cases) await get(t, port, '/x', `Accept-Encoding: ${received}`)
  t.strictSame(
    upstream.received.map(({ text }) => /^accept-encoding: (.*)\r$/im.exec(text)?.[1]),
    cases.map(([, sent]) => sent),
  )
})

t.test('UPSTREAM_TOKEN_IN=query sends the token as one parameter, and no Authorization', async (t) => {
  const { upstream, port } = await start(
    t,
    undefined,
    { tokenIn: 'query' },
    { authorization: 'Bearer a+b/c=&d' },
  )
  await get(t, port, '/x?format=JSON')
  await get(t, port, '/y')
  t.strictSame(upstream.paths(), [
    '/x?format=JSON&access_token=a%2Bb%2Fc%3D%26d',
    '/y?access_token=a%2Bb%2Fc%3D%26d',
  ])
  t.notMatch(upstream.received[0]?.text, /authorization/i)
})

t.test('the path prefix of the base URL is kept', async (t) => {
  const upstream = await rawUpstream(t, (socket) => socket.write(OK))
  const { port } = await bff(t, { baseUrl: `${upstream.url}/api/v1` })
  await get(t, port, '/WAC1/flux/a')
  t.equal(upstream.received[0]?.path, '/api/v1/WAC1/flux/a')
})

t.test('a write has its body, length and preconditions, and no header for reads', async (t) => {
  const conditions = [
    'If-Match: "a"',
    'If-None-Match: "b"',
    'If-Unmodified-Since: Tue, 03 Nov 2026 10:00:00 GMT',
  ]
  const ofReads = ['If-Modified-Since: Tue, 03 Nov 2026 10:00:00 GMT', 'If-Range: "c"', 'Range: bytes=0-1']
  const fixed = ['accept-encoding: identity', 'connection: close', 'content-length: 2', 'via: 1.1 bff']
  for (const method of ['PUT', 'POST', 'PATCH']) {
    const { upstream, port } = await start(t)
    t.equal((await write(t, port, method, ...conditions, ...ofReads)).status, 200, method)
    const [request] = upstream.received
    t.equal(request?.body, '{}', method)
    t.same(request?.lines.toSorted(), ours(upstream.url, ...fixed, ...conditions.map(passedOn)), method)
  }
})

t.test('HEAD is sent as HEAD, and its response keeps the length and has no body', async (t) => {
  const { upstream, port, outcome } = await start(
    t,
    'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1234\r\nETag: "v"\r\n\r\n',
  )
  const answer = await rawBrowser(t, port, ['HEAD /x HTTP/1.1', 'Host: bff.test', 'Connection: close']).answer
  t.match(upstream.received[0]?.text, /^HEAD \/x /)
  t.match(answer, { status: 200, headers: { 'content-length': '1234', etag: '"v"' }, raw: '' })
  t.same(await outcome(0), { kind: 'finished', status: 200 })
})
