import { once } from 'node:events'
import net from 'node:net'
import t from 'tap'
import { shared } from '../helpers/shared.ts'
import { type Bff, cookieWithoutSession, startBff, startSandbox } from '../helpers/system.ts'
import { field, portOf, problemOf, readAnswers, speak } from './wire.ts'

const SIGNED = cookieWithoutSession().join(': ')
const JSON_POST = `POST /site HTTP/1.1\r\nHost: a\r\nX-CSRF: 1\r\n${SIGNED}\r\nContent-Type: application/json\r\n`

/** A head of these lines. */
const head = (...lines: string[]): string => `${lines.join('\r\n')}\r\n\r\n`
const get = (...fields: string[]): string => head('GET /flux/a HTTP/1.1', 'Host: a', ...fields)
const post = (fields: string, body = ''): string => `${JSON_POST}${fields}\r\n\r\n${body}`

/** By what is wrong with them. */
const INVALID: Readonly<Record<string, string>> = {
  'an unknown method': head('BREW /flux/a HTTP/1.1', 'Host: a'),
  'an unknown version': head('GET / HTTP/3.7', 'Host: a'),
  'the preface of HTTP/2': 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
  'a TLS greeting': '\x16\x03\x01\x02\x00\x01\x00',
  'bare line feeds': 'GET /flux/a HTTP/1.1\nHost: a\n\n',
  'a blank before a colon': head('GET /flux/a HTTP/1.1', 'Host : a'),
  'a folded header': get('X: a', ' b'),
  'a NUL in a header': get('X: a\0b'),
  'no Host': head('GET /flux/a HTTP/1.1'),
  'two Hosts': get('host: a'),
  'two Hosts of HTTP/1.0': get('host: a').replace('HTTP/1.1', 'HTTP/1.0'),
  'a percent sign that encodes nothing': head('GET /flux/%zz HTTP/1.1', 'Host: a'),
  'a path that is not UTF-8': head('GET /nothing/%C3%28 HTTP/1.1', 'Host: a', 'Connection: close'),
  'an absolute target': head('GET http://b/flux/a HTTP/1.1', 'Host: a'),
  'an asterisk as target': head('OPTIONS * HTTP/1.1', 'Host: a'),
  'a fragment': head('GET /flux/a#b HTTP/1.1', 'Host: a'),
  CONNECT: head('CONNECT b:443 HTTP/1.1', 'Host: a'),
  'an unknown expectation': get('Expect: sugar'),
  'an unknown expectation with a body': post('Expect: sugar\r\nContent-Length: 3', '{ }'),
  'Transfer-Encoding with Content-Length': post(
    'Content-Length: 5\r\nTransfer-Encoding: chunked',
    '0\r\n\r\n',
  ),
  'Content-Length with Transfer-Encoding': post(
    'Transfer-Encoding: chunked\r\nContent-Length: 5',
    '0\r\n\r\n',
  ),
  'two lengths': post('Content-Length: 2\r\nContent-Length: 3', '{ }'),
  'a negative length': post('Content-Length: -1'),
  'an unknown transfer coding on a POST': post('Transfer-Encoding: xchunked', '2\r\n{}\r\n0\r\n\r\n'),
  'an unknown transfer coding on a GET': `${get('Transfer-Encoding: xchunked')}2\r\n{}\r\n0\r\n\r\n`,
  'two transfer codings': post('Transfer-Encoding: gzip, chunked', '2\r\n{}\r\n0\r\n\r\n'),
  'a transfer coding of HTTP/1.0': post('Transfer-Encoding: chunked', '2\r\n{}\r\n0\r\n\r\n').replace(
    'HTTP/1.1',
    'HTTP/1.0',
  ),
  'a chunk size that is no number': post('Transfer-Encoding: chunked', 'zz\r\n{}\r\n0\r\n\r\n'),
}

/** A head of so many lines, which fits into the 16 KB of a head. */
const linesOf = (count: number, ...last: string[]): string =>
  get(...Array<string>(count - 1 - last.length).fill('A: b'), ...last)

const LONG_HEADS = [
  ...[20_000, 2_000_000].map((length) => get(`X: ${'a'.repeat(length)}`)),
  linesOf(1_001),
  // What stands at the end is not read, so none of these is judged.
  ...['Transfer-Encoding: chunked', 'Host: b', 'Upgrade: c'].map((line) => linesOf(1_500, line)),
]

const LONG_TARGETS = [
  ...[9_000, 20_000, 200_000].map((length) =>
    head(`GET /flux/a?b=${'c'.repeat(length)} HTTP/1.1`, 'Host: a'),
  ),
  // After an empty line, with a hyphen in the method.
  `\r\n${head(`M-SEARCH /flux/a?b=${'c'.repeat(20_000)} HTTP/1.1`, 'Host: a')}`,
  head(`GET /flux/${'a'.repeat(9_000)} HTTP/1.1`, 'Host: a'),
]

const CASES = [
  ...Object.entries(INVALID).map(([what, bytes]) => [what, bytes, 400, 'invalid_request'] as const),
  ...LONG_HEADS.map((bytes) => [`a head of ${bytes.length} bytes`, bytes, 431, 'headers_too_large'] as const),
  ...LONG_TARGETS.map((bytes) => [`${bytes.slice(0, 20)}, long`, bytes, 414, 'uri_too_long'] as const),
]

t.test('a malformed request gets exactly one response, a problem, and the connection closes', async (t) => {
  const { sandbox, port } = await shared()
  for (const [what, bytes, status, code] of CASES) {
    const { answers, rest, closed } = await speak(port, bytes)
    t.strictSame([answers.length, rest, closed], [1, '', true], `${what}: one answer, and the end`)
    const [answer] = answers
    if (answer === undefined) continue
    t.match(field(answer, 'content-type'), /^application\/problem\+json/, what)
    const body = { title: /./, type: /./, detail: /./, requestId: field(answer, 'x-request-id') }
    t.match({ ...problemOf(answer), line: answer.status }, { line: status, status, code, ...body }, what)
  }
  t.equal(sandbox.journal.entries().length, 0, 'nothing reached the platform')
})

t.test('the last of 1,000 header lines is read', async (t) => {
  const { port } = await shared()
  for (const [last, status, code] of [
    ['X-CSRF: 1', 401, 'login_required'],
    ['Expect: sugar', 400, 'invalid_request'],
  ] as const) {
    const [answer] = (await speak(port, linesOf(1_000, 'Connection: close', last))).answers
    t.match([answer?.status, answer && problemOf(answer).code], [status, code], last)
  }
})

t.test('a health check of HTTP/1.0 without a Host is served, as HAProxy sends it by default', async (t) => {
  const { port } = await shared()
  const { answers, closed } = await speak(port, 'GET /auth/ready HTTP/1.0\r\n\r\n')
  t.match([answers.map(({ status }) => status), closed], [[204], true])
})

t.test('a fault in the middle of a body gets one response, also after the response', async (t) => {
  const { bff } = await shared()
  const unknown = head('POST /nothing HTTP/1.1', 'Host: a', 'Transfer-Encoding: chunked')
  for (const [begin, status, awaited] of [
    [post('Transfer-Encoding: chunked', '2\r\n{}\r\n'), 400, undefined],
    [`${unknown}2\r\n{}\r\n`, 404, 'HTTP/1.1 404'],
  ] as const)
    t.strictSame((await twoParts(bff, begin, 'zz\r\n', awaited)).match(/HTTP\/1\.1 \d+/g), [
      `HTTP/1.1 ${status}`,
    ])
})

t.test('a request is answered although rubbish follows it', async (t) => {
  const { port } = await shared()
  const session = head('GET /auth/session HTTP/1.1', 'Host: a')
  const { answers, closed } = await speak(port, `${session}rubbish\r\n\r\n`)
  t.equal(answers[0]?.status, 200)
  t.ok(answers.length === 1 || answers[1]?.status === 400)
  t.ok(closed)
})

t.test('a client that stays connected after such a response is disconnected', async (t) => {
  const { bff, port } = await shared()
  const accepted = once(bff.app.server.server, 'connection') as Promise<[net.Socket]>
  const socket = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true })
  t.teardown(() => socket.destroy())
  const [peer] = await accepted
  const gone = once(peer, 'close')
  socket.write('rubbish\r\n\r\n')
  await once(socket.resume(), 'end')
  await gone
  t.equal(socket.writable, true, 'it never closed its side')
})

t.test('a head or body that arrives too slowly is a 408', async (t) => {
  const bff = await startBff(t, await startSandbox(t))
  const { server } = bff.app.server
  server.headersTimeout = 50
  server.requestTimeout = 50
  const slow = await Promise.all([
    speak(portOf(bff), 'GET /flux/a HTTP/1.1\r\nHo'),
    speak(portOf(bff), `${JSON_POST}Content-Length: 10\r\n\r\n{`),
  ])
  for (const { answers, closed } of slow) {
    t.match(answers, [{ status: 408, body: /"request_timeout"/ }])
    t.ok(closed && answers.length === 1)
  }
})

t.test('Expect: 100-continue gets a 100', async (t) => {
  const { bff } = await shared()
  const begin = post('Expect: 100-continue\r\nConnection: close\r\nContent-Length: 2')
  const heard = await twoParts(bff, begin, '{}', 'HTTP/1.1 100 Continue')
  t.match(heard, /^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 400 [\s\S]*siteID/)
})

/** Sends the second part once `awaited` has come, or else the first is read. Gives all that came. */
async function twoParts(bff: Bff, first: string, second: string, awaited?: string): Promise<string> {
  const socket = net.connect(portOf(bff), '127.0.0.1').on('error', () => {})
  const over = once(socket, 'close')
  const isRead = once(bff.app.server.server, 'request')
  socket.write(first)
  let text = ''
  socket.on('data', (chunk) => {
    text += chunk
  })
  if (awaited === undefined) await isRead
  else while (!text.includes(awaited)) await once(socket, 'data')
  socket.write(second)
  await over
  readAnswers(portOf(bff), first + second, Buffer.from(text))
  return text
}

t.test('a client that goes on sending after a fault behind its request is disconnected', async (t) => {
  const { port } = await shared()
  const socket = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true })
  t.teardown(() => socket.destroy())
  socket.on('error', () => {}).resume()
  socket.write(`${get()}no request\r\n`)
  const sending = setInterval(() => socket.write('x'), 100)
  t.teardown(() => clearInterval(sending))
  // A reset is as good as an end.
  await new Promise((resolve) => socket.once('close', resolve))
  t.ok(socket.destroyed)
})
