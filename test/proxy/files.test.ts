import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import t, { type Test } from 'tap'
import { uploadOf } from '../../src/proxy/upload.ts'
import { cookieHeader } from '../helpers/browser.ts'
import { listenOnLoopback } from '../helpers/ports.ts'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { makeFolder } from '../helpers/watchdog.ts'
import { ask, field, OWN, portOf, problemOf, type Question } from '../http/wire.ts'

const thing = { parameters: { thingId: 'integer' } }
const OPERATIONS = {
  GetFile: { method: 'GET', path: '/{wac}/files/{fileId}', parameters: { fileId: 'id' }, formats: 'any' },
  PutFile: {
    ...{ method: 'PUT', path: '/{wac}/files/{fileId}', parameters: { fileId: 'id' } },
    body: { types: ['image/png', 'multipart/form-data'], limit: 20_000_000 },
  },
  GetThing: { method: 'GET', path: '/{wac}/things/{thingId}', ...thing },
  GetNewest: { method: 'GET', path: '/{wac}/things/newest', format: 'accept', formats: ['JSON', 'CSV'] },
  ListThings: {
    ...{ method: 'GET', path: '/{wac}/things' },
    query: { id: { list: 'integer', max: 3 }, factor: 'number' },
  },
  AddThings: {
    ...{ method: 'POST', path: '/{wac}/things' },
    body: { schema: { type: 'array', maxItems: 3, items: { type: 'object', required: ['name'] } } },
  },
}

type Answer = (request: IncomingMessage, response: ServerResponse) => void

/** The server before a resource server that answers as the test says, and a session. */
async function ready(t: Test, answer: Answer, env: Record<string, string> = {}) {
  const seen: IncomingMessage[] = []
  const upstream = createServer((incoming, response) => {
    seen.push(incoming)
    answer(incoming, response)
  })
  const base = `http://127.0.0.1:${await listenOnLoopback(t, upstream)}/api`
  const sandbox = await startSandbox(t)
  const file = join(makeFolder('operations'), 'operations.json')
  writeFileSync(file, JSON.stringify({ operations: OPERATIONS }))
  const bff = await startBff(t, sandbox, {
    ...{ BASE_URL: base, OAUTH_SCOPE: sandbox.baseUrl, OPERATIONS_FILE: file, ...env },
  })
  const browser = bff.browser()
  await signIn(browser, sandbox)
  const port = portOf(bff)
  const cookie = cookieHeader(browser)
  const send = (target: string, question: Question = {}) =>
    ask(port, { target, ...question, headers: [OWN, ['Cookie', cookie], ...(question.headers ?? [])] })
  /** What reached the resource server since the last call. */
  const arrived = () => seen.splice(0).map(({ method, url, headers }) => ({ method, url, headers }))
  return { base, sandbox, bff, port, cookie, send, arrived }
}

function reply(status: number, headers: Record<string, string>, body = 'x'): Answer {
  return (incoming, response) => {
    incoming.resume()
    response.writeHead(status, headers).end(body)
  }
}

t.test(
  'a file passes with the type that the resource server chooses, and is never active here',
  async (t) => {
    let answer: Answer = reply(200, {})
    const { send, arrived } = await ready(t, (...both) => answer(...both))
    const accept = 'image/avif,image/webp,*/*;q=0.8'
    for (const [type, disposition] of [
      ...[
        'image/png',
        'image/svg+xml',
        'audio/ogg',
        'video/mp4',
        'font/woff2',
        'application/pdf',
        'text/plain',
      ].map((type) => [type, undefined] as const),
      ...['application/json', 'application/xml', 'application/atom+xml'].map(
        (type) => [type, undefined] as const,
      ),
      ...[
        'application/octet-stream',
        'application/zip',
        'application/wasm',
        'application/x-shockwave-flash',
      ].map((type) => [type, 'attachment'] as const),
    ]) {
      const body = type.endsWith('json') ? '{"a":"<script>1</script>"}' : '<script>1</script>'
      answer = reply(200, { 'content-type': type }, body)
      const file = await send('/data/DEMO/files/a', { headers: [['Accept', accept]] })
      t.strictSame([file.status, file.body], [200, body], type)
      t.equal(field(file, 'content-type'), type)
      t.equal(field(file, 'content-disposition'), disposition, type)
      t.equal(field(file, 'x-content-type-options'), 'nosniff', 'whatever the type says of the bytes')
      t.match(field(file, 'content-security-policy'), /default-src 'none'.*sandbox/)
      const [{ url, headers } = { url: '', headers: {} }] = arrived()
      t.equal(url, '/api/DEMO/files/a', 'no format')
      t.match(headers, { accept })
      t.equal(headers['content-type'], undefined)
    }
    answer = reply(200, {
      'content-type': 'application/zip',
      'content-disposition': 'inline; filename="a b"',
    })
    t.equal(field(await send('/data/DEMO/files/a'), 'content-disposition'), 'inline; filename="a b"')
    for (const type of [
      ...[
        'text/html',
        'application/xhtml+xml',
        'text/javascript',
        'application/javascript',
        'Text/HTML; a=b',
      ],
      ...['multipart/x-mixed-replace; boundary=x', 'image/png, text/html', '', 'x'],
    ]) {
      answer = reply(200, type === '' ? {} : { 'content-type': type })
      t.match(problemOf(await send('/data/DEMO/files/a')), { code: 'upstream_unavailable' }, type)
    }
    t.match(problemOf(await send('/data/DEMO/files/a?format=PNG')), {
      code: 'invalid_request',
      detail: /format/,
    })
  },
)

t.test('fields for pages of a list pass, and a Location that a declared GET serves is ours', async (t) => {
  let headers: Record<string, string> = {}
  const answer: Answer = (...both) =>
    reply(201, { 'content-type': 'application/json', ...headers }, '{}')(...both)
  const { base, send } = await ready(t, answer, { WAC_ALLOWED: 'DEMO' })
  const ask = async (more: Record<string, string>) => {
    headers = more
    return await send('/data/DEMO/things')
  }
  const pages = '<https://a.test/x?skip=10>; rel="next", </y>; title="a, b"; rel=prev'
  const paged = await ask({ link: pages, 'x-total-count': '41' })
  t.strictSame([field(paged, 'link'), field(paged, 'x-total-count')], [pages, '41'])
  for (const link of [
    ...[
      '</x>; rel=preload; as=script',
      '</x>; rel="next preload"',
      '</x>',
      'x',
      '</x>; rel=next; rel=stylesheet',
    ],
    ...[
      '</x>; rel=next, </y>; rel=preconnect',
      '</x>; REL="DNS-Prefetch"',
      '</x>; title="; rel=next"; rel=icon',
    ],
  ])
    t.equal(field(await ask({ link }), 'link'), undefined, link)
  for (const [location, own] of [
    [`${base}/DEMO/things/7`, '/data/DEMO/things/7'],
    ['/api/DEMO/things/7', '/data/DEMO/things/7'],
    ['/api/DEMO/files/a.b', '/data/DEMO/files/a.b'],
    ['/api/DEMO/things/newest', '/data/DEMO/things/newest'],
    ['/api/DEMO/things/-7', undefined],
    ['/api/ACME/things/7', undefined],
    ['/api/DEMO/others/7', undefined],
    ['/api/DEMO/things/7?x=1', undefined],
    ['/DEMO/things/7', undefined],
    ['7', undefined],
    ['//evil.test/api/DEMO/things/7', undefined],
    ['https://evil.test/api/DEMO/things/7', undefined],
    ['javascript:alert(1)', undefined],
  ] as const)
    t.equal(field(await ask({ location }), 'location'), own, location)
})

t.test(
  'a literal wins over a parameter, and "format": "accept" names the format in Accept alone',
  async (t) => {
    const { bff, send, arrived } = await ready(t, reply(200, { 'content-type': 'application/json' }, '{}'))
    await send('/data/DEMO/things/newest?format=csv')
    await send('/data/DEMO/things/7')
    const [newest, seventh] = arrived()
    t.match(newest, { url: '/api/DEMO/things/newest', headers: { accept: 'text/csv' } })
    t.equal(newest?.headers['content-type'], undefined)
    t.match(seventh, { url: '/api/DEMO/things/7?format=JSON', headers: { accept: 'application/json' } })
    t.match(bff.log(), /"operation":"GetNewest"/)
  },
)

t.test('a list of a query is repeated, and a number may have an exponent', async (t) => {
  const { send, arrived } = await ready(t, reply(200, { 'content-type': 'application/json' }, '{}'))
  await send('/data/DEMO/things?id=1&factor=1e-7&id=-2&id=3')
  t.equal(arrived()[0]?.url, '/api/DEMO/things?format=JSON&id=1&factor=1e-7&id=-2&id=3')
  for (const [query, detail] of [
    ['id=1&id=2&id=3&id=4', /The parameter id is there more than 3 times/],
    ['id=1&id=x', /id is not valid/],
    ['id[]=1', /The parameter id\[\] is not known here: repeat id without brackets/],
    ['factor=1&factor=2', /factor is repeated/],
    ['factor=1e1234', /factor is not valid/],
    ['factor=e7', /factor is not valid/],
  ] as const)
    t.match(problemOf(await send(`/data/DEMO/things?${query}`)), { code: 'invalid_request', detail }, query)
})

t.test('an array is a body where the schema says so', async (t) => {
  const bodies: string[] = []
  const { send } = await ready(t, (incoming, response) => {
    incoming.setEncoding('utf8').on('data', (text: string) => bodies.push(text))
    incoming.on('end', () => response.writeHead(204).end())
  })
  const post = (body: string) =>
    send('/data/DEMO/things', { method: 'POST', body, headers: [['Content-Type', 'application/json']] })
  t.equal((await post('[{"name":"a","wac":"ACME"},{"name":"b"}]')).status, 204)
  t.strictSame(bodies, ['[{"name":"a","wac":"ACME"},{"name":"b"}]'])
  for (const [body, detail] of [
    ['{}', /The body must be a JSON array/],
    ['[{}]', /name is missing/],
    ['[{"name":1},{"name":2},{"name":3},{"name":4}]', /The body must NOT have more than 3 items/],
    ['[1]', /0 must be object/],
    ['[{"name":1,"name":2}]', /name is there twice/],
  ] as const)
    t.match(problemOf(await post(body)), { code: 'invalid_request', detail }, body)
})

const PNG = ['Content-Type', 'image/png'] as const

t.test('an upload is sent on as it comes, with its type and length', async (t) => {
  const received: Buffer[] = []
  const { send, arrived } = await ready(t, async (incoming, response) => {
    for await (const chunk of incoming) received.push(chunk as Buffer)
    response.writeHead(201, { 'content-type': 'application/json', location: '/api/DEMO/files/a' }).end('{}')
  })
  const put = (body: string, headers: Question['headers'] = [PNG]) =>
    send('/data/DEMO/files/a', { method: 'PUT', body, headers: headers! })
  const answer = await put('\u0000{"not":json')
  t.strictSame([answer.status, field(answer, 'location')], [201, '/data/DEMO/files/a'])
  t.equal(String(Buffer.concat(received)), '\u0000{"not":json')
  t.match(arrived(), [{ method: 'PUT', headers: { 'content-type': 'image/png', 'content-length': '12' } }])
  await put('x', [['Content-Type', 'multipart/form-data; boundary="b"']])
  t.match(arrived(), [{ headers: { 'content-type': 'multipart/form-data; boundary="b"' } }])
  t.equal((await put('')).status, 201, 'an empty one')
  arrived()
  for (const [question, status, code] of [
    [{ body: 'x', headers: [['Content-Type', 'text/html']] }, 415, 'unsupported_media_type'],
    [{ body: 'x' }, 415, 'unsupported_media_type'],
    [{ body: 'x', headers: [PNG, ['Content-Encoding', 'gzip']] }, 415, 'unsupported_media_type'],
    [{ chunked: 'x', headers: [PNG] }, 411, 'length_required'],
    [{ headers: [PNG, ['Content-Length', '20000001']] }, 413, 'payload_too_large'],
  ] as [Question, number, string][]) {
    const refused = await send('/data/DEMO/files/a', { method: 'PUT', ...question })
    t.match({ ...problemOf(refused), status: refused.status }, { status, code }, JSON.stringify(question))
  }
  t.equal(arrived().length, 0)
})

/** An upload of which the test writes the body. */
function begin(t: Test, { port, cookie }: { port: number; cookie: string }, length: number) {
  const headers = {
    cookie,
    'sec-fetch-site': 'same-origin',
    'content-type': 'image/png',
    'content-length': length,
  }
  const sending = request({ port, host: '127.0.0.1', method: 'PUT', path: '/data/DEMO/files/a', headers })
  sending.on('error', () => {})
  t.teardown(() => sending.destroy())
  const answer = new Promise<{
    status: number | undefined
    headers: IncomingMessage['headers']
    body: string
  }>((resolve) => {
    sending.on('response', async (response) => {
      let body = ''
      for await (const chunk of response.setEncoding('utf8')) body += chunk
      resolve({ status: response.statusCode, headers: response.headers, body })
    })
  })
  return { sending, answer }
}

t.test(
  'an upload whose token is refused is not repeated: the page sends it again with the new one',
  async (t) => {
    const tokens: (string | undefined)[] = []
    const system = await ready(t, async (incoming, response) => {
      const { authorization } = incoming.headers
      tokens.push(authorization)
      for await (const _ of incoming);
      const isOld = authorization === tokens[0]
      response.writeHead(isOld ? 401 : 200, { 'content-type': 'application/json' }).end('{}')
    })
    const upload = () => system.send('/data/DEMO/files/a', { method: 'PUT', body: 'x', headers: [PNG] })
    const refused = await upload()
    t.match(problemOf(refused), { code: 'token_refreshed', status: 503 })
    t.equal(field(refused, 'retry-after'), '0')
    t.equal(tokens.length, 1, 'not repeated')
    t.equal((await upload()).status, 200)
    t.equal(new Set(tokens).size, 2)
    tokens.length = 0
    t.match(problemOf(await upload()), { code: 'upstream_refused' }, 'a second refusal in a minute ends it')
  },
)

t.test('a query that names no format has the token alone, where UPSTREAM_TOKEN_IN says so', async (t) => {
  const answer = reply(200, { 'content-type': 'application/json' }, '{}')
  const { send, arrived } = await ready(t, answer, { UPSTREAM_TOKEN_IN: 'query' })
  for (const path of ['/DEMO/things/newest', '/DEMO/files/a']) {
    t.equal((await send(`/data${path}`)).status, 200, path)
    const [{ url = '', headers } = { headers: { authorization: 'none' } }] = arrived()
    t.match(url, new RegExp(`^/api${path}\\?access_token=[^&]+$`))
    t.equal(headers.authorization, undefined)
  }
})

t.test(
  'an upload that the resource server refuses early gets its answer, and the connection ends',
  async (t) => {
    // As servers do that answer early: it goes on reading for a while.
    const system = await ready(t, (incoming) => {
      const head = 'HTTP/1.1 422 No\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n'
      incoming.resume().socket.write(`${head}{"no":1}`)
    })
    const { sending, answer } = begin(t, system, 10_000_000)
    sending.write(Buffer.alloc(300_000))
    const { status, headers, body } = await answer
    t.strictSame([status, body, headers.connection], [422, '{"no":1}', 'close'])
  },
)

t.test('an upload may take longer than other requests, as long as it goes on', async (t) => {
  const system = await ready(t, async (incoming, response) => {
    for await (const _ of incoming);
    response.writeHead(204).end()
  })
  const { server } = system.bff.app.server
  const connected = once(server, 'connection')
  const { sending, answer } = begin(t, system, 600_000)
  const [socket] = (await connected) as [Socket]
  sending.write(Buffer.alloc(300_000))
  await until('the upload has begun', () => system.arrived().length === 1)
  // As Node does after `requestTimeout`.
  server.emit('clientError', Object.assign(new Error(), { code: 'ERR_HTTP_REQUEST_TIMEOUT' }), socket)
  sending.end(Buffer.alloc(300_000))
  t.equal((await answer).status, 204)
})

t.test('slow uploads of a session wait for each other, and no update waits for them', async (t) => {
  const seen: (string | undefined)[] = []
  const system = await ready(t, async (incoming, response) => {
    seen.push(incoming.method)
    for await (const _ of incoming);
    response.writeHead(204).end()
  })
  const uploads = Array.from({ length: 9 }, () => begin(t, system, 10))
  for (const { sending } of uploads) sending.write('12345')
  await until('a share of them has begun', () => seen.length === 8)
  const JSON_BODY: Question['headers'] = [['Content-Type', 'application/json']]
  const update = { method: 'POST', body: '[{"name":"a"}]', headers: JSON_BODY }
  t.equal((await system.send('/data/DEMO/things', update)).status, 204)
  t.strictSame(seen, [...Array(8).fill('PUT'), 'POST'])
  for (const { sending } of uploads) sending.end('67890')
  for (const { answer } of uploads) t.equal((await answer).status, 204)
})

t.test('an upload that stops is given up, and one that the other side keeps waiting is not', async (t) => {
  const source = new PassThrough()
  const stalled = new Promise<void>((resolve) => uploadOf(source as never, 20, resolve))
  source.write('x')
  await stalled

  const [quick, slow] = [new PassThrough({ highWaterMark: 1e6 }), new PassThrough()]
  let given = 0
  const body = uploadOf(quick as never, 20, () => {
    given += 1
  })
  // More than fits: nobody reads it.
  quick.write(Buffer.alloc(400_000))
  await new Promise<void>((resolve) => uploadOf(slow as never, 60, resolve))
  t.equal(given, 0)
  body.destroy()
  t.equal(quick.destroyed, false, 'the source stays')
})

t.test('a browser that leaves in the middle of an upload ends the call', async (t) => {
  let aborted = false
  const system = await ready(t, (incoming) => {
    incoming.resume().on('close', () => {
      aborted = !incoming.complete
    })
  })
  const { sending } = begin(t, system, 10_000_000)
  sending.write(Buffer.alloc(300_000))
  await until('the upload has begun', () => system.arrived().length === 1)
  sending.destroy()
  await until('the call upstream has ended', () => aborted)
})

t.test('an upload that cannot be sent leaves nothing behind, and the client sees why', async (t) => {
  const gone = createServer()
  const port = await listenOnLoopback(t, gone)
  gone.close()
  const system = await ready(t, () => {}, { BASE_URL: `http://127.0.0.1:${port}` })
  const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length
  const before = timers()
  const body = 'x'.repeat(1_000_000)
  const headers = [['Content-Type', 'image/png']] as const
  for (let each = 0; each < 10; each += 1) {
    const refused = await system.send('/data/DEMO/files/a', { method: 'PUT', headers, body })
    t.match(problemOf(refused), { code: 'upstream_unavailable' })
  }
  await until('the watch over each has ended', () => timers() < before + 10)
})
