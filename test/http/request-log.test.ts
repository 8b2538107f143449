import type { AddressInfo } from 'node:net'
import { networkInterfaces } from 'node:os'
import t from 'tap'
import { endSlowReader } from '../../src/http/connections.ts'
import { createServer } from '../../src/http/server.ts'
import { createLog } from '../../src/log.ts'
import { Secret } from '../../src/secret.ts'
import { configOf } from '../config/environment.ts'
import { collectLog, type LogLine, logLines } from '../helpers/log-lines.ts'
import { shared, signedIn } from '../helpers/shared.ts'
import { type Bff, signIn, startBff, startSandbox } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { withHooks } from './hooks-server.ts'
import { ask, OWN, portOf, speak } from './wire.ts'

const lines = (bff: Bff, event: string): LogLine[] => logLines(bff.log(), event)

/** All request lines, once that of the last request is there: it is written just after the response was sent. */
async function requestLines(bff: Bff, last: { path: string } | { reqId: string }): Promise<LogLine[]> {
  const [[name, value]] = Object.entries(last) as [[string, string]]
  await until(`a line with ${name} ${value}`, () =>
    lines(bff, 'request').some((line) => line[name] === value),
  )
  return lines(bff, 'request')
}

t.test('ACCESS_LOG=all has a line without query for each request, errors from 400 on', async (t) => {
  for (const ACCESS_LOG of ['all', 'errors']) {
    const { sandbox, bff } = await shared({ ACCESS_LOG })
    const browser = bff.browser()
    await signIn(browser, sandbox)
    await browser.fetch('/flux/a?values=3&private=query')
    await browser.fetch('/flux/%zz?private=query')
    sandbox.faults.set({ resource: { mode: 'html', times: 1 } })
    await browser.fetch('/flux/b')
    await browser.fetch('/nothing?private=query')
    const seen = await requestLines(bff, { path: '/nothing' })
    t.strictSame(
      seen.map(({ method, path, status, level }) => `${method} ${path} ${status} ${level}`),
      [
        'GET /auth/login 303 info',
        'GET /auth/callback/- 303 info',
        'GET /flux/a 200 info',
        'GET /flux/%zz 400 info',
        'GET /flux/b 502 error',
        'GET /nothing 404 info',
      ].filter((line) => ACCESS_LOG === 'all' || !/ [23]0\d /.test(line)),
    )
    for (const line of seen)
      t.match(line, { ms: Number, reqId: /./, complete: true, time: /^\d{4}-\d\d-\d\dT.*Z$/ })
    t.notMatch(bff.log(), /private|query/)
  }
})

t.test('ACCESS_LOG=writes names operation, account, target and session, and logs errors', async (t) => {
  const { bff, browser } = await signedIn({ ACCESS_LOG: 'writes' })
  const { sessionId } = (await browser.fetch('/auth/session')).json()
  const headers = { 'content-type': 'application/json' }
  const write = (method: string, path: string, body: object) =>
    browser.fetch(path, { method, headers, body: JSON.stringify(body) })
  await browser.fetch('/flux/a')
  await browser.fetch('/flux/a', { method: 'HEAD' })
  await write('PUT', '/site/42', { name: 'N' })
  await write('POST', '/site', { siteID: 43, wac: 'ACME', name: 'secret name' })
  await browser.fetch('/flux/missing')
  await write('PUT', '/site/42', { unknown: 1 })
  await browser.fetch('/auth/session', { method: 'POST' })
  await browser.fetch('/nothing')
  const seen = await requestLines(bff, { path: '/nothing' })
  t.strictSame(
    seen.map(({ method, status, operation, wac, targetId, recordKey }) =>
      [method, status, operation, wac, targetId, recordKey].filter((member) => member !== undefined),
    ),
    [
      ['PUT', 200, 'UpdateSite', 'DEMO', '42', sessionId],
      ['POST', 200, 'UpdateSite', 'ACME', '43', sessionId],
      ['GET', 404, 'GetFlux', 'DEMO', 'missing', sessionId],
      ['PUT', 400, sessionId],
      ['POST', 200, sessionId],
      ['GET', 404, sessionId],
    ],
  )
  t.notMatch(bff.log(), /secret name/)
})

t.test('ACCESS_LOG=off writes no line for requests', async (t) => {
  const bff = await startBff(t, await startSandbox(t), { ACCESS_LOG: 'off' })
  await ask(portOf(bff), { target: '/nothing' })
  await ask(portOf(bff), { target: '/auth/session' })
  // Where a response is measured, its line would be written.
  await until('both responses are measured', async () => {
    const metrics = await (await fetch(`${bff.opsUrl}/metrics`)).text()
    return metrics.match(/^bff_http_request_duration_seconds_count/gm)?.length === 2
  })
  t.strictSame(lines(bff, 'request'), [])
})

t.test('a request line has the session, and the trace that a peer of TRUST_PROXY names', async (t) => {
  const traceId = 'a'.repeat(32)
  const traceparent = `00-${traceId}-${'b'.repeat(16)}-01`
  for (const [networks, isTrusted] of [
    ['127.0.0.1', true],
    ['10.0.0.0/8', false],
    ['', false],
  ] as const) {
    const { sandbox, bff, browser } = await signedIn({ TRUST_PROXY: networks })
    const { sessionId } = (await browser.fetch('/auth/session')).json()
    t.match(sessionId, /^[0-9a-f]{12}$/)
    await browser.fetch('/flux/a', { headers: { traceparent } })
    // The router refuses it before any hook runs.
    await browser.fetch('/flux/%zz', { headers: { traceparent } })
    const malformed = { traceparent: `00-${'A'.repeat(32)}-b-01`, cookie: 'session=x' }
    await bff.browser().fetch('/flux/b', { headers: malformed })
    const logged = await requestLines(bff, { path: '/flux/b' })
    const expected = isTrusted ? traceId : undefined
    const seen = Object.fromEntries(logged.map((line) => [line.path, line]))
    t.match(seen['/flux/a'], { recordKey: sessionId, traceId: expected })
    t.match(seen['/flux/%zz'], { traceId: expected })
    t.match(seen['/flux/b'], { status: 401, recordKey: undefined, traceId: undefined })
    const forwarded = sandbox.journal.entries({ endpoint: 'resource' }).at(-1)!
    t.equal(forwarded.headers.traceparent, isTrusted ? traceparent : undefined)
  }
})

t.test('a safe X-Request-Id of a trusted proxy is used as ours, and no other', async (t) => {
  const { bff: behind } = await shared({ TRUST_PROXY: '127.0.0.1' })
  const { bff: elsewhere } = await shared({ TRUST_PROXY: '10.0.0.0/8' })
  const ours = /^[0-9a-f]{12}-[0-9a-z]+$/
  const idOf = async (bff: Bff, ...ids: string[]): Promise<string> => {
    const headers = ids.map((id) => ['X-Request-Id', id] as const)
    const answer = await ask(portOf(bff), { target: '/nothing', headers })
    return answer.headers.get('x-request-id')![0]!
  }
  const safe = ['7', 'Az09._-', 'x'.repeat(64)]
  for (const id of safe) t.equal(await idOf(behind, id), id)
  for (const id of ['', 'x'.repeat(65), 'a b', 'a/b', 'a,b', '\u00e9', '"'])
    t.match(await idOf(behind, id), ours, id)
  const last = await idOf(behind, 'a', 'b')
  t.match(last, ours, 'two of them')
  const { bff: open } = await shared()
  for (const bff of [elsewhere, open])
    t.match(await idOf(bff, 'from-a-browser'), ours, 'TRUST_PROXY does not name this peer')
  const logged = (await requestLines(behind, { reqId: last })).map(({ reqId }) => reqId)
  t.strictSame(logged.slice(0, 3), safe, 'the log has the same ids')
})

const hasIPv6 = Object.values(networkInterfaces()).some((addresses) =>
  addresses?.some(({ family }) => family === 'IPv6'),
)

t.test(
  'TRUST_PROXY covers IPv6 peers, and IPv4 peers of a port that serves both',
  { skip: hasIPv6 ? false : 'this machine has no IPv6' },
  async (t) => {
    for (const [networks, host, isTrusted] of [
      ['::1', '[::1]', true],
      ['10.0.0.0/8,::/127', '[::1]', true],
      ['2001:db8::/32', '[::1]', false],
      // A peer whose address is ::ffff:127.0.0.1.
      ['127.0.0.1', '127.0.0.1', true],
      ['::1,127.0.0.0/8', '127.0.0.1', true],
      ['10.0.0.0/8,::1', '127.0.0.1', false],
    ] as const) {
      const server = createServer(configOf({ TRUST_PROXY: networks }), createLog('silent'))
      t.teardown(() => server.close())
      server.get('/', ({ ip, id }, reply) => reply.send({ ip, id }))
      await server.listen({ host: '::', port: 0 })
      const { port } = server.server.address() as AddressInfo
      for (const client of ['203.0.113.9', '2001:db8::7']) {
        const headers = { 'x-forwarded-for': client, 'x-request-id': 'from-the-proxy' }
        const seen = await (await fetch(`http://${host}:${port}/`, { headers })).json()
        const what = `${networks} and a peer from ${host}`
        if (isTrusted) t.strictSame(seen, { ip: client, id: 'from-the-proxy' }, what)
        else t.match(seen, { ip: host === '[::1]' ? '::1' : /127\.0\.0\.1$/, id: /^[0-9a-f]{12}-\w+$/ }, what)
      }
    }
  },
)

t.test('the text of a request cannot forge a line or fill the log', async (t) => {
  const { bff, port } = await shared()
  await ask(port, { target: '/x%0a%7b%22event%22:%22forged%22%7d' })
  await ask(port, { target: '/x\x1b[31m"},{"event":"forged"' })
  await ask(port, { target: `/${'y'.repeat(7_000)}` })
  await ask(port, {
    target: '/flux/a',
    headers: [OWN, ['X-Request-Id', 'forged-id'], ['User-Agent', '{"event":"forged"}']],
  })
  await speak(port, 'GET /z\x01 HTTP/1.1\r\nHost: a\r\n\r\n')
  await ask(port, { target: '/last' })
  const seen = await requestLines(bff, { path: '/last' })
  t.strictSame(
    seen.map(({ status }) => status),
    [404, 404, 401, 404],
    'a line for each request that the parser accepts',
  )
  t.strictSame(lines(bff, 'forged'), [])
  for (const line of bff.log().split('\n')) {
    t.ok(line.length < 1_000, 'no line is long')
    t.notMatch(line, /[\x00-\x1f\x7f]/, 'no control character')
  }
})

t.test('a peer that forwards requests and is not trusted is logged once', async (t) => {
  const sandbox = await startSandbox(t)
  const headers = [['X-Forwarded-For', '203.0.113.9']] as const
  for (const of of [...headers, ['X-Forwarded-Proto', 'https'], ['Via', '1.1 nghttpx']] as const) {
    const open = await startBff(t, sandbox)
    await ask(portOf(open), { target: '/auth/session' })
    t.strictSame(lines(open, 'proxy.untrusted'), [], 'a browser')
    for (let i = 0; i < 3; i += 1) await ask(portOf(open), { target: '/auth/session', headers: [of] })
    const [warning, ...more] = lines(open, 'proxy.untrusted')
    t.match(warning, { level: 'warn', peer: '127.0.0.1', msg: /TRUST_PROXY/ }, of[0])
    t.strictSame(more, [])
    t.notMatch(JSON.stringify(warning), /203\.0\.113/)
  }

  const behind = await startBff(t, sandbox, { TRUST_PROXY: '127.0.0.0/8' })
  await ask(portOf(behind), { target: '/auth/session', headers })
  await ask(portOf(behind), { target: '/auth/session', headers: [['X-Forwarded-For', '127.0.0.1']] })
  t.strictSame(lines(behind, 'proxy.untrusted'), [], 'also where the client is on the machine of the proxy')
})

t.test('the line of a response that is cut off for a slow reader says so, whatever its status', async (t) => {
  const { server, lines, listen } = await withHooks(t, async (_request, reply) => reply)
  server.get('/large', (_request, reply) => {
    reply.hijack()
    reply.raw.writeHead(200, { 'content-type': 'text/csv' }).write('a')
    endSlowReader(reply.raw)
  })
  await t.rejects(async () => (await fetch(`${await listen()}/large`)).text())
  await until('its line', () => lines().length > 0)
  t.match(lines(), [
    {
      event: 'request',
      path: '/large',
      status: 200,
      complete: false,
      code: 'client_slow',
      reason: /too little/,
    },
  ])
})

t.test('request.log of handlers and plugins has the id of the request, and holds no secret', async (t) => {
  const { sink, text, lines } = collectLog()
  const server = createServer(configOf({}), createLog('info', sink))
  t.teardown(() => server.close())
  server.get('/auth/callback/:nonce', (request, reply) => {
    const { headers, query, raw } = request
    request.log.info('a plugin speaks')
    request.log.info({ req: request, res: reply, headers, query, raw }, `asked for ${request.url}`)
    request.log.warn({ request: { headers, body: 'code=s3cret' }, cookie: headers.cookie })
    request.log.error(new Error(`failed at ${request.url}`))
    request.log
      .child({ part: 'of a plugin' })
      .warn({ err: new Error(request.url), token: new Secret('s3cret') })
    // Fastify itself writes two lines of this, with the whole address.
    reply.send('one')
    reply.send('two')
    return reply
  })
  await server.inject({
    url: '/auth/callback/n0nce?code=s3cret&state=s3cret',
    headers: { cookie: 'session=s3cret', authorization: 'Bearer s3cret', 'x-token': 's3cret' },
  })
  t.notMatch(text(), 's3cret')
  t.notMatch(text(), 'n0nce')
  const seen = lines()
  t.ok(seen.length >= 6)
  for (const line of seen) t.match(line, { event: 'server', reqId: /./ })
  t.match(seen[0], { msg: 'a plugin speaks', level: 'info' })
  t.match(seen[1], { req: { method: 'GET', path: '/auth/callback/-' }, msg: 'asked for /auth/callback/-' })
})
