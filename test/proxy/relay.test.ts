import t from 'tap'
import { answerText, closed, csv, get, rawBrowser, relayed, start } from './resource-client-harness.ts'

const PROTECTION = {
  'x-content-type-options': 'nosniff',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'; sandbox",
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-request-id': 'req-1',
}

t.test('status and bytes pass unchanged, with the listed headers and the protective ones', async (t) => {
  const body = '{"big":9007199254740993,"at":"2026-11-20T10:00:00.1234567Z","bin":"\xff\x00"}'
  const { answer, outcome } = await relayed(
    t,
    answerText(
      '206 Partial Content',
      [
        'Content-Type: application/json; charset=utf-8',
        'Content-Encoding: gzip',
        'Content-Language: fr',
        'Content-Disposition: attachment; filename="a.json"',
        'Content-Range: bytes 0-1/9',
        'Accept-Ranges: bytes',
        'ETag: W/"v1"',
        'Last-Modified: Mon, 02 Nov 2026 10:00:00 GMT',
        'Retry-After: 7',
        'Connection: X-Internal, keep-alive',
        'Date: Mon, 02 Nov 2026 10:00:00 GMT',
        'Expires: Mon, 02 Nov 2030 10:00:00 GMT',
        'Vary: Accept',
        'Set-Cookie: session=stolen',
        'Set-Cookie: b=c',
        'Access-Control-Allow-Origin: *',
        'Strict-Transport-Security: max-age=1',
        'Clear-Site-Data: "cookies"',
        'Content-Security-Policy: default-src *',
        'WWW-Authenticate: Basic',
        'Location: https://evil.test/',
        'Refresh: 0; url=https://evil.test/',
        'Link: </x>; rel=preload',
        'Service-Worker-Allowed: /',
        'X-Request-Id: theirs',
        'X-Internal: 1',
        'Trailer: X-Checksum',
      ],
      body,
    ),
  )
  t.equal(answer.status, 206)
  t.equal(answer.raw, body)
  const { date, ...headers } = answer.headers
  t.ok(Math.abs(Date.parse(date ?? '') - Date.now()) < 60_000, 'the date is our own')
  t.same(headers, {
    ...PROTECTION,
    'cache-control': 'no-store',
    'content-type': 'application/json; charset=utf-8',
    'content-encoding': 'gzip',
    'content-language': 'fr',
    'content-disposition': 'attachment; filename="a.json"',
    'content-range': 'bytes 0-1/9',
    'accept-ranges': 'bytes',
    etag: 'W/"v1"',
    'last-modified': 'Mon, 02 Nov 2026 10:00:00 GMT',
    'retry-after': '7',
    'content-length': String(body.length),
    connection: 'close',
  })
  t.same(outcome, { kind: 'finished', status: 206 })
})

t.test('only a response that the resource server marks private may be kept by the browser', async (t) => {
  for (const [said, kept] of [
    ['private', true],
    ['Private, max-age=60', true],
    ['max-age=0,private="x-a"', true],
    ['private, no-store', false],
    ['public, max-age=60', false],
    ['x-private, unprivate=1', false],
    ['max-age=60', false],
  ] as const) {
    const { headers } = (await relayed(t, csv(`Cache-Control: ${said}`))).answer
    t.match(headers, { 'cache-control': kept ? 'private, no-cache' : 'no-store' }, said)
    t.equal(headers.vary, kept ? 'Cookie' : undefined, said)
  }
})

t.test('headers that the resource server names in Connection are not relayed', async (t) => {
  const named = ['Connection: ETag, retry-after', 'Connection: cache-control']
  const { answer } = await relayed(t, csv(...named, 'ETag: "a"', 'Retry-After: 7', 'Cache-Control: private'))
  t.equal(answer.status, 200)
  t.match(answer.headers, { etag: undefined, 'retry-after': undefined, 'cache-control': 'no-store' })
})

t.test('a repeated list header is joined and a repeated single header is dropped', async (t) => {
  const lines = ['Content-Language: fr', 'Content-Language: de', 'ETag: "a"', 'ETag: "b"']
  const { answer } = await relayed(t, csv(...lines))
  t.match(answer.headers, { 'content-language': 'fr,de', etag: undefined })
})

t.test('a response without a body needs no type, and keeps its validators', async (t) => {
  for (const [status, lines] of [
    ['204 No Content', 'Content-Length: 0\r\n\r\n'],
    ['404 Not Found', 'Content-Length: 0\r\n\r\n'],
    ['200 OK', 'Content-Length: 0\r\n\r\n'],
    ['200 OK', 'Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n'],
    // A length that it does not have.
    ['304 Not Modified', 'ETag: "v"\r\nCache-Control: private\r\nContent-Length: 100\r\n\r\n'],
  ] as const) {
    const { answer, outcome } = await relayed(t, `HTTP/1.1 ${status}\r\n${lines}`)
    const code = Number(status.slice(0, 3))
    t.same([answer.status, outcome], [code, { kind: 'finished', status: code }], status)
    if (code === 204) t.strictSame([answer.raw, answer.headers['content-length']], ['', undefined])
    if (code !== 304) continue
    t.match(answer, { raw: '', headers: { etag: '"v"', 'cache-control': 'private, no-cache' } })
  }
})

t.test('early hints and trailers are dropped', async (t) => {
  const { answer } = await relayed(
    t,
    'HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nSet-Cookie: a=b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/csv\r\nTransfer-Encoding: chunked\r\nTrailer: Set-Cookie\r\n\r\n3\r\nabc\r\n0\r\nSet-Cookie: a=b\r\n\r\n',
  )
  t.equal(answer.status, 200)
  t.equal(answer.raw, '3\r\nabc\r\n0\r\n\r\n')
  t.notOk('link' in answer.headers || 'set-cookie' in answer.headers || 'trailer' in answer.headers)
})

const JSON_200 = (...lines: string[]) =>
  answerText('200 OK', ['Content-Type: application/json', ...lines], 'evil')
const OF_TYPE = (type: string) => answerText('200 OK', [`Content-Type: ${type}`], 'evil')
const LOCATION = ['Location: /x', 'Content-Type: application/json']

t.test('a response that must not be relayed leaves the response untouched', async (t) => {
  for (const [what, text] of [
    ...['300 Choices', '301 Moved', '302 Found', '303 Other', '307 Temporary', '308 Permanent'].map(
      (status) => [status, answerText(status, LOCATION, 'evil')] as const,
    ),
    ['a page of an odd status', answerText('999 Odd', ['Content-Type: text/html'], 'evil')],
    ['a page', OF_TYPE('Text/HTML; charset=utf-8')],
    ['an XHTML page', OF_TYPE('application/xhtml+xml')],
    ['a script', OF_TYPE('text/javascript')],
    ['a script by an older name', OF_TYPE('application/x-javascript;charset=utf-8')],
    ['a body without a type', answerText('200 OK', [], 'evil')],
    [
      'a body in chunks without a type',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n',
    ],
    ['a body with an empty type', OF_TYPE('')],
    ['a body with half a type', OF_TYPE('json')],
    ['two types in two lines', JSON_200('Content-Type: text/html')],
    ['two types in one line', OF_TYPE('application/json, text/html')],
    ['two lengths', JSON_200('Content-Length: 3')],
    ['a length that is no number', JSON_200('Content-Length: +3')],
    ['a length and chunks', JSON_200('Transfer-Encoding: chunked')],
    [
      'a body under a further transfer coding',
      'HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\nTransfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n',
    ],
    ['a response that is not HTTP', 'SSH-2.0-OpenSSH_9.0\r\n'],
    ['a head that is too large', JSON_200(`X-Big: ${'x'.repeat(20_000)}`)],
  ] as const) {
    const { answer, outcome } = await relayed(t, text)
    t.strictSame([outcome.kind, answer.status, answer.raw], ['unusable', 599, 'unusable'], what)
    t.notOk('content-security-policy' in answer.headers, what)
  }
})

t.test('a redirect is not followed', async (t) => {
  const { upstream } = await relayed(t, answerText('307 Temporary Redirect', ['Location: /elsewhere'], ''))
  t.equal(upstream.received.length, 1)
})

t.test('an error with data is relayed, one with a page, a script or no type gives its status', async (t) => {
  for (const [status, type, kind] of [
    ['404 Not Found', 'application/json', 'finished'],
    ['500 Internal Server Error', 'text/csv', 'finished'],
    ['503 Service Unavailable', 'text/plain', 'finished'],
    ['503 Service Unavailable', 'text/html', 'upstream_error'],
    ['503 Service Unavailable', 'text/javascript', 'upstream_error'],
    ['503 Service Unavailable', null, 'upstream_error'],
  ] as const) {
    const lines = type === null ? [] : [`Content-Type: ${type}`]
    const { answer, outcome } = await relayed(t, answerText(status, [...lines, 'Retry-After: 9'], '<b>x</b>'))
    const code = Number(status.slice(0, 3))
    const what = `${status} of type ${type}`
    if (kind === 'finished') {
      t.same(outcome, { kind, status: code }, what)
      t.strictSame([answer.status, answer.raw], [code, '<b>x</b>'], what)
      t.match(answer.headers, { 'retry-after': '9', 'x-content-type-options': 'nosniff' }, what)
    } else {
      t.same(outcome, { kind, status: code, retryAfter: '9' }, what)
      t.equal(answer.status, 599, what)
    }
  }
})

t.test('a large refused response is not read to its end', async (t) => {
  const length = 1e9
  const { upstream, port, outcome } = await start(t, (socket) => {
    socket.write(`HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: ${length}\r\n\r\n`)
    const more = () => {
      while (!socket.destroyed && socket.write(Buffer.alloc(65_536)));
    }
    socket.on('drain', more)
    more()
  })
  await get(t, port)
  t.equal((await outcome(0)).kind, 'unusable')
  const socket = upstream.sockets[0]!
  await closed(socket)
  t.ok(socket.bytesWritten < length / 2)
})

t.test('a browser on HTTP/1.0 gets a body that ends with the connection, without chunks', async (t) => {
  const { port } = await start(
    t,
    'HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n',
  )
  const answer = await rawBrowser(t, port, ['GET /x HTTP/1.0']).answer
  t.equal(answer.raw, 'abcde')
  t.notOk('transfer-encoding' in answer.headers)
})

t.test('a response that ends with its connection is relayed whole', async (t) => {
  const { port, outcome } = await start(t, (socket) =>
    socket.end('HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\n\r\nabc'),
  )
  t.equal((await get(t, port)).raw, '3\r\nabc\r\n0\r\n\r\n')
  t.same(await outcome(0), { kind: 'finished', status: 200 })
})

t.test('the head reaches the browser before the body, and each part as soon as it arrives', async (t) => {
  const { upstream, port } = await start(
    t,
    'HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\nTransfer-Encoding: chunked\r\n\r\n',
  )
  const browser = rawBrowser(t, port, ['GET /x HTTP/1.1', 'Host: a', 'Connection: close'])
  await browser.sees('content-type: text/csv\r\n')
  const socket = upstream.sockets[0]!
  socket.write('3\r\nabc\r\n')
  await browser.sees('abc')
  socket.write('3\r\ndef\r\n0\r\n\r\n')
  t.equal((await browser.answer).raw, '3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n')
})
