import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import type { Faults } from '../../sandbox/faults.ts'
import type { JournalEntry } from '../../sandbox/journal.ts'
import { createBrowser } from '../helpers/browser.ts'
import { createCertificate } from '../helpers/certificate.ts'
import { tableRows } from '../helpers/documentation.ts'
import { startRedis } from '../helpers/redis.ts'
import { startServer } from '../helpers/server-process.ts'
import { CLIENT, platformEnv, signIn, startSandbox, untilReady } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { makeFolder } from '../helpers/watchdog.ts'
import { type ReceivedSpan, startCollector } from './collector.ts'

const API_KEY = 'key-of-the-collector'

/** Tells after the end of a process whether it has loaded OpenTelemetry's SDK, and how many contexts it has made. */
function probe(folder: string) {
  const script = join(folder, 'probe.cjs')
  const result = join(folder, 'result.json')
  // Node lists there all scripts that a process has loaded.
  const coverage = join(folder, 'coverage')
  writeFileSync(
    script,
    `const hooks = require('node:async_hooks')
    let contexts = 0
    const value = class extends hooks.AsyncLocalStorage { constructor(...all) { super(...all); contexts += 1 } }
    // Node 24 has a getter there, which an assignment does not replace.
    Object.defineProperty(hooks, 'AsyncLocalStorage', { value, enumerable: true })
    require('node:module').syncBuiltinESMExports()
    process.on('exit', () => require('node:fs').writeFileSync(${JSON.stringify(result)}, JSON.stringify({ contexts })))`,
  )
  return {
    env: { NODE_OPTIONS: `--require ${script}`, NODE_V8_COVERAGE: coverage },
    read() {
      const { contexts } = JSON.parse(readFileSync(result, 'utf8')) as { contexts: number }
      const [list = ''] = readdirSync(coverage)
      const { result: scripts } = JSON.parse(readFileSync(join(coverage, list), 'utf8')) as {
        result: { url: string }[]
      }
      const own = scripts.map(({ url }) => url).filter((url) => url.includes('/dist/'))
      if (own.length === 0) throw new Error('no script of the server was loaded')
      const sdk = own.some((url) => readFileSync(new URL(url), 'utf8').includes('BatchSpanProcessor'))
      return { sdk, contexts }
    },
  }
}

function traceparent(traceId: string, flags = '01'): { traceparent: string } {
  return { traceparent: `00-${traceId}-${'b'.repeat(16)}-${flags}` }
}

/** The spans of a trace from `span` up to the request of the browser. */
function ancestry(spans: ReceivedSpan[], span: ReceivedSpan | undefined): string[] {
  if (span === undefined) return []
  return [
    span.name,
    ...ancestry(
      spans,
      spans.find(({ spanId }) => spanId === span.parentSpanId),
    ),
  ]
}

t.test('with a collector', async (t) => {
  const folder = makeFolder('tracing')
  const certificate = await createCertificate(folder)
  const collector = await startCollector(t, certificate)
  const redis = await startRedis(t)
  const sandbox = await startSandbox(t)
  const headers = join(folder, 'headers')
  writeFileSync(headers, `x-api-key=${API_KEY}\n`)
  const watched = probe(folder)
  const server = await startServer(t, {
    ...watched.env,
    SESSION_STORE: undefined,
    REDIS_URL: redis.url,
    ...platformEnv(sandbox),
    OAUTH_REVOCATION_URL: `${sandbox.authUrl}/oauth/revoke`,
    UPSTREAM_TOKEN_IN: 'query',
    ACCESS_LOG: 'all',
    TRUST_PROXY: '127.0.0.1/32',
    OTEL_EXPORTER_OTLP_ENDPOINT: `${collector.url}/`,
    OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
    OTEL_EXPORTER_OTLP_HEADERS_FILE: headers,
    OTEL_EXPORTER_OTLP_CERTIFICATE: certificate.caFile,
    OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=test%20of%20traces',
    OTEL_BSP_SCHEDULE_DELAY: '50',
  })
  await untilReady(server)
  const browser = createBrowser(server.publicUrl)
  const cookies = new Set<string>()

  async function ended(traceId: string, name: string): Promise<ReceivedSpan[]> {
    const found = (): ReceivedSpan[] => collector.spans().filter((span) => span.traceId === traceId)
    await until(`${name} of ${traceId}`, () => found().some((span) => span.name === name))
    return found()
  }
  function last(filter: Partial<JournalEntry>): JournalEntry {
    return sandbox.journal.entries(filter).at(-1)!
  }
  /** By default a session whose access token counts as expired. */
  async function signInAgain(expiresIn: Faults['expiresIn'] = { value: 0 }): Promise<void> {
    sandbox.faults.set({ expiresIn })
    await signIn(browser, sandbox, '/page?tab=secret-of-the-page')
    sandbox.faults.set({ expiresIn: 'truth' })
    for (const { value } of browser.cookies.values()) cookies.add(value)
  }

  await t.test('one trace leads from the browser over server and Redis to both servers', async (t) => {
    await signInAgain()
    const traceId = '1'.repeat(32)
    const answer = await browser.fetch('/flux/temperature?from=secret-of-the-query', {
      headers: traceparent(traceId),
    })
    t.equal(answer.status, 200)
    const spans = await ended(traceId, 'GET /flux/:fluxId')
    const named = (name: string): ReceivedSpan | undefined => spans.find((span) => span.name === name)
    const request = named('GET /flux/:fluxId')
    t.match(request, {
      parentSpanId: 'b'.repeat(16),
      kind: 2,
      attributes: {
        'http.route': '/flux/:fluxId',
        'url.path': '/flux/temperature',
        'http.response.status_code': 200,
        'bff.request_id': answer.headers['x-request-id'],
      },
      resource: {
        'service.name': 'token-handler-bff',
        'deployment.environment.name': 'test of traces',
        'process.pid': server.pid,
      },
    })
    t.strictSame(ancestry(spans, named('POST /oauth/token')), ['POST /oauth/token', 'refresh', request?.name])
    t.strictSame(ancestry(spans, named('redis begin-refresh')), [
      'redis begin-refresh',
      'refresh',
      request?.name,
    ])
    t.strictSame(ancestry(spans, named('redis replace-tokens')).slice(1), ['refresh', request?.name])
    t.strictSame(ancestry(spans, named('GetFlux')), ['GetFlux', request?.name])
    t.match(named('refresh')?.attributes, {
      'bff.refresh.trigger': 'request',
      'bff.refresh.result': 'granted',
    })
    t.match(named('POST /oauth/token')?.attributes, { 'bff.grant_type': 'refresh_token' })
    t.ok(
      spans.some(({ name, parentSpanId }) => name.startsWith('redis ') && parentSpanId === request?.spanId),
    )

    const sentTo = (entry: JournalEntry, name: string): boolean =>
      t.equal(entry.headers.traceparent, `00-${traceId}-${named(name)?.spanId}-01`, name)
    sentTo(last({ endpoint: 'token', kind: 'refresh_token' }), 'POST /oauth/token')
    sentTo(last({ endpoint: 'resource' }), 'GetFlux')
    const line = server.logs().find(({ traceId: logged }) => logged === traceId)
    t.match(line, { event: 'request', path: '/flux/temperature' }, 'the log names the same trace')
  })

  await t.test(
    'a refused token and its forced refresh belong to one trace, on a connection of another',
    async (t) => {
      t.equal((await browser.fetch('/flux/a')).status, 200, 'its connection is kept')
      const traceId = '2'.repeat(32)
      sandbox.faults.set({ resource: { mode: 'invalid-token', times: 1 } })
      t.equal((await browser.fetch('/flux/a', { headers: traceparent(traceId) })).status, 200)
      const spans = await ended(traceId, 'GET /flux/:fluxId')
      const calls = spans.filter(({ name }) => name === 'GetFlux')
      t.match(
        calls.map(({ attributes, status }) => [attributes['error.type'], status.code]),
        [
          ['invalid_token', 2],
          [undefined, 0],
        ],
      )
      for (const span of [...calls, ...spans.filter(({ name }) => name === 'refresh')]) {
        t.strictSame(ancestry(spans, span).slice(1), ['GET /flux/:fluxId'])
      }
      t.ok(spans.some(({ name }) => name === 'POST /oauth/token'))
    },
  )

  await t.test('a browser decides by the flag of its traceparent that a trace is not exported', async (t) => {
    const traceId = '3'.repeat(32)
    t.equal((await browser.fetch('/flux/a', { headers: traceparent(traceId, '00') })).status, 200)
    t.match(last({ endpoint: 'resource' }).headers.traceparent, new RegExp(`^00-${traceId}-[0-9a-f]{16}-00$`))
    for (const malformed of ['00-xyz-01', `00-${'0'.repeat(32)}-${'b'.repeat(16)}-01`]) {
      await browser.fetch('/flux/a', { headers: { traceparent: malformed } })
      t.match(
        last({ endpoint: 'resource' }).headers.traceparent,
        /^00-(?!0{32})[0-9a-f]{32}-[0-9a-f]{16}-01$/,
      )
    }
    const own = last({ endpoint: 'resource' }).headers.traceparent as string
    await ended(own.slice(3, 35), 'GET /flux/:fluxId')
    t.notOk(collector.spans().some((span) => span.traceId === traceId))
  })

  await t.test('the 503 of a prefetch of the sign-in is no error', async (t) => {
    const traceId = '4'.repeat(32)
    const headers = { ...traceparent(traceId), 'sec-purpose': 'prefetch' }
    t.equal((await browser.navigate('/auth/login', { headers })).status, 503)
    const [span] = await ended(traceId, 'GET /auth/login')
    t.match(span, { attributes: { 'http.response.status_code': 503 }, status: { code: 0 } })
    t.notOk('error.type' in span!.attributes)
  })

  await t.test('a background refresh is a trace of its own', async (t) => {
    sandbox.faults.set({ tokenLifeSeconds: 1 })
    await signInAgain('truth')
    const isRefresh = ({ name, attributes }: ReceivedSpan): boolean =>
      name === 'refresh' && attributes['bff.refresh.trigger'] === 'schedule'
    await until('a background refresh', () => collector.spans().some(isRefresh))
    const spans = collector.spans()
    const refresh = spans.find(isRefresh)!
    t.notOk(refresh.parentSpanId)
    t.strictSame(refresh.links ?? [], [], 'the timer that began it belongs to no request')
    const inside = spans.filter(({ traceId }) => traceId === refresh.traceId)
    const request = inside.find(({ name }) => name === 'POST /oauth/token')
    t.strictSame(ancestry(inside, request), ['POST /oauth/token', 'refresh'])
    const received = sandbox.journal.entries({ endpoint: 'token' }).map((entry) => entry.headers.traceparent)
    t.ok(received.includes(`00-${refresh.traceId}-${request?.spanId}-01`))
    const servers = spans.filter(({ kind }) => kind === 2).map(({ traceId }) => traceId)
    t.notOk(servers.includes(refresh.traceId), 'it belongs to no request')
  })

  await t.test('what is left is exported at the stop, and no export holds a secret', async (t) => {
    const traceId = '5'.repeat(32)
    await browser.fetch('/auth/session', { headers: traceparent(traceId) })
    t.equal(await server.stop(), 0)
    t.ok(collector.spans().some((span) => span.traceId === traceId))
    for (const { path, headers } of collector.exports) {
      t.match({ path, key: headers['x-api-key'] }, { path: '/v1/traces', key: API_KEY })
    }
    const secrets = new Set([...cookies, CLIENT.clientSecret, API_KEY, 'secret-of-the-', 'wonderland'])
    for (const { form, query, path } of sandbox.journal.entries()) {
      for (const name of ['code', 'refresh_token', 'token', 'code_verifier']) {
        if (form?.[name] !== undefined) secrets.add(String(form[name]))
      }
      if (query.access_token !== undefined) secrets.add(String(query.access_token))
      const redirect = String(form?.redirect_uri ?? '')
      if (redirect !== '') secrets.add(redirect.slice(redirect.lastIndexOf('/') + 1))
      t.notMatch(path, /access_token/)
    }
    t.ok(secrets.size > 15, `${secrets.size} secrets were in use`)
    const exported = collector.exports.map(({ body }) => body.toString()).join('\n')
    for (const secret of secrets) {
      t.notOk(exported.includes(secret) || exported.includes(encodeURIComponent(secret)), 'not exported')
      t.notOk(server.output().includes(secret), 'not logged')
    }
    const documented = tableRows('docs/tracing.md', 'Attributes').flatMap(([names = '']) =>
      [...names.matchAll(/`([^`]+)`/g)].map(([, name]) => name),
    )
    const seen = new Set(collector.spans().flatMap(({ attributes }) => Object.keys(attributes)))
    t.strictSame([...seen].sort(), documented.sort(), 'docs/tracing.md lists the attributes')
    t.strictSame(watched.read(), { sdk: true, contexts: 1 })
  })
})

t.test('without a collector nothing of OpenTelemetry is loaded, and no context is made', async (t) => {
  const watched = probe(makeFolder('no-tracing'))
  const server = await startServer(t, {
    ...watched.env,
    OTEL_TRACES_SAMPLER: 'always_on',
    OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9',
    OTEL_SDK_DISABLED: 'true',
  })
  await createBrowser(server.publicUrl).fetch('/auth/session')
  t.equal(await server.stop(), 0)
  t.strictSame(watched.read(), { sdk: false, contexts: 0 })
})

t.test('a collector that does not answer delays nothing, and is reported once', async (t) => {
  const collector = await startCollector(t)
  collector.mode = 'hang'
  const server = await startServer(t, {
    SHUTDOWN_SECONDS: '4',
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `${collector.url}/own/path`,
    OTEL_EXPORTER_OTLP_TIMEOUT: '200',
    OTEL_BSP_SCHEDULE_DELAY: '20',
    OTEL_BSP_MAX_QUEUE_SIZE: '8',
    OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '4',
  })
  const reports = (event: string): number => server.logs().filter((line) => line.event === event).length
  const ask = async (): Promise<unknown> => (await fetch(`${server.url}/auth/session`)).json()

  await until('the report', async () => {
    await Promise.all(Array.from({ length: 20 }, ask))
    return reports('tracing.failed') >= 1 && collector.hung >= 10
  })
  const hung = collector.hung
  for (let call = 0; call < 50; call += 1) await ask()
  t.equal(collector.exports.length, 0, `each call was answered while ${hung} exports had no response`)
  t.equal(reports('tracing.failed'), 1)
  collector.mode = 'ok'
  await until('the exports', async () => {
    await Promise.all(Array.from({ length: 4 }, ask))
    // On a slow machine an export can take longer than its timeout, and then one more fails and works.
    return reports('tracing.works') >= 1
  })
  t.match(collector.exports[0], { path: '/own/path', headers: { 'content-type': 'application/x-protobuf' } })
  t.ok(
    Math.max(...collector.exports.map(({ body }) => body.length)) < 8_192,
    'no more than one batch was kept',
  )

  collector.mode = 'hang'
  await ask()
  t.equal(await server.stop(), 0)
  t.strictSame(
    server.logs().filter(({ level }) => level === undefined),
    [],
    'each line is JSON',
  )
})
