import assert from 'node:assert/strict'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { parseDoctorArguments } from '../../../operator/examine.ts'
import { declarationsOf } from '../../../operator/operation-faults.ts'
import type { Sandbox } from '../../../sandbox/sandbox.ts'
import { listenOnLoopback } from '../../helpers/ports.ts'
import { CLIENT, signIn, startBff, startSandbox } from '../../helpers/system.ts'
import { unlessHeldUp } from '../../helpers/wait.ts'
import { bothSignIns, envOf, type Live, start, startLive } from '../start-live.ts'

const ZONES = [
  { id: 1, name: 'Hall', sensor: { unit: 'kW', last: 2.5 } },
  { id: 2, name: 'Roof', sensor: null, note: 'x' },
]
const PNG = Buffer.from('89504e470d0a1a0a', 'hex')

/** A resource server in front of the sandbox's with more kinds of answers. It notes what arrives. */
async function platform(t: Test, sandbox: Sandbox, others: Record<string, Answer> = {}) {
  const arrived: string[] = []
  const answers: Record<string, Answer> = { ...ANSWERS, ...others }
  const front = createServer(async (request, response) => {
    const { method, headers, url = '' } = request
    arrived.push(`${method} ${url}`)
    const { pathname, searchParams } = new URL(url, 'http://x')
    const answer = answers[pathname.replace(/\/\d+$/, '/1')]
    if (!headers.authorization?.startsWith('Bearer ')) return response.writeHead(401).end()
    if (answer !== undefined) return answer(response, searchParams.get('format'), request)
    const { authorization, accept = '' } = headers
    const own = await fetch(sandbox.baseUrl + url, { headers: { authorization, accept } })
    const type = own.headers.get('content-type') ?? 'text/plain'
    response.writeHead(own.status, { 'content-type': type }).end(Buffer.from(await own.arrayBuffer()))
  })
  return { base: `http://127.0.0.1:${await listenOnLoopback(t, front)}`, arrived }
}

type Answer = (response: ServerResponse, format: string | null, request: IncomingMessage) => void

const json =
  (value: unknown): Answer =>
  (response) =>
    void response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(value))
const typed =
  (type: string, body: string | Buffer = 'x'): Answer =>
  (response) =>
    void response.writeHead(200, { 'content-type': type }).end(body)

const ANSWERS: Record<string, Answer> = {
  '/DEMO/zones': (response, format) =>
    format === 'CSV'
      ? typed('text/csv', 'id,name\r\n')(response, null, {} as never)
      : json(ZONES)(response, null, {} as never),
  '/DEMO/zones/1': json({
    zone: ZONES[0],
    values: [
      [1, 2.5],
      [3, null],
    ],
  }),
  '/DEMO/Point/export': typed('text/csv', 'a,b\r\n'),
  '/DEMO/FileStore/7f3a': typed('image/png', PNG),
  '/DEMO/plain': (response, format) =>
    format === null ? json({ ok: true })(response, null, {} as never) : void response.writeHead(404).end(),
  '/DEMO/page': typed('text/html', '<p>'),
  '/DEMO/moved': (response) => void response.writeHead(302, { location: '/' }).end(),
}

const found = (live: Live) => live.findings().filter(({ check }) => check === 'draft')
/** The draft as it is printed. */
const draftOf = (live: Live): string =>
  String(found(live).find(({ message }) => message.startsWith('A draft of'))?.value ?? '')

t.test('a draft of sample addresses passes the check and is served as it is', async (t) => {
  const sandbox = await startSandbox(t)
  const { base, arrived } = await platform(t, sandbox)
  const OUT = join(t.testdir({}), 'operations.json')
  const paths = [
    ...['/DEMO/zones?take=10&deep=true', '/DEMO/zones/1', '/DEMO/zones/2', '/DEMO/Point/export'],
    ...['/DEMO/FileStore/7f3a', '/DEMO/plain', '/DEMO/Infrastructure/Site/42', '/WUM', '/DEMO/User/me'],
    ...['/DEMO/page', '/DEMO/moved', '/DEMO/nothing'],
  ]
  const env = { BASE_URL: base }
  const live = await startLive(t, sandbox, { draft: paths.map((path) => base + path), out: OUT, env })
  t.equal(await bothSignIns(live), 0)

  const text = draftOf(live)
  t.equal(readFileSync(OUT, 'utf8'), `${text}\n`, 'the file has what is printed')
  t.match(live.found('draft file'), { setting: `OPERATIONS_FILE=${OUT}` })
  t.strictSame(declarationsOf(text, { ...envOf(sandbox, 1), ...env }).faults, [])
  const { operations } = JSON.parse(text) as { operations: Record<string, Record<string, unknown>> }
  t.match(operations, {
    ListZones: {
      ...{ method: 'GET', path: '/{wac}/zones', formats: ['JSON', 'CSV'] },
      query: { take: 'integer', deep: 'boolean' },
      response: {
        type: 'array',
        items: { required: ['id', 'name', 'sensor'], properties: { sensor: { type: ['object', 'null'] } } },
      },
    },
    GetZone: {
      path: '/{wac}/zones/{zoneId}',
      parameters: { zoneId: 'integer' },
      response: { properties: { values: { items: { items: { type: ['number', 'null'] } } } } },
    },
    GetExport: { path: '/{wac}/Point/export', formats: ['CSV'] },
    GetFileStore: { path: '/{wac}/FileStore/{fileStoreId}', formats: 'any' },
    GetPlain: { format: 'accept', response: { required: ['ok'] } },
    GetSite: { path: '/{wac}/Infrastructure/Site/{siteId}' },
    ListWUM: { path: '/WUM', account: 'none' },
    GetMe: { path: '/{wac}/User/me', response: { properties: { id: { type: 'string' } } } },
  })
  t.equal(Object.keys(operations).length, 8)
  for (const name of ['formats', 'format'])
    t.notOk(name in operations.GetZone!, 'what is usual is not written')
  const messages = found(live).map(({ message }) => message)
  t.match(
    messages.join('\n'),
    /GetZone: GET .*Guessed: \{zoneId\} is an integer, from 1; a response schema from 2 resp/,
  )
  for (const [path, why] of [
    ['/DEMO/page', 'text/html'],
    ['/DEMO/moved', 'redirect'],
    ['/DEMO/nothing', 'status 404'],
  ])
    t.match(messages.join('\n'), new RegExp(`${path} is left out: .*${why}`))
  t.strictSame(
    arrived.filter((line) => !line.startsWith('GET ')),
    [],
    'GET alone',
  )

  const bff = await startBff(t, sandbox, {
    BASE_URL: base,
    OPERATIONS_FILE: OUT,
    OAUTH_SCOPE: sandbox.baseUrl,
  })
  const browser = bff.browser()
  await signIn(browser, sandbox)
  for (const path of paths.slice(0, 9)) {
    const answer = await browser.fetch(`/data${path}`)
    t.equal(answer.status, 200, path)
    if (path === '/DEMO/zones/1') t.match(answer.json(), { zone: ZONES[0] })
  }
  t.match((await browser.fetch('/data/DEMO/zones?format=csv')).headers['content-type'], /csv/)
})

t.test('an address that cannot be declared is refused by name before anything is asked', async (t) => {
  const sandbox = await startSandbox(t)
  const env = { ...envOf(sandbox, 1), WAC_ALLOWED: 'DEMO', AUTH_URL: sandbox.baseUrl }
  const draft = [
    'https://other.example/DEMO/zones',
    `${sandbox.baseUrl}/oauth/authorize`,
    `${sandbox.baseUrl}/WUM`,
    `${sandbox.baseUrl}/DEMO/zones?access_token=s3cret`,
    `${sandbox.baseUrl}/DEMO/zones?skip[]=1`,
  ]
  const { ended, errors, lines } = start(t, env, { json: false, draft })
  t.equal(await ended, 2)
  t.strictSame(lines, [])
  t.match(errors, [
    /^--draft: "https:\/\/other.example\/DEMO\/zones" is not below BASE_URL/,
    /^--draft: \/DEMO\/zones: \/query\/access_token cannot be declared/,
    /^--draft: \/DEMO\/zones: \/query\/skip\[\] must have a name/,
    /^--draft: \/oauth\/authorize: .*"none" while WAC_ALLOWED/,
    /^--draft: \/oauth\/authorize: .*endpoint of the authorization server/,
    /^--draft: \/WUM: \/account must not be "none" while WAC_ALLOWED is set/,
  ])
  t.notMatch(errors.join(), 's3cret')

  const unclear = ['/42/Site', '/DEMO/Site'].map((path) => sandbox.baseUrl + path)
  for (const draft of [unclear, unclear.toReversed()]) {
    const refused = start(t, { ...envOf(sandbox, 1), WAC: '' }, { json: false, draft })
    t.equal(await refused.ended, 2)
    t.match(refused.errors, [
      /^--draft: (\S+): \/path matches requests of (?!\1)\/(?:42|DEMO)\/Site too: .* WAC_ALLOWED/,
    ])
  }
  t.strictSame(sandbox.journal.entries(), [])
})

t.test(
  'an address that hangs is left out, and a stop prints what was read until then and writes nothing',
  async (t) => {
    const sandbox = await startSandbox(t)
    let isAsked = (): void => {}
    const asked = new Promise<void>((resolve) => {
      isAsked = resolve
    })
    const { base } = await platform(t, sandbox, {
      '/DEMO/hangs': () => {},
      '/DEMO/waits': () => isAsked(),
    })
    const draft = ['/DEMO/hangs', '/DEMO/zones', '/DEMO/waits'].map((path) => base + path)
    const OUT = join(t.testdir({}), 'operations.json')
    const env = { BASE_URL: base, UPSTREAM_TIMEOUT_MS: '1000' }
    // All else must be in time.
    const live = await unlessHeldUp(200, async () => {
      const live = await startLive(t, sandbox, { draft: draft.slice(0, 2), env })
      assert.equal(await bothSignIns(live), 1)
      assert.match(draftOf(live), /ListZones/)
      return live
    })
    t.match(found(live)[0], {
      verdict: 'fault',
      value: '/DEMO/hangs',
      message: /left out: .*no response \(TimeoutError/,
    })

    const stopped = await startLive(t, sandbox, { draft: draft.slice(1), out: OUT, env: { BASE_URL: base } })
    await stopped.signIn(1)
    await asked
    stopped.stop.abort()
    t.equal(await stopped.ended, 130)
    t.match(draftOf(stopped), 'ListZones')
    t.notOk(existsSync(OUT))
  },
)

t.test(
  'a draft that cannot be written is printed all the same, and no secret of the platform is',
  async (t) => {
    const sandbox = await startSandbox(t)
    const { base } = await platform(t, sandbox, {
      '/DEMO/echo': (response, _format, { headers }) =>
        json({ [String(headers.authorization).slice(7)]: 1, '\u001b[31m\u202e': { ü: 1 } })(
          response,
          null,
          {} as never,
        ),
    })
    const OUT = join(t.testdir({}), 'none/operations.json')
    const live = await startLive(t, sandbox, {
      draft: [`${base}/DEMO/echo`],
      out: OUT,
      env: { BASE_URL: base },
    })
    t.equal(await bothSignIns(live), 1)
    t.match(live.found('draft file'), { verdict: 'fault', message: /not written \(ENOENT\)/ })
    const text = draftOf(live)
    const out = join(t.testdir({}), 'operations.json')
    const written = await startLive(t, sandbox, {
      draft: [`${base}/DEMO/echo`],
      out,
      env: { BASE_URL: base },
    })
    t.equal(await bothSignIns(written), 0)
    t.equal(readFileSync(out, 'utf8'), `${draftOf(written)}\n`)
    t.match(text, /^[\x20-\x7e\n]+$/)
    t.match(JSON.parse(text).operations.GetEcho.response.properties, {
      '\u001b[31m\u202e': { required: ['ü'] },
    })
    const tokens = sandbox.journal
      .entries()
      .flatMap(({ headers }) => /^Bearer (.+)/.exec(headers?.authorization ?? '')?.[1] ?? [])
    for (const token of tokens) t.notOk(text.includes(token))
  },
)

t.test('a draft never has the name of an operation that is built in', async (t) => {
  const sandbox = await startSandbox(t)
  const { base } = await platform(t, sandbox, {
    '/DEMO/flux': json({ items: [] }),
    '/DEMO/old/flux': typed('text/csv', 'a,b'),
  })
  const OUT = join(t.testdir({}), 'operations.json')
  const draft = ['/DEMO/flux', '/DEMO/old/flux'].map((path) => base + path)
  const live = await startLive(t, sandbox, { draft, out: OUT, env: { BASE_URL: base } })
  t.equal(await bothSignIns(live), 0)
  t.strictSame(Object.keys(JSON.parse(draftOf(live)).operations), ['GetFlux2', 'GetFlux3'])
  const text = readFileSync(OUT, 'utf8')
  t.strictSame(declarationsOf(text, { ...envOf(sandbox, 1), BASE_URL: base }).faults, [])
})

t.test('a draft that the server would refuse is a fault, and no file', async (t) => {
  const sandbox = await startSandbox(t)
  const { base } = await platform(t, sandbox, {
    // Each is replaced by the same text where it is printed.
    '/DEMO/echo': (response, _format, { headers }) =>
      json({ [String(headers.authorization).slice(7)]: 1, [CLIENT.clientSecret]: 2 })(
        response,
        null,
        {} as never,
      ),
  })
  const OUT = join(t.testdir({}), 'operations.json')
  const live = await startLive(t, sandbox, {
    draft: [`${base}/DEMO/echo`],
    out: OUT,
    env: { BASE_URL: base },
  })
  t.equal(await bothSignIns(live), 1)
  const faults = found(live).filter(({ verdict }) => verdict === 'fault')
  t.notMatch(live.lines.join(), 's3cr', 'no secret is printed, however JSON writes it')
  t.match(faults[0], { message: /^the server refuses it: \/operations\/GetEcho\/response\/.*is there twice/ })
  t.equal(live.found('draft file'), undefined)
  t.notOk(existsSync(OUT))
})

t.test('the addresses follow --draft, and --out names a new file', async (t) => {
  const read = (line: string) => parseDoctorArguments(line.split(' '))
  t.match(read('--live --draft http://a/1 http://a/2 --json --out f'), {
    ...{ kind: 'live', draft: ['http://a/1', 'http://a/2'], out: 'f', json: true },
  })
  t.match(read('--live --draft http://a/1 --draft http://a/2'), { draft: ['http://a/1', 'http://a/2'] })
  const there = join(t.testdir({ there: '' }), 'there')
  writeFileSync(there, 'kept')
  for (const [line, says] of [
    ['--draft http://a/1', /--draft belongs to --live/],
    ['--live --out f', /--out belongs to --draft/],
    ['--live http://a/1', /"http:\/\/a\/1" is no option/],
    ['--live --draft', /--draft/],
    [`--live --draft http://a/1 --out ${there}`, /is there already/],
  ] as const)
    t.match(read(line), { kind: 'wrong', message: says }, line)
  t.equal(readFileSync(there, 'utf8'), 'kept')
})
