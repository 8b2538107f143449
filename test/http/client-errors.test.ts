import net from 'node:net'
import t from 'tap'
import { type Bff, startBff, startSandbox } from '../helpers/system.ts'
import { field, portOf, problemOf, readAnswers, speak } from './wire.ts'

type Case = [what: string, bytes: string, status: number, code: string]

const JSON_POST = 'POST /site HTTP/1.1\r\nHost: a\r\nX-CSRF: 1\r\nContent-Type: application/json\r\n'

const CASES: Case[] = [
  ['an unknown method', 'BREW /flux/a HTTP/1.1\r\nHost: a\r\n\r\n', 400, 'invalid_request'],
  ['an unknown version', 'GET / HTTP/3.7\r\nHost: a\r\n\r\n', 400, 'invalid_request'],
  ['the preface of HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400, 'invalid_request'],
  ['a TLS greeting', '\x16\x03\x01\x02\x00\x01\x00', 400, 'invalid_request'],
  ['bare line feeds', 'GET /flux/a HTTP/1.1\nHost: a\n\n', 400, 'invalid_request'],
  ['a blank before a colon', 'GET /flux/a HTTP/1.1\r\nHost : a\r\n\r\n', 400, 'invalid_request'],
  ['a folded header', 'GET /flux/a HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n', 400, 'invalid_request'],
  ['a NUL in a header', 'GET /flux/a HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n', 400, 'invalid_request'],
  ['no Host', 'GET /flux/a HTTP/1.1\r\n\r\n', 400, 'invalid_request'],
  ['two Hosts', 'GET /flux/a HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n', 400, 'invalid_request'],
  [
    'a percent sign that encodes nothing',
    'GET /flux/%zz HTTP/1.1\r\nHost: a\r\n\r\n',
    400,
    'invalid_request',
  ],
  [
    'a path that is not UTF-8',
    'GET /nothing/%C3%28 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n',
    400,
    'invalid_request',
  ],
  ['an absolute target', 'GET http://b/flux/a HTTP/1.1\r\nHost: a\r\n\r\n', 400, 'invalid_request'],
  ['an asterisk as target', 'OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n', 400, 'invalid_request'],
  ['a fragment', 'GET /flux/a#b HTTP/1.1\r\nHost: a\r\n\r\n', 400, 'invalid_request'],
  ['CONNECT', 'CONNECT b:443 HTTP/1.1\r\nHost: a\r\n\r\n', 400, 'invalid_request'],
  [
    'an unknown expectation',
    'GET /flux/a HTTP/1.1\r\nHost: a\r\nExpect: sugar\r\n\r\n',
    400,
    'invalid_request',
  ],
  [
    'an unknown expectation with a body',
    `${JSON_POST}Expect: sugar\r\nContent-Length: 3\r\n\r\n{ }`,
    400,
    'invalid_request',
  ],
  [
    'Transfer-Encoding with Content-Length',
    `${JSON_POST}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    400,
    'invalid_request',
  ],
  [
    'Content-Length with Transfer-Encoding',
    `${JSON_POST}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n`,
    400,
    'invalid_request',
  ],
  ['two lengths', `${JSON_POST}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{ }`, 400, 'invalid_request'],
  ['a negative length', `${JSON_POST}Content-Length: -1\r\n\r\n`, 400, 'invalid_request'],
  [
    'an unknown transfer coding on a POST',
    `${JSON_POST}Transfer-Encoding: xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
    400,
    'invalid_request',
  ],
  [
    'an unknown transfer coding on a GET',
    'GET /flux/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n',
    400,
    'invalid_request',
  ],
  [
    'two transfer codings',
    `${JSON_POST}Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
    400,
    'invalid_request',
  ],
  [
    'a chunk size that is no number',
    `${JSON_POST}Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n`,
    400,
    'invalid_request',
  ],
  [
    'headers of 20 KB',
    `GET / HTTP/1.1\r\nHost: a\r\nX: ${'a'.repeat(20_000)}\r\n\r\n`,
    431,
    'headers_too_large',
  ],
  [
    'headers of 2 MB',
    `GET / HTTP/1.1\r\nHost: a\r\nX: ${'a'.repeat(2_000_000)}\r\n\r\n`,
    431,
    'headers_too_large',
  ],
  ...[20_000, 200_000].map(
    (length): Case => [
      `a target of ${length} bytes`,
      `GET /flux/a?b=${'c'.repeat(length)} HTTP/1.1\r\nHost: a\r\n\r\n`,
      414,
      'uri_too_long',
    ],
  ),
  [
    'a long target after an empty line, with a hyphen in the method',
    `\r\nM-SEARCH /flux/a?b=${'c'.repeat(20_000)} HTTP/1.1\r\nHost: a\r\n\r\n`,
    414,
    'uri_too_long',
  ],
  ['a target of 9 KB', `GET /flux/a?b=${'c'.repeat(9_000)} HTTP/1.1\r\nHost: a\r\n\r\n`, 414, 'uri_too_long'],
  [
    'a path segment of 9 KB',
    `GET /flux/${'a'.repeat(9_000)} HTTP/1.1\r\nHost: a\r\n\r\n`,
    414,
    'uri_too_long',
  ],
]

t.test('a malformed request gets exactly one response, a problem, and the connection closes', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  for (const [what, bytes, status, code] of CASES) {
    const { answers, rest, closed } = await speak(portOf(bff), bytes)
    t.equal(answers.length, 1, `${what}: one answer`)
    const [answer] = answers
    if (answer === undefined) continue
    t.equal(rest, '', `${what}: nothing follows`)
    t.ok(closed, `${what}: the connection is closed`)
    t.equal(answer.status, status, what)
    t.match(field(answer, 'content-type'), /^application\/problem\+json/, what)
    t.match(problemOf(answer), { status, code, requestId: /./, title: /./, type: /./, detail: /./ }, what)
    t.equal(field(answer, 'x-request-id'), problemOf(answer).requestId, what)
  }
  t.equal(sandbox.journal.entries().length, 0, 'nothing reached the platform')
})

t.test('a fault in the middle of a late body gets one response', async (t) => {
  const bff = await startBff(t, await startSandbox(t))
  const head = `${JSON_POST}Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n`
  const heard = await twoParts(bff, head, 'zz\r\n')
  t.equal(heard.match(/HTTP\/1\.1/g)?.length, 1)
  t.match(heard, /^HTTP\/1\.1 400 /)
})

t.test('a fault in a body after the response gets no second response', async (t) => {
  const bff = await startBff(t, await startSandbox(t))
  const head = 'POST /nothing HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n'
  const heard = await twoParts(bff, head, 'zz\r\n', 'HTTP/1.1 404')
  t.equal(heard.match(/HTTP\/1\.1/g)?.length, 1)
  t.match(heard, /^HTTP\/1\.1 404 /)
})

t.test('a request is answered although rubbish follows it', async (t) => {
  const bff = await startBff(t, await startSandbox(t))
  const { answers, closed } = await speak(
    portOf(bff),
    'GET /auth/session HTTP/1.1\r\nHost: a\r\n\r\nrubbish\r\n\r\n',
  )
  t.equal(answers[0]?.status, 200)
  t.ok(answers.length === 1 || answers[1]?.status === 400)
  t.ok(closed)
})

t.test(
  'a client that stays connected after such a response is disconnected',
  { timeout: 5_000 },
  async (t) => {
    const bff = await startBff(t, await startSandbox(t))
    const socket = net.connect({ port: portOf(bff), host: '127.0.0.1', allowHalfOpen: true })
    t.teardown(() => socket.destroy())
    const ended = new Promise<void>((resolve) => socket.once('end', resolve))
    const gone = new Promise<void>((resolve) =>
      bff.app.server.server.once('connection', (peer) => peer.once('close', () => resolve())),
    )
    socket.resume()
    socket.write('rubbish\r\n\r\n')
    await ended
    await gone
    t.pass('its connection is gone although it never closed its side')
  },
)

t.test('a head or body that arrives too slowly is a 408', async (t) => {
  const bff = await startBff(t, await startSandbox(t))
  const { server } = bff.app.server
  server.headersTimeout = 50
  server.requestTimeout = 50
  const [head, body] = await Promise.all([
    speak(portOf(bff), 'GET /flux/a HTTP/1.1\r\nHo'),
    speak(portOf(bff), `${JSON_POST}Content-Length: 10\r\n\r\n{`),
  ])
  for (const { answers, closed } of [head, body]) {
    t.equal(answers.length, 1)
    t.equal(answers[0]?.status, 408)
    t.match(problemOf(answers[0]!), { code: 'request_timeout', status: 408 })
    t.ok(closed)
  }
})

t.test('Expect: 100-continue gets a 100', async (t) => {
  const bff = await startBff(t, await startSandbox(t))
  const heard = await twoParts(
    bff,
    `${JSON_POST}Expect: 100-continue\r\nConnection: close\r\nContent-Length: 2\r\n\r\n`,
    '{}',
    'HTTP/1.1 100 Continue',
  )
  t.match(heard, /^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 400 [\s\S]*siteID/)
})

/** Sends the second part once `awaited` has come (else as soon as the first has been read), and gives all that came. */
function twoParts(bff: Bff, first: string, second: string, awaited?: string): Promise<string> {
  return new Promise((resolve) => {
    const socket = net.connect(portOf(bff), '127.0.0.1', () => socket.write(first))
    const chunks: Buffer[] = []
    const text = (): string => Buffer.concat(chunks).toString()
    let sent = false
    const send = (): void => {
      if (!sent) socket.write(second)
      sent = true
    }
    if (awaited === undefined) bff.app.server.server.once('request', () => setImmediate(send))
    socket.setTimeout(10_000, () => socket.destroy())
    socket.on('data', (chunk) => {
      chunks.push(chunk)
      if (awaited !== undefined && text().includes(awaited)) send()
    })
    socket.on('error', () => {})
    socket.on('close', () => {
      readAnswers(portOf(bff), first + second, Buffer.concat(chunks))
      resolve(text())
    })
  })
}
