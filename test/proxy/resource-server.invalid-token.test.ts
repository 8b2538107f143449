import { createServer } from 'node:http'
import zlib from 'node:zlib'
import t from 'tap'
import { createResourceServer, type ResourceServer } from '../../src/proxy/resource-server.ts'
import { listenOnLoopback } from '../helpers/ports.ts'
import { elapsed } from '../helpers/wait.ts'
import {
  answerText,
  bff,
  closed,
  get,
  OK,
  outcomeOf,
  outgoing,
  PROVEN,
  rawBrowser,
  rawUpstream,
  relayed,
  write,
} from './resource-server-harness.ts'

type T = Parameters<typeof rawUpstream>[0]

const JSON_TYPE = 'Content-Type: application/json'

const NAMES = '{"error":"invalid_token"}'
const CHALLENGE = 'WWW-Authenticate: Bearer error="invalid_token"'

for (const [what, text, named] of [
  ['a 401 without a body', answerText('401 Unauthorized', []), false],
  ['a 401 with a page', answerText('401 Unauthorized', ['Content-Type: text/html'], '<p>no</p>'), false],
  ['a 401 whose challenge names it', answerText('401 Unauthorized', [CHALLENGE]), true],
  ['a 401 whose body names it', answerText('401 Unauthorized', [JSON_TYPE], NAMES), true],
  [
    'a 401 whose challenge names another error',
    answerText('401 Unauthorized', ['WWW-Authenticate: Bearer error="insufficient_scope"']),
    false,
  ],
  ['a 400 whose body names it', answerText('400 Bad Request', [JSON_TYPE], NAMES), true],
  ['a 403 whose challenge names it', answerText('403 Forbidden', [CHALLENGE, JSON_TYPE], '{}'), true],
  [
    'a 403 whose untyped body names it',
    answerText('403 Forbidden', [], '{"responseStatus":{"errorCode":"InvalidToken"}}'),
    true,
  ],
  [
    'a 403 in chunks that names it',
    `HTTP/1.1 403 Forbidden\r\n${JSON_TYPE}\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{"error":\r\n10\r\n"invalid_token"}\r\n0\r\n\r\n`,
    true,
  ],
] as const) {
  t.test(
    `${what} refuses the token${named ? ' as invalid_token' : ''}, and leaves the response untouched`,
    async (t) => {
      const { answer, outcome } = await relayed(t, text)
      t.same(outcome, { kind: 'token_refused', namesInvalidToken: named, status: Number(text.slice(9, 12)) })
      t.strictSame([answer.status, answer.raw], [599, 'token_refused'])
    },
  )
}

t.test('an invalid token is found in a coded body, and another error is relayed byte for byte', async (t) => {
  for (const [error, kind] of [
    ['invalid_token', 'token_refused'],
    ['invalid_request', 'finished'],
  ] as const) {
    const body = zlib.gzipSync(`{"error":"${error}"}`).toString('latin1')
    const text = answerText('400 Bad Request', [JSON_TYPE, 'Content-Encoding: gzip'], body)
    const { answer, outcome } = await relayed(t, text)
    t.match(outcome, { kind, status: 400 })
    if (kind === 'finished') t.strictSame([answer.raw, answer.headers['content-encoding']], [body, 'gzip'])
  }
})

for (const size of [0, 1, 16_383, 16_384, 16_385, 70_000, 3_000_000]) {
  t.test(`another error of ${size} bytes is relayed byte for byte`, async (t) => {
    const body = Array.from({ length: Math.ceil(size / 7) }, (_, i) => String(i).padStart(7, '.'))
      .join('')
      .slice(0, size)
    const { answer, outcome } = await relayed(t, answerText('400 Bad Request', [JSON_TYPE], body))
    t.equal(answer.status, 400)
    t.ok(answer.raw === body, 'the bytes are the same')
    t.equal(answer.headers['x-content-type-options'], 'nosniff')
    t.same(outcome, { kind: 'finished', status: 400 })
  })
}

t.test('an error code beyond the first 16 KiB is not found', async (t) => {
  const body = `{"x":"${'x'.repeat(17_000)}","error":"invalid_token"}`
  const { outcome } = await relayed(t, answerText('403 Forbidden', [JSON_TYPE], body))
  t.equal(outcome.kind, 'finished')
})

t.test('an error code at the beginning of a long body is found before the rest arrives', async (t) => {
  const upstream = await rawUpstream(t, (socket) =>
    socket.write(
      `HTTP/1.1 400 Bad Request\r\n${JSON_TYPE}\r\nContent-Length: 40000\r\n\r\n{"error":"invalid_token","x":"${'x'.repeat(17_000)}`,
    ),
  )
  const { port, outcome } = await bff(t, { baseUrl: upstream.url })
  void get(t, port)
  t.same(await outcome(0), { kind: 'token_refused', namesInvalidToken: true, status: 400 })
})

t.test('a successful response is not inspected', async (t) => {
  const { answer } = await relayed(
    t,
    answerText(
      '200 OK',
      [JSON_TYPE, 'WWW-Authenticate: Bearer error="invalid_token"'],
      '{"error":"invalid_token"}',
    ),
  )
  t.equal(answer.status, 200)
  t.equal(answer.raw, '{"error":"invalid_token"}')
})

t.test('a 400 with a page that is not about the token leaves the response untouched', async (t) => {
  const { outcome } = await relayed(
    t,
    answerText('400 Bad Request', ['Content-Type: text/html'], '<p>no</p>'),
  )
  t.same(outcome, { kind: 'upstream_error', status: 400, retryAfter: null })
})

t.test('the connection of a refused token is used again, even after a long refusal', async (t) => {
  const body = `{"error":"invalid_token","x":"${'x'.repeat(40_000)}"}`
  const upstream = await rawUpstream(t, (socket) => {
    socket.write(answerText('401 Unauthorized', [JSON_TYPE], body))
  })
  const { port, outcome } = await bff(t, { baseUrl: upstream.url })
  for (let i = 0; i < 3; i++) {
    await get(t, port)
    t.same(await outcome(i), { kind: 'token_refused', namesInvalidToken: true, status: 401 })
  }
  t.equal(upstream.sockets.length, 1)
})

t.test('a 401 or 400 to a HEAD request is judged by its head', async (t) => {
  for (const [text, kind] of [
    ['HTTP/1.1 401 Unauthorized\r\nContent-Length: 20\r\n\r\n', 'token_refused'],
    [
      'HTTP/1.1 400 Bad Request\r\nContent-Length: 20\r\nWWW-Authenticate: Bearer error="invalid_token"\r\n\r\n',
      'token_refused',
    ],
    [`HTTP/1.1 400 Bad Request\r\n${JSON_TYPE}\r\nContent-Length: 20\r\n\r\n`, 'finished'],
  ] as const) {
    const upstream = await rawUpstream(t, (socket) => socket.write(text))
    const { port, outcome } = await bff(t, { baseUrl: upstream.url })
    await rawBrowser(t, port, ['HEAD /x HTTP/1.1', 'Host: a', 'Connection: close']).answer
    t.equal((await outcome(0)).kind, kind)
  }
})

t.test('an inspection ends at the timeout', async (t) => {
  for (const [status, expected] of [
    ['400 Bad Request', { kind: 'timeout' }],
    ['401 Unauthorized', { kind: 'token_refused', namesInvalidToken: false, status: 401 }],
  ] as const) {
    const upstream = await rawUpstream(t, (socket) => {
      socket.write(`HTTP/1.1 ${status}\r\n${JSON_TYPE}\r\nContent-Length: 4000\r\n\r\n`)
      const drip = setInterval(() => socket.write(' '), 50)
      socket.on('close', () => clearInterval(drip))
    })
    const { port, outcome } = await bff(t, { baseUrl: upstream.url, timeoutMs: 300 })
    void get(t, port)
    t.same(await outcome(0), expected)
    const socket = upstream.sockets[0]!
    await closed(socket)
  }
})

t.test(
  'a connection lost during the inspection makes the resource server unavailable, and writes nothing',
  async (t) => {
    const upstream = await rawUpstream(t, (socket) => {
      socket.end(`HTTP/1.1 403 Forbidden\r\n${JSON_TYPE}\r\nContent-Length: 4000\r\n\r\n{"error"`)
    })
    const { port, outcome } = await bff(t, { baseUrl: upstream.url })
    t.equal((await get(t, port)).status, 599)
    t.equal((await outcome(0)).kind, 'unavailable')
  },
)

t.test('after an invalid token a second call uses the same response and the same connection', async (t) => {
  const upstream = await rawUpstream(t, (socket, { text }) => {
    socket.write(
      text.includes('Bearer new')
        ? OK
        : answerText('401 Unauthorized', [JSON_TYPE], '{"error":"invalid_token"}'),
    )
  })
  const resourceServer = createResourceServer({
    baseUrl: upstream.url,
    timeoutMs: 5000,
    tokenIn: 'header',
    secure: false,
  })
  t.teardown(() => resourceServer.close())
  const { port, server, listeners } = await twice(t, resourceServer)
  const answer = await get(t, port)
  t.equal(answer.status, 200)
  t.equal(answer.raw, '{"id":9007199254740993}')
  t.equal(upstream.received.length, 2)
  t.equal(upstream.sockets.length, 1)
  t.equal(listeners()[0], 0, 'no listener of the first call stays on the response')
  server.close()
})

/** A server that makes two calls for each request, the second with a new token. */
async function twice(t: T, resourceServer: ResourceServer) {
  const counts: number[] = []
  const server = createServer(async (request, response) => {
    const before = response.listenerCount('close')
    const call = {
      outgoing: outgoing(),
      request,
      response,
      hijack() {},
      requestId: 'r',
      holder: 'a',
      ...PROVEN,
    }
    await outcomeOf(resourceServer, { ...call, authorization: 'Bearer old' })
    counts.push(response.listenerCount('close') - before)
    // A refresh takes far longer than undici needs to take its connection back.
    await elapsed(20)
    await outcomeOf(resourceServer, { ...call, authorization: 'Bearer new' })
  })
  return {
    port: await listenOnLoopback(t, server),
    server,
    listeners: () => counts,
  }
}

t.test('a configured shape counts for its own status alone, for writes too', async (t) => {
  const body = '{"responseStatus":{"errorCode":"TokenExpired"}}'
  const tokenShapes = [{ status: 400, path: ['responseStatus', 'errorCode'], value: 'TokenExpired' }]
  for (const [status, kind] of [
    ['400 Bad Request', 'token_refused'],
    ['403 Forbidden', 'finished'],
    ['500 Internal Server Error', 'finished'],
  ] as const) {
    const upstream = await rawUpstream(t, (socket) => socket.write(answerText(status, [JSON_TYPE], body)))
    const { port, outcome } = await bff(t, { baseUrl: upstream.url, tokenShapes })
    await write(t, port)
    t.equal((await outcome(0)).kind, kind, status)
  }
})

t.test('a refusal whose connection breaks is searched as far as it came', async (t) => {
  const named = { kind: 'token_refused', namesInvalidToken: true }
  for (const [status, text, expected] of [
    ['400 Bad Request', '{"error":"invalid_token","x":', named],
    ['400 Bad Request', '{"code":4011,"x":', named],
    ['400 Bad Request', '{"code":40', { kind: 'unavailable' }],
    ['401 Unauthorized', '{"error":"invalid_token","x":', named],
    ['401 Unauthorized', '{"error":"inv', { kind: 'token_refused', namesInvalidToken: false }],
  ] as const) {
    const upstream = await rawUpstream(t, (socket) => {
      socket.end(`HTTP/1.1 ${status}\r\n${JSON_TYPE}\r\nContent-Length: 4000\r\n\r\n${text}`)
    })
    const tokenShapes = [{ status: 400, path: ['code'], value: '4011' }]
    const { port, outcome } = await bff(t, { baseUrl: upstream.url, tokenShapes })
    await get(t, port)
    t.match(await outcome(0), expected, `${status} ${text}`)
  }
})
