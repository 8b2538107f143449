import type { Socket } from 'node:net'
import zlib from 'node:zlib'
import t from 'tap'
import { answerText, browse, get, rawBrowser, relayed, start, write } from './resource-client-harness.ts'

const JSON_TYPE = 'Content-Type: application/json'
const NAMES = '{"error":"invalid_token"}'
const CHALLENGE = 'WWW-Authenticate: Bearer error="invalid_token"'
const LONG = 'x'.repeat(17_000)

const page = (status: string) => answerText(status, ['Content-Type: text/html'], '<p>no</p>')
const json = (status: string, body: string) => answerText(status, [JSON_TYPE], body)
/** The beginning of a response of 40,000 bytes. */
const cutOff = (status: string, body: string) =>
  `HTTP/1.1 ${status}\r\n${JSON_TYPE}\r\nContent-Length: 40000\r\n\r\n${body}`

const refused = (status: number, namesInvalidToken: boolean) => ({
  kind: 'token_refused',
  namesInvalidToken,
  status,
})

const BAD = '400 Bad Request'
const NO = '401 Unauthorized'
const FORBIDDEN = '403 Forbidden'

t.test('what refuses the token, or cannot be relayed, leaves the response untouched', async (t) => {
  for (const [what, text, expected] of [
    ['a 401 without a body', answerText(NO, []), refused(401, false)],
    ['a 401 with a page', page(NO), refused(401, false)],
    ['a 401 whose challenge names it', answerText(NO, [CHALLENGE]), refused(401, true)],
    ['a 401 whose body names it', json(NO, NAMES), refused(401, true)],
    [
      'a 403 whose untyped body names it',
      answerText(FORBIDDEN, [], '{"responseStatus":{"errorCode":"InvalidToken"}}'),
      refused(403, true),
    ],
    [
      'a 403 in chunks that names it',
      `HTTP/1.1 403 Forbidden\r\n${JSON_TYPE}\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{"error":\r\n10\r\n"invalid_token"}\r\n0\r\n\r\n`,
      refused(403, true),
    ],
    [
      'a coded body that names it',
      answerText(BAD, [JSON_TYPE, 'Content-Encoding: gzip'], zlib.gzipSync(NAMES).toString('latin1')),
      refused(400, true),
    ],
    [
      'a long body that names it before its rest is here',
      cutOff(BAD, `${NAMES.slice(0, -1)},"x":"${LONG}`),
      refused(400, true),
    ],
    [
      'a page that is not about the token',
      page(BAD),
      { kind: 'upstream_error', status: 400, retryAfter: null },
    ],
  ] as const) {
    const { answer, outcome } = await relayed(t, text)
    t.same(outcome, expected, what)
    t.strictSame([answer.status, answer.raw], [599, expected.kind], what)
  }
})

t.test('another error is relayed byte for byte', async (t) => {
  const coded = zlib.gzipSync('{"error":"invalid_request"}').toString('latin1')
  const sized = [0, 1, 16_383, 16_384, 16_385, 70_000, 3_000_000].map((size) =>
    Array.from({ length: Math.ceil(size / 7) }, (_, i) => String(i).padStart(7, '.'))
      .join('')
      .slice(0, size),
  )
  for (const [what, body, coding] of [
    ['coded', coded, 'gzip'],
    ['naming it beyond the first 16 KiB', `{"x":"${LONG}","error":"invalid_token"}`],
    ...sized.map((body) => [`of ${body.length} bytes`, body] as const),
  ] as const) {
    const lines = [JSON_TYPE, ...(coding === undefined ? [] : [`Content-Encoding: ${coding}`])]
    const { answer, outcome } = await relayed(t, answerText(BAD, lines, body))
    t.ok(answer.raw === body, `${what}: the bytes are the same`)
    t.match(answer.headers, { 'x-content-type-options': 'nosniff', 'content-encoding': coding }, what)
    t.strictSame([answer.status, outcome], [400, { kind: 'finished', status: 400 }], what)
  }
})

t.test('a successful response is not inspected', async (t) => {
  const { answer } = await relayed(t, answerText('200 OK', [JSON_TYPE, CHALLENGE], NAMES))
  t.strictSame([answer.status, answer.raw], [200, NAMES])
})

t.test('the connection of a rejected response is used again, even after a long refusal', async (t) => {
  for (const text of [
    json(NO, `{"error":"invalid_token","x":"${'x'.repeat(40_000)}"}`),
    answerText('200 OK', ['Content-Type: text/html'], 'x'.repeat(2_000)),
  ]) {
    const { upstream, port } = await start(t, text)
    for (let i = 0; i < 3; i++) t.equal((await get(t, port)).status, 599)
    t.equal(upstream.sockets.length, 1)
  }
})

t.test('a 401 or 400 to a HEAD request is judged by its head', async (t) => {
  for (const [status, line, kind] of [
    [NO, 'X: y', 'token_refused'],
    [BAD, CHALLENGE, 'token_refused'],
    [BAD, JSON_TYPE, 'finished'],
  ] as const) {
    const { port, outcome } = await start(t, `HTTP/1.1 ${status}\r\n${line}\r\nContent-Length: 20\r\n\r\n`)
    await rawBrowser(t, port, ['HEAD /x HTTP/1.1', 'Host: a', 'Connection: close']).answer
    t.equal((await outcome(0)).kind, kind, line)
  }
})

/** Writes the beginning of a response, and then a byte now and then. */
const drip = (status: string, body: string) => (socket: Socket) => {
  socket.write(cutOff(status, body))
  const timer = setInterval(() => socket.write(' '), 50)
  socket.on('close', () => clearInterval(timer))
}

t.test('an error whose body is slow is judged at the timeout by what has come', async (t) => {
  for (const [status, body, expected] of [
    [NO, '', refused(401, false)],
    [NO, NAMES, refused(401, true)],
    [BAD, NAMES, refused(400, true)],
  ] as const) {
    const { upstream, port, outcome } = await start(t, drip(status, body), { timeoutMs: 300 })
    void get(t, port)
    t.match(await outcome(0), { kind: expected.kind, status: expected.status })
    upstream.sockets[0]!.destroy()
  }
  // As slow as a success may be, it goes on.
  const { upstream, port, outcome } = await start(t, drip(FORBIDDEN, '{"error":"no"'), { timeoutMs: 300 })
  const browser = browse(t, port)
  await browser.sees('403 Forbidden')
  await browser.sees('{"error":"no"          ')
  upstream.sockets[0]!.destroy()
  t.same(await outcome(0), { kind: 'cut', status: 403 })
})

t.test('a configured shape counts for its own status alone, for writes too', async (t) => {
  const body = '{"responseStatus":{"errorCode":"TokenExpired"}}'
  const tokenShapes = [{ status: 400, path: ['responseStatus', 'errorCode'], value: 'TokenExpired' }]
  for (const [status, kind] of [
    [BAD, 'token_refused'],
    [FORBIDDEN, 'finished'],
    ['500 Internal Server Error', 'finished'],
  ] as const) {
    const { port, outcome } = await start(t, json(status, body), { tokenShapes })
    await write(t, port)
    t.equal((await outcome(0)).kind, kind, status)
  }
})

t.test('with 403:empty a 403 is a refused token if it has no body', async (t) => {
  const head = (fields: string, status = FORBIDDEN) => `HTTP/1.1 ${status}\r\n${fields}\r\n\r\n`
  const tokenShapes = [{ status: 403, path: null }]
  const kindOf = async (response: string, method = 'GET', shapes: typeof tokenShapes = tokenShapes) => {
    const { port, outcome } = await start(t, (socket) => socket.end(response), { tokenShapes: shapes })
    await rawBrowser(t, port, [`${method} /x HTTP/1.1`, 'Host: a', 'Connection: close']).answer
    return (await outcome(0)).kind
  }
  const [none, some] = [head('Content-Length: 0'), head('Content-Length: 9')]
  for (const empty of [none, head('Connection: close'), `${head('Transfer-Encoding: chunked')}0\r\n\r\n`])
    t.equal(await kindOf(empty), 'token_refused', empty)
  t.equal(await kindOf(none, 'HEAD'), 'token_refused')
  t.not(await kindOf(some, 'HEAD'), 'token_refused', 'a GET would have a body')
  t.not(await kindOf(some), 'token_refused', 'it was cut off')
  t.not(await kindOf(`${head('Content-Length: 1')} `), 'token_refused')
  t.not(await kindOf(head('Content-Length: 0', BAD)), 'token_refused', 'another status')
  t.not(await kindOf(none, 'GET', []), 'token_refused', 'no such setting')
})

t.test('a refusal whose connection breaks is searched as far as it came', async (t) => {
  const tokenShapes = [{ status: 400, path: ['code'], value: '4011' }]
  for (const [status, body, expected] of [
    [BAD, '{"error":"invalid_token","x":', refused(400, true)],
    [BAD, '{"code":4011,"x":', refused(400, true)],
    [NO, '{"error":"invalid_token","x":', refused(401, true)],
    [NO, '{"error":"inv', refused(401, false)],
  ] as const) {
    const { port, outcome } = await start(t, (socket) => socket.end(cutOff(status, body)), { tokenShapes })
    t.equal((await get(t, port)).status, 599)
    t.match(await outcome(0), expected, `${status} ${body}`)
  }
})

t.test(
  'any other error whose connection breaks keeps its status, and is cut off for the browser too',
  async (t) => {
    for (const [status, body] of [
      [BAD, '{"code":40'],
      [FORBIDDEN, ''],
      ['404 Not Found', '{"code":40'],
    ] as const) {
      const { port, outcome } = await start(t, (socket) => socket.end(cutOff(status, body)))
      const answer = await get(t, port)
      t.match(answer, {
        status: Number(status.slice(0, 3)),
        headers: { 'content-length': '40000' },
        raw: body,
      })
      t.same(await outcome(0), { kind: 'cut', status: answer.status }, status)
    }
  },
)
