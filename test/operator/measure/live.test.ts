import assert from 'node:assert/strict'
import { createServer as createHttpServer } from 'node:http'
import { createServer } from 'node:net'
import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import type { LiveOptions } from '../../../operator/measure/live.ts'
import type { Finding } from '../../../operator/report.ts'
import type { Faults } from '../../../sandbox/faults.ts'
import { readDeclaredOperations } from '../../../sandbox/operations.ts'
import { PROFILES, READINGS } from '../../../sandbox/profiles.ts'
import type { Sandbox } from '../../../sandbox/sandbox.ts'
import { waitForOutput } from '../../helpers/child.ts'
import { freePort, listenOnLoopback } from '../../helpers/ports.ts'
import { startBuilt } from '../../helpers/server-process.ts'
import { MEASURED, TO_FIND } from '../../helpers/servers/measured.ts'
import { decide, startSandbox } from '../../helpers/system.ts'
import { unlessHeldUp, until } from '../../helpers/wait.ts'
import { bothSignIns, envOf, type Live, start, startLive } from '../start-live.ts'

const SITE = {
  name: 'Test b\u00e9nch',
  description: `Laboratory ${'x'.repeat(300)}`,
  code: 'LAB-42',
  parentInfrastructureID: 7,
}

/** What the command is told to change, and how to put it back. */
function change(t: Test) {
  return { site: 'DEMO/42', restore: `${t.testdir({ 'site.json': JSON.stringify(SITE) })}/site.json` }
}

const updatesOf = (sandbox: Sandbox) => sandbox.journal.entries({ kind: 'UpdateSite' })

t.test('the plain sandbox is measured as what it is, without a secret in the output', async (t) => {
  const sandbox = await startSandbox(t)
  const live = await startLive(t, sandbox, { flux: 'DEMO/temperature' })
  t.equal(await bothSignIns(live), 0)
  const values = Object.fromEntries(live.findings().map(({ check, value }) => [check, value]))
  t.match(values, {
    scope: sandbox.baseUrl,
    expires_in: 3600,
    refresh_token: true,
    state: 'absent',
    invalid_token: 401,
    'flux JSON': /json/,
    'flux XML': /xml/,
    'flux CSV': /csv/,
    'flux JSV': /jsv/,
    rotation: true,
    'old access token': true,
    'second sign-in': 'keeps',
  })
  for (const line of live.lines)
    t.strictSame(Object.keys(JSON.parse(line)), ['check', 'verdict', 'value', 'message', 'setting'])
  t.match(live.errors.join('\n'), /account made for tests/)
  const output = [...live.lines, ...live.errors].join('\n')
  const secrets = new Set(secretsOf(sandbox))
  t.ok(secrets.size >= 6)
  for (const secret of secrets) t.notOk(output.includes(secret))
  const presented = sandbox.journal.entries().flatMap(({ form }) => form?.refresh_token ?? [])
  t.equal(presented.length, 3, 'that of each sign-in but the last, and one that was never issued')
  t.equal(new Set(presented).size, presented.length, 'no refresh token is presented twice')
})

/** Codes, refresh tokens and access tokens that the sandbox has received. */
function secretsOf(sandbox: Sandbox): string[] {
  return sandbox.journal.entries().flatMap(({ form, headers }) => {
    const access = /^Bearer (.*)/.exec(String(headers?.authorization ?? ''))?.[1]
    return [form?.code, form?.refresh_token, access].flatMap((text) =>
      typeof text === 'string' ? [text] : [],
    )
  })
}

/** Switches that do not disturb each other, and what is then found. The profiles below have the others. */
const FINDINGS: readonly { faults: Partial<Faults>; found: Record<string, Partial<Finding>> }[] = [
  {
    faults: {
      tokenAnswer: { set: { scope: 'https://other.example', callback: 'https://other.example/x' } },
      invalidToken: 'json400',
    },
    found: {
      scope: { verdict: 'warning', setting: 'OAUTH_SCOPE=https://other.example' },
      callback: { verdict: 'warning', value: 'other.example' },
      invalid_token: { verdict: 'ok', value: 400 },
    },
  },
  {
    faults: { omitRefreshToken: true, invalidToken: 'code400' },
    found: {
      refresh_token: { verdict: 'warning', value: false },
      invalid_token: { setting: 'UPSTREAM_INVALID_TOKEN=400:/responseStatus/errorCode=TokenExpired' },
      'flux JSON': { verdict: 'warning', value: 404 },
    },
  },
]

t.test('each switch of the sandbox is found, with the setting that follows', async (t) => {
  for (const { faults, found } of FINDINGS) {
    const sandbox = await startSandbox(t, { faults })
    const live = await startLive(t, sandbox, { flux: 'DEMO/missing' })
    await bothSignIns(live)
    for (const [check, finding] of Object.entries(found)) {
      t.match(live.found(check), finding, check)
      if (finding.setting) t.match(live.errors.join('\n'), finding.setting, 'in the block at the end')
    }
  }
})

t.test('each profile of the sandbox can be told by the output', async (t) => {
  const told = new Map<string, string>()
  for (const [name, faults] of Object.entries(READINGS)) {
    const sandbox = await startSandbox(t, { faults })
    const live = await startLive(t, sandbox, { flux: 'DEMO/power', ...change(t) })
    live.input.write('yes\n')
    await bothSignIns(live)
    const grant = ['state', 'expires_in', 'rotation', 'old access token', 'second sign-in']
    told.set(name, [...grant, 'site absent member'].map((check) => live.found(check)?.value).join())
  }
  t.strictSame(Object.fromEntries(told), {
    strict: 'absent,absent,true,false,keeps,kept',
    replace: 'absent,3600,true,true,keeps,cleared',
    'one-grant': 'absent,3600,true,true,ends,kept',
    'no-rotation': 'absent,3600,false,true,keeps,kept',
    echo: 'echoed,3600,true,true,keeps,kept',
  })
})

const READ_SITE = {
  operations: {
    GetSite: {
      method: 'GET',
      path: '/{wac}/Infrastructure/Site/{siteId}',
      parameters: { siteId: 'integer' },
    },
    GetMe: { method: 'GET', path: '/{wac}/User/me' },
  },
}

t.test('a site is changed only after yes, and put back as a declared GET has shown it', async (t) => {
  const file = `${t.testdir({ 'operations.json': JSON.stringify(READ_SITE) })}/operations.json`
  const sandbox = await startSandbox(t, { operations: readDeclaredOperations(file) })
  const asked = { site: 'DEMO/42', env: { OPERATIONS_FILE: file } }

  const not = await startLive(t, sandbox, asked)
  not.input.write('no\n')
  await bothSignIns(not)
  t.match(not.found('site'), { verdict: 'warning', value: 'skipped' })
  t.match(not.found('GetMe'), { verdict: 'ok', value: /json/ })
  t.equal(updatesOf(sandbox).length, 0)

  const live = await startLive(t, sandbox, { ...asked, env: { ...asked.env, UPSTREAM_TOKEN_IN: 'query' } })
  live.input.write('yes\n')
  t.equal(await bothSignIns(live), 0)
  for (const { url } of updatesOf(sandbox)) t.match(url, /\?format=JSON&access_token=./)
  t.match(live.found('site absent member'), { value: 'kept' })
  t.match(live.found('site null'), { value: 'cleared' })
  t.match(live.found('site empty text'), { value: 'cleared' })
  t.match(live.found('site empty parent'), { value: 'unknown' })
  t.match(live.found('site restored'), { value: true, message: /PUT \/DEMO\/Infrastructure\/Site\/42/ })
  t.match(JSON.parse(String(updatesOf(sandbox).at(-1)?.body)), {
    name: 'Test bench',
    description: 'Laboratory',
    code: 'LAB-42',
  })
})

/** A resource server in front of the sandbox's that knows no `format` in a query, as Django REST framework. */
async function withoutFormat(t: Test, sandbox: Sandbox): Promise<string> {
  const others: Record<string, [type: string, body: string]> = {
    '/DEMO/rows': ['text/csv', 'a,b'],
    '/DEMO/picture': ['image/png', 'PNG'],
  }
  const front = createHttpServer(async (request, response) => {
    const { url = '', headers } = request
    const { pathname, searchParams } = new URL(url, 'http://x')
    if (searchParams.has('format')) return response.writeHead(404).end()
    const { authorization = '', accept = '' } = headers
    const [type, body] = others[pathname] ?? []
    if (type !== undefined && !authorization.includes('doctor-')) {
      const takes = accept === '*/*' || accept === type
      return response.writeHead(takes ? 200 : 406, { 'content-type': type }).end(body)
    }
    const own = await fetch(sandbox.baseUrl + url, { headers: { authorization, accept } })
    const ownType = own.headers.get('content-type') ?? 'text/plain'
    response.writeHead(own.status, { 'content-type': ownType }).end(Buffer.from(await own.arrayBuffer()))
  })
  return `http://127.0.0.1:${await listenOnLoopback(t, front)}`
}

t.test(
  'each declared GET is read as the server reads it: in its format, and named where it says',
  async (t) => {
    const get = { method: 'GET', format: 'accept' }
    const operations = {
      GetMe: { ...get, path: '/{wac}/User/me' },
      ListRows: { ...get, path: '/{wac}/rows', formats: ['CSV'] },
      GetPicture: { method: 'GET', path: '/{wac}/picture', formats: 'any' },
      GetSite: { ...READ_SITE.operations.GetSite, ...get },
      GetOther: { method: 'GET', path: '/{wac}/User/me2' },
    }
    const file = `${t.testdir({ 'operations.json': JSON.stringify({ operations }) })}/operations.json`
    const sandbox = await startSandbox(t, { operations: readDeclaredOperations(file) })
    const BASE_URL = await withoutFormat(t, sandbox)
    const env = { OPERATIONS_FILE: file, BASE_URL, OAUTH_SCOPE: sandbox.baseUrl }
    const live = await startLive(t, sandbox, { env, site: 'DEMO/42' })
    t.equal(await bothSignIns(live), 0)
    t.match(live.found('invalid_token'), { verdict: 'ok', value: 401 }, 'GetMe is the probe')
    t.match(live.found('GetMe'), { verdict: 'ok', value: /json/ })
    t.match(live.found('ListRows'), { verdict: 'ok', value: 'text/csv' })
    t.match(live.found('GetPicture'), { verdict: 'ok', value: 'image/png' })
    t.match(live.found('GetOther'), { verdict: 'warning', value: 404 }, 'declared for the query')
    t.match(live.found('site'), { value: 'skipped' }, 'GetSite has shown what the site holds')
  },
)

t.test('a site whose first update is refused has not changed, so nothing is put back', async (t) => {
  const sandbox = await startSandbox(t)
  for (const [status, restored] of [
    [403, 0],
    [503, 1],
  ] as const) {
    sandbox.faults.set({ resource: { mode: 'status', status, only: 'UpdateSite' } })
    const live = await startLive(t, sandbox, change(t))
    live.input.write('yes\n')
    t.equal(await bothSignIns(live), 1)
    t.match(live.found('site'), { verdict: 'fault', message: String(status) })
    t.equal(live.findings().filter(({ check }) => check === 'site restored').length, restored)
  }
})

t.test('a stop in the middle of the updates still puts the site back', async (t) => {
  const sandbox = await startSandbox(t)
  const live = await startLive(t, sandbox, change(t))
  live.input.write('yes\n')
  sandbox.faults.set({ resource: { mode: 'slow', ms: 50, only: 'UpdateSite' } })
  await live.signIn(1)
  await sandbox.journal.until({ kind: 'UpdateSite' })
  live.stop.abort()
  t.equal(await live.ended, 130)
  t.match(JSON.parse(String(updatesOf(sandbox).at(-1)?.body)), SITE)
  const restored = live.found('site restored')
  t.equal(restored?.value, true)
  const printed = /PUT \S+ (\{.*\})$/.exec(String(restored?.message))?.[1] ?? '{}'
  t.match(JSON.parse(printed), SITE, 'the update is printed so that it can be sent')
  await t.rejects(fetch(live.publicUrl), 'nothing listens any more')
})

t.test('only the sign-in begun at the printed address counts; all else gets 503', async (t) => {
  const sandbox = await startSandbox(t)
  const live = await startLive(t, sandbox)
  const address = await live.address(1)
  const auth = ['login', 'session', 'live/x', 'callback/x?code=y'].map((path) => `/auth/${path}`)
  for (const path of ['/', '/flux/temperature', ...auth])
    t.equal((await fetch(`${live.publicUrl}${path}`)).status, 503, path)
  t.equal((await fetch(address, { method: 'POST' })).status, 503)
  const start = await live.browser.navigate(address.slice(live.publicUrl.length))
  t.equal((await fetch(address, { redirect: 'manual' })).status, 503, 'another browser cannot open it too')
  t.equal((await live.browser.navigate(address.slice(live.publicUrl.length))).status, 303, 'a reload')
  const back = await decide(sandbox, String(start.headers.location))
  t.equal((await fetch(back)).status, 503, 'another browser cannot bring the code')
  const done = await live.browser.navigate(back, { from: 'cross-site' })
  t.equal(done.status, 200)
  await live.address(2)
  t.equal((await fetch(address, { redirect: 'manual' })).status, 503, 'the address is used up')
  t.equal((await live.browser.navigate(back, { from: 'cross-site' })).status, 503, 'as is the callback')
})

t.test('where PUBLIC_URL leads elsewhere, the operator pastes the callback', async (t) => {
  const sandbox = await startSandbox(t)
  sandbox.faults.set({ exactRedirect: false })
  const live = await startLive(t, sandbox, { env: { PUBLIC_URL: 'http://localhost:9' } })
  const first = await decide(sandbox, await live.address(1))
  live.input.write(`https://other.example/?code=x\n${first}\n`)
  live.input.end(`${await decide(sandbox, await live.address(2))}\n`)
  t.equal(await live.ended, 0)
  t.match(live.found('second sign-in'), { value: 'keeps' })
  t.match(live.errors.join('\n'), /does not lead to this process/)
})

t.test('a token endpoint that fails says nothing about the grant of the first device', async (t) => {
  const sandbox = await startSandbox(t)
  const live = await startLive(t, sandbox)
  live.input.write('yes\n')
  await live.signIn(1)
  await live.address(2)
  sandbox.faults.set({ tokenEndpoint: { mode: 'status', status: 500, only: 'refresh_token' } })
  await live.signIn(2)
  await live.ended
  for (const check of ['second sign-in', 'refresh token reuse'])
    t.match(live.found(check), {
      verdict: 'warning',
      value: 'not measured',
      message: /failed meanwhile \(.*500/,
    })
})

t.test('no refresh token is presented twice, also where a refresh brings no tokens', async (t) => {
  for (const [resource, value] of [
    [{ mode: 'ok' }, 'keeps'],
    [{ mode: 'invalid-token' }, 'not measured'],
  ] as const) {
    const sandbox = await startSandbox(t)
    sandbox.faults.set({
      tokenEndpoint: { mode: 'refuse', error: 'invalid_request', only: 'refresh_token' },
    })
    const live = await startLive(t, sandbox)
    await live.signIn(1)
    await live.address(2)
    sandbox.faults.set({ resource })
    await live.signIn(2)
    t.equal(await live.ended, 1)
    t.match(live.found('rotation'), { verdict: 'fault' })
    t.match(live.found('second sign-in'), { value }, 'the second sign-in is not blamed')
    const presented = sandbox.journal
      .entries({ endpoint: 'token', kind: 'refresh_token' })
      .flatMap(({ form }) => form?.refresh_token ?? [])
    t.equal(new Set(presented).size, presented.length)
  }
})

t.test('a server that needs a nonce is named with the setting', async (t) => {
  const { sandbox, env } = await atServer(t, 'canaille')
  const live = await startLive(t, sandbox, { env: { ...env, OAUTH_AUTHORIZE_PARAMS: '' } })
  await live.signIn(1)
  t.equal(await live.ended, 1)
  t.match(live.findings().at(-1), {
    check: 'sign-in',
    message: /invalid_request, "Missing 'nonce' in request.": it needs a nonce/,
    setting: 'OAUTH_AUTHORIZE_PARAMS=nonce={random}',
  })
})

t.test('a refused sign-in is a fault with its reason', async (t) => {
  const sandbox = await startSandbox(t)
  const live = await startLive(t, sandbox)
  const start = await live.browser.navigate((await live.address(1)).slice(live.publicUrl.length))
  await live.browser.navigate(await decide(sandbox, String(start.headers.location), 'refuse'), {
    from: 'cross-site',
  })
  t.equal(await live.ended, 1)
  t.match(live.findings().at(-1), { check: 'sign-in', verdict: 'fault', message: /access_denied/ })
  t.notMatch(live.errors.join(), 'No setting', 'nothing was measured')
})

t.test('the tokens are revoked at the end, or the report says until when they live', async (t) => {
  const sandbox = await startSandbox(t)
  const kept = await startLive(t, sandbox)
  await bothSignIns(kept)
  t.match(kept.found('tokens'), { value: /^\d{4}-/, message: /OAUTH_REVOCATION_URL/ })
  const live = await startLive(t, sandbox, {
    env: { OAUTH_REVOCATION_URL: `${sandbox.authUrl}/oauth/revoke` },
  })
  await bothSignIns(live)
  t.match(live.found('tokens'), {
    value: 'revoked',
    message: /^the authorization server has revoked .* a resource server that caches/,
  })
  t.ok(sandbox.journal.entries().filter(({ endpoint }) => endpoint === 'revoke').length >= 4)
})

t.test('a taken port and faults of the environment or of a file are exit code 2', async (t) => {
  const sandbox = await startSandbox(t)
  const base = envOf(sandbox, await freePort())
  const restore = `${t.testdir({ 'site.json': '{"name":"x"}' })}/site.json`
  const taken = await listenOnLoopback(t, createServer())
  const cases: [env: Record<string, string>, says: RegExp | string, options?: Partial<LiveOptions>][] = [
    [{ ...base, PORT: String(taken) }, /in use by another process/],
    [{ ...base, CLIENT_SECRET: '' }, 'CLIENT_SECRET'],
    [{}, /npm does not read \.env: .*dist\/doctor\.js/],
    [base, '--restore', { site: 'DEMO/1', restore }],
    [base, /--site: .* --restore FILE.*OPERATIONS_FILE/, { site: 'DEMO/1' }],
    [
      { ...base, WAC_ALLOWED: 'DEMO' },
      /--flux: .* OTHER .*WAC_ALLOWED.*--site: /,
      { flux: 'OTHER/a', site: 'OTHER/1' },
    ],
  ]
  for (const [env, says, options] of cases) {
    const { ended, lines } = start(t, env, options)
    t.equal(await ended, 2)
    const found = lines.map((line) => JSON.parse(line) as Finding)
    t.match(found.map(({ message }) => message).join(), says)
    t.ok(found.every(({ check, verdict }) => check === 'configuration' && verdict === 'fault'))
  }
})

t.test('Ctrl-C ends the command with code 130 and leaves nothing behind', async (t) => {
  const sandbox = await startSandbox(t)
  const env = envOf(sandbox, await freePort())
  const child = startBuilt(t, 'doctor.js', env, ['--live'])
  await waitForOutput(child, (output) => /http:\S+\/auth\/live\/\S+\n/.exec(output))
  child.send('SIGINT')
  t.equal((await child.ended).code, 130)
  await t.rejects(fetch(env.PUBLIC_URL))
})

t.test('every measured server has its findings', async (t) => {
  t.strictSame(Object.keys(MEASURED).sort(), Object.keys(PROFILES).sort())
})

for (const [name, { settings, ...expected }] of Object.entries(MEASURED))
  t.test(`${name} is measured as what it is, and the settings that it needs are printed`, async (t) => {
    const { sandbox, env } = await atServer(t, name)
    const live = await startLive(t, sandbox, { flux: 'DEMO/power', env })
    await bothSignIns(live)
    for (const [check, found] of Object.entries(expected))
      t.match(live.found(check), typeof found === 'object' ? found : { value: found }, check)
    const found = live.findings().flatMap(({ setting }) => setting ?? [])
    t.strictSame(found.sort(), settings.sort(), JSON.stringify(live.findings()))
  })

/** A sandbox with this profile, and the variables that it advises but for those that the measurement finds. */
async function atServer(t: Test, name: string, faults: Partial<Faults> = {}, now = Date.now) {
  const profile = PROFILES[name]!
  // The port of PUBLIC_URL is not known yet.
  const sandbox = await startSandbox(t, { profile, faults: { exactRedirect: false, ...faults }, now })
  const env = Object.fromEntries(
    Object.entries(sandbox.env).filter(([variable]) => !TO_FIND.includes(variable)),
  )
  return { sandbox, env }
}

t.test(
  'a resource server that refuses the first fresh token is one fault, and nothing is concluded from it',
  async (t) => {
    const { sandbox, env } = await atServer(t, 'keycloak', {
      resource: {
        mode: 'status',
        status: 403,
        headers: { 'www-authenticate': 'Bearer error="insufficient_scope"' },
        body: '',
      },
    })
    const file = `${t.testdir({ 'operations.json': JSON.stringify(READ_SITE) })}/operations.json`
    const live = await startLive(t, sandbox, {
      ...{ flux: 'DEMO/power', site: 'DEMO/1' },
      env: { ...env, OPERATIONS_FILE: file },
    })
    t.equal(await bothSignIns(live), 1)
    const faults = live.findings().filter(({ verdict }) => verdict === 'fault')
    t.match(faults, [{ check: 'resource server', value: 403, message: /insufficient_scope.*OAUTH_SCOPE/ }])
    for (const check of ['invalid_token', 'flux', 'GetMe', 'site', 'old access token'])
      t.match(live.found(check), { value: 'not measured' }, check)
    t.match(live.found('second sign-in'), { value: 'keeps' }, 'the refresh token says so')
    t.notMatch(live.errors.join('\n'), /No setting needs to change/)
  },
)

/** A response of a resource server. */
interface Reply {
  status: number
  body?: string
  headers?: Record<string, string>
}

/** The address of a resource server of its own. `isMadeUp`: the token was never issued. */
async function resourceServer(
  t: Test,
  answer: (call: { isMadeUp: boolean; method: string; body: string }) => Reply,
): Promise<string> {
  const server = createHttpServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += String(chunk)
    const isMadeUp = String(request.headers.authorization).includes('doctor-')
    const reply = answer({ isMadeUp, method: String(request.method), body })
    response.writeHead(reply.status, { 'content-type': 'application/json', ...reply.headers })
    response.end(reply.body ?? '')
  })
  return `http://127.0.0.1:${await listenOnLoopback(t, server)}`
}

/** Runs against a resource server that gives these answers. */
async function atResource(t: Test, good: Reply, bad: Reply, options: Partial<LiveOptions> = {}) {
  const sandbox = await startSandbox(t)
  const BASE_URL = await resourceServer(t, ({ isMadeUp }) => (isMadeUp ? bad : good))
  const live = await startLive(t, sandbox, { ...options, env: { BASE_URL, OAUTH_SCOPE: sandbox.baseUrl } })
  const code = await bothSignIns(live)
  return { code, live, faults: live.findings().filter(({ verdict }) => verdict === 'fault') }
}

const FLUX = { flux: 'DEMO/power' }

t.test('a good token that is answered as a bad one is one fault, and no setting follows', async (t) => {
  const challenge = { 'www-authenticate': 'Bearer error="insufficient_scope"' }
  const cases: [both: Reply, options: Partial<LiveOptions>, says: RegExp][] = [
    [{ status: 403, headers: challenge }, {}, /insufficient_scope.*OAUTH_SCOPE/],
    [{ status: 403, body: '{"error":"insufficient_scope"}' }, {}, /OAUTH_SCOPE/],
    [{ status: 403, body: '{"error":"forbidden"}' }, {}, /refuses.*BASE_URL/],
    [{ status: 403 }, {}, /refuses/],
    [{ status: 403, body: '{"error":"forbidden"}' }, FLUX, /refuses/],
    [{ status: 400, body: '{"code":7}' }, {}, /refuses/],
    [{ status: 429, body: '{"error":"slow"}' }, FLUX, /fails for the token.*Run this again/],
    [{ status: 500 }, FLUX, /fails/],
    [{ status: 500 }, {}, /fails/],
  ]
  for (const [both, options, message] of cases) {
    const { code, live, faults } = await atResource(t, both, both, options)
    const what = JSON.stringify(both)
    t.equal(code, 1, what)
    t.match(faults, [{ check: 'resource server', value: both.status, message }], what)
    t.equal(faults.length, 1, what)
    for (const check of ['invalid_token', 'old access token'])
      t.match(live.found(check), { value: 'not measured', setting: null }, what)
    t.notMatch(live.errors.join('\n'), /UPSTREAM_INVALID_TOKEN/, what)
  }
})

t.test('words that differ in each response do not make it another one', async (t) => {
  let count = 0
  const numbered: Reply = {
    status: 403,
    get body() {
      count += 1
      return `{"message":"Forbidden","at":"2026-01-01T00:00:0${count}Z","request":"a1b-${count}"}`
    },
  }
  const { code, faults } = await atResource(t, numbered, numbered)
  t.equal(code, 1)
  t.match(faults, [{ check: 'resource server', value: 403 }])
})

t.test(
  'a resource server that knows no such flux is no fault, and shows nothing about a bad token',
  async (t) => {
    const { code, live, faults } = await atResource(t, { status: 404 }, { status: 404 })
    t.equal(code, 0)
    t.strictSame(faults, [])
    t.match(live.found('invalid_token'), {
      verdict: 'warning',
      value: 'not measured',
      message: /Give --flux/,
    })
    t.match(live.found('old access token'), { value: 'unknown' })

    const other = await atResource(t, { status: 404 }, { status: 401 })
    t.equal(other.code, 0)
    t.match(other.live.found('invalid_token'), { verdict: 'ok', value: 401 })
    t.match(other.live.found('old access token'), { value: true })
  },
)

t.test('an answer that a good token gets too is no shape of a bad one', async (t) => {
  const { code, live } = await atResource(
    t,
    { status: 400, body: '{"error":"token_problem","code":7}' },
    { status: 400, body: '{"error":"token_problem","code":8}' },
  )
  t.equal(code, 0)
  t.match(live.found('invalid_token'), { setting: 'UPSTREAM_INVALID_TOKEN=400:/code=8' })
})

t.test('a failure or a rate limit of the resource server shows nothing about a token', async (t) => {
  const limited = await atResource(t, { status: 200, body: '{}' }, { status: 429 })
  t.match(limited.live.found('invalid_token'), { value: 'not measured', message: /limits the rate/ })

  const guessed = await atResource(t, { status: 500 }, { status: 401 })
  t.equal(guessed.code, 0, 'nobody may have made the flux')
  t.match(guessed.live.found('old access token'), { value: 'unknown' })

  const named = await atResource(t, { status: 500 }, { status: 401 }, FLUX)
  t.equal(named.code, 1)
  t.match(named.faults, [{ check: 'resource server', value: 500 }])
})

t.test('where a token that was never issued is taken, no token is said to still work', async (t) => {
  const both = { status: 200, body: '{}' }
  const { code, live } = await atResource(t, both, both)
  t.equal(code, 1)
  t.match(live.found('invalid_token'), { verdict: 'fault', message: /BASE_URL/ })
  t.match(live.found('old access token'), { verdict: 'warning', value: 'unknown' })
  t.match(live.found('second sign-in'), { value: 'keeps', message: /access token does was not seen/ })
})

t.test('a scope that the resource server has just refused is not advised', async (t) => {
  const sandbox = await startSandbox(t)
  sandbox.faults.set({ tokenAnswer: { set: { scope: 'read' } } })
  for (const [error, setting] of [
    ['insufficient_scope', null],
    ['nope', 'OAUTH_SCOPE=read'],
  ] as const) {
    const BASE_URL = await resourceServer(t, () => ({ status: 403, body: `{"error":"${error}"}` }))
    const live = await startLive(t, sandbox, { env: { BASE_URL, OAUTH_SCOPE: sandbox.baseUrl } })
    t.equal(await bothSignIns(live), 1)
    t.match(live.found('scope'), { verdict: 'warning', value: 'read', setting })
  }
})

t.test('a second sign-in that ends the access token from before alone is told', async (t) => {
  for (const [invalidToken, verdict, message] of [
    ['standard', 'ok', /at its next call$/],
    ['code400', 'warning', /its calls fail until then.*not recognised/],
  ] as const) {
    const sandbox = await startSandbox(t, { faults: { invalidToken } })
    const live = await startLive(t, sandbox, FLUX)
    live.input.end()
    await live.signIn(1)
    await live.address(2)
    sandbox.expireAccessTokens()
    await live.signIn(2)
    t.equal(await live.ended, 0)
    t.match(live.found('second sign-in'), { verdict, value: 'ends access', message })
  }
})

t.test('an access token whose time is over is not said to be ended by a second sign-in', async (t) => {
  for (const [oneGrantPerUser, value] of [
    [false, 'keeps'],
    ['refresh-token', 'ends refresh'],
  ] as const) {
    const sandbox = await startSandbox(t, { faults: { tokenLifeSeconds: 2, oneGrantPerUser } })
    const live = await startLive(t, sandbox)
    live.input.end()
    await live.signIn(1)
    await live.address(2)
    await new Promise((resolve) => setTimeout(resolve, 2_100))
    await live.signIn(2)
    await live.ended
    t.match(live.found('second sign-in'), { value, message: /whether the access token does was not seen/ })
  }
})

t.test('an answer that a good refresh token gets too is no shape of a dead grant', async (t) => {
  for (const faults of [
    { tokenEndpoint: { mode: 'refuse', error: 'invalid_request', only: 'refresh_token' } },
    {
      omitRefreshToken: true,
      tokenEndpoint: { mode: 'refuse', error: 'unsupported_grant_type', only: 'refresh_token' },
    },
    { tokenEndpoint: { mode: 'status', status: 429, only: 'refresh_token' } },
  ] as const) {
    const sandbox = await startSandbox(t, { faults })
    const live = await startLive(t, sandbox)
    await bothSignIns(live)
    t.match(live.found('refused grant'), { value: 'not measured', setting: null }, JSON.stringify(faults))
    t.equal(live.found('wrong secret'), undefined)
    t.notMatch(live.errors.join('\n'), /OAUTH_REFUSED_GRANT/)
  }
})

t.test('a wrong secret is not compared by a grant that the reuse may have ended', async (t) => {
  const { sandbox, env } = await atServer(t, 'glewlwyd', { omitRefreshToken: false, refreshReuse: 'revoke' })
  const live = await startLive(t, sandbox, { env, reuseDelays: [0] })
  live.input.write('yes\n')
  await bothSignIns(live)
  t.match(live.found('refresh token reuse'), { value: 'refused' })
  t.match(live.found('wrong secret'), { value: 'not measured', message: /with the reuse/ })
})

t.test('an update whose response shows nothing is not said to clear or to refuse a member', async (t) => {
  const sandbox = await startSandbox(t)
  const run = async (answer: (body: string, count: number) => Reply) => {
    let count = 0
    const BASE_URL = await resourceServer(t, ({ isMadeUp, method, body }) => {
      if (method === 'PUT') count += 1
      return isMadeUp ? { status: 401 } : method === 'PUT' ? answer(body, count) : { status: 200, body: '{}' }
    })
    const live = await startLive(t, sandbox, {
      ...change(t),
      env: { BASE_URL, OAUTH_SCOPE: sandbox.baseUrl },
    })
    live.input.write('yes\n')
    await bothSignIns(live)
    return live
  }
  const mute = await run(() => ({ status: 200, body: '{}' }))
  for (const check of ['site absent member', 'site null', 'site empty text', 'site empty parent'])
    t.match(mute.found(check), { value: 'not measured', message: /does not show its/ }, check)

  // The first update, and two of each question.
  for (const [status, value] of [
    [503, 'not measured'],
    [429, 'not measured'],
    [401, 'not measured'],
    [422, 'refused'],
  ] as const) {
    const live = await run((body, count) => (count === 3 ? { status } : { status: 200, body }))
    t.match(live.found('site absent member'), { value }, String(status))
    t.match(live.found('site restored'), { value: true })
  }
})

t.test('a refresh that brings no refresh token is followed by one with the same', async (t) => {
  for (const [omitRefreshToken, verdict, value] of [
    ['last-use', 'fault', 'last use'],
    ['at-refresh', 'ok', false],
  ] as const) {
    const { sandbox, env } = await atServer(t, 'authlib', { omitRefreshToken })
    const live = await startLive(t, sandbox, { env })
    await bothSignIns(live)
    t.match(live.found('rotation'), { verdict, value })
  }
})

t.test(
  'how long a used refresh token is granted again is measured after yes, with the value to set',
  async (t) => {
    for (const [faults, set, finding] of [
      [{ refreshReuse: 'refuse' }, '0', { verdict: 'ok', value: 'refused', setting: null }],
      [
        { refreshReuse: 'refuse' },
        '60',
        { verdict: 'warning', setting: 'OAUTH_REUSE_SECONDS=0', message: /=60 sessions may end/ },
      ],
      [{ refreshReuse: 'allow' }, '0', { verdict: 'ok', value: 1, setting: 'OAUTH_REUSE_SECONDS=1' }],
      [{ refreshReuse: 'allow' }, '60', { verdict: 'ok', value: 1, setting: null }],
      [{ sameRefreshToken: true }, '0', { value: 3_600, setting: 'OAUTH_REUSE_SECONDS=3600' }],
      [{ sameRefreshToken: true }, '3600', { value: 3_600, setting: null }],
    ] as const) {
      const { sandbox, env } = await atServer(t, 'django-oauth-toolkit-3', faults)
      const live = await startLive(t, sandbox, {
        ...{ env: { ...env, OAUTH_REUSE_SECONDS: set }, reuseDelays: [0, 1] },
      })
      live.input.write('yes\n')
      await bothSignIns(live)
      t.match(live.found('refresh token reuse'), finding, `${JSON.stringify(faults)} ${set}`)
    }
  },
)

/** Signs in twice. Resolves when the run asks whether a used refresh token may be presented again. */
async function untilAsked(live: Live): Promise<void> {
  await live.signIn(1)
  await live.signIn(2)
  await until('the question', () => live.errors.some((line) => line.startsWith('May a used refresh token')))
}

t.test(
  'a used refresh token is one that was used after yes, and whose successor nobody has touched',
  async (t) => {
    for (const [name, set] of [
      ['dex', '30'],
      ['django-oauth-toolkit-3', '60'],
      ['hydra', '180'],
      ['doorkeeper', '3600'],
    ] as const) {
      let lateMs = 0
      const faults = PROFILES[name]!.kept?.faults
      const { sandbox, env } = await atServer(t, name, faults, () => Date.now() + lateMs)
      const live = await startLive(t, sandbox, {
        ...{ flux: 'DEMO/power', reuseDelays: [0, 1] },
        env: { ...env, OAUTH_REUSE_SECONDS: set },
      })
      await untilAsked(live)
      lateMs = 300_000
      live.input.end('yes\n')
      await live.ended
      const found = live.found('refresh token reuse')
      t.match(
        found,
        { verdict: 'ok', setting: null, message: /granted again for at least \d+ seconds$/ },
        name,
      )
      t.ok(Number(found?.value) >= 1, 'seconds that have passed')
    }
  },
)

t.test('seconds of reuse are counted from the answer to the first use, not planned', async (t) => {
  const { sandbox, env } = await atServer(t, 'dex', { refreshGraceSeconds: 30 })
  const live = await startLive(t, sandbox, { env, reuseDelays: [0, 0] })
  await untilAsked(live)
  sandbox.faults.set({ tokenEndpoint: { mode: 'slow', ms: 1_100, only: 'refresh_token' } })
  live.input.end('yes\n')
  await live.ended
  t.ok(Number(live.found('refresh token reuse')?.value) >= 1)
})

t.test(
  'a used refresh token that is granted once more, and then refused, is not called refused',
  async (t) => {
    for (const [set, finding] of [
      ['0', { verdict: 'ok', setting: null }],
      ['60', { verdict: 'warning', setting: 'OAUTH_REUSE_SECONDS=0' }],
    ] as const) {
      let [refreshes, lateMs] = [() => 0, Number.POSITIVE_INFINITY]
      // The answer to the use, the first presentation, and then it is late.
      const now = () => Date.now() + (refreshes() >= lateMs ? 60_000 : 0)
      const { sandbox, env } = await atServer(t, 'dex', { refreshGraceSeconds: 30 }, now)
      refreshes = () => sandbox.journal.entries({ endpoint: 'token', kind: 'refresh_token' }).length
      const live = await startLive(t, sandbox, {
        ...{ env: { ...env, OAUTH_REUSE_SECONDS: set }, reuseDelays: [0, 1] },
      })
      await untilAsked(live)
      lateMs = refreshes() + 3
      live.input.end('yes\n')
      await live.ended
      t.match(live.found('refresh token reuse'), {
        ...finding,
        value: 0,
        message: /granted again at once, and refused \d+ seconds after its use: the server counts/,
      })
    }
  },
)

t.test('a refresh token that stays as it is ends the session, which is said', async (t) => {
  for (const name of ['oidc-provider', 'lemonldap-ng']) {
    const { sandbox, env } = await atServer(t, name)
    const live = await startLive(t, sandbox, { env })
    await bothSignIns(live)
    t.match(live.found('rotation'), { value: false, message: /ends with it, whatever SESSION_MAX_SECONDS/ })
  }
})

t.test('without a refresh token it is never said that no setting needs to change', async (t) => {
  const { sandbox, env } = await atServer(t, 'oidc-provider')
  const live = await startLive(t, sandbox, { env: { ...env, OAUTH_AUTHORIZE_PARAMS: '' } })
  await bothSignIns(live)
  t.match(live.found('refresh_token'), {
    verdict: 'warning',
    setting: 'OAUTH_AUTHORIZE_PARAMS=prompt=consent',
  })
  t.notMatch(live.errors.join('\n'), /No setting needs to change|OAUTH_SCOPE=/)
})

t.test('advice about the scope never costs the refresh token', async (t) => {
  const { sandbox, env } = await atServer(t, 'oidc-provider')
  for (const [more, scope, setting, words] of [
    [
      {},
      'openid',
      'OAUTH_SCOPE=openid offline_access',
      /without offline_access.*OAUTH_AUTHORIZE_PARAMS=prompt=consent/,
    ],
    [
      { OAUTH_AUTHORIZE_PARAMS: 'a=b' },
      'openid',
      'OAUTH_SCOPE=openid offline_access',
      /add prompt=consent to/,
    ],
    [{}, 'openid offline_access', 'OAUTH_SCOPE=openid offline_access', /Calls may be refused$/],
    [{}, 'openid #x', null, /Calls may be refused/],
    [{}, '', null, /Calls may be refused/],
  ] as const) {
    sandbox.faults.set({ tokenAnswer: { set: { scope } } })
    const live = await startLive(t, sandbox, {
      env: { ...env, OAUTH_AUTHORIZE_PARAMS: '', OAUTH_SCOPE: 'openid offline_access extra', ...more },
    })
    await bothSignIns(live)
    t.match(live.found('scope'), { verdict: 'warning', setting, message: words }, scope)
  }
})

t.test('a line for the environment drops no value that is set: what to add is said in words', async (t) => {
  const found = async (name: string, check: string, more: Record<string, string>) => {
    const { sandbox, env } = await atServer(t, name)
    const live = await startLive(t, sandbox, { flux: 'DEMO/power', env: { ...env, ...more } })
    await bothSignIns(live)
    return live.found(check)
  }
  t.match(await found('oidc-provider', 'refresh_token', { OAUTH_AUTHORIZE_PARAMS: 'audience=x' }), {
    setting: null,
    message: /: add prompt=consent to OAUTH_AUTHORIZE_PARAMS$/,
  })
  const shapes = { UPSTREAM_INVALID_TOKEN: '400:empty', OAUTH_REFUSED_GRANT: '400:empty' }
  t.match(await found('dex', 'invalid_token', shapes), {
    setting: null,
    message: /: add 403:\/error=access_denied to UPSTREAM_INVALID_TOKEN$/,
  })
  t.match(await found('dex', 'refused grant', shapes), {
    setting: null,
    message: /: add 400:invalid_request to OAUTH_REFUSED_GRANT$/,
  })
})

t.test('the end of the refresh token, a missing Date and iss are said', async (t) => {
  const { sandbox, env } = await atServer(t, 'keycloak', { tokenLifeSeconds: 3_600 })
  const live = await startLive(t, sandbox, { env })
  await bothSignIns(live)
  t.match(live.found('refresh token end'), { verdict: 'warning', value: 1_800 })
  t.match(live.found('clock'), { message: /sends no Date/ })
  t.match(live.found('iss'), { verdict: 'ok', message: /as OAUTH_ISSUER/ })
  const { sandbox: hydra, env: ofHydra } = await atServer(t, 'hydra')
  const other = await startLive(t, hydra, { env: { ...ofHydra, OAUTH_ISSUER: hydra.authUrl } })
  await bothSignIns(other)
  t.match(other.found('iss'), { verdict: 'warning', message: /checks nothing here/ })
})

t.test('a wrong secret that looks like a dead grant is warned of', async (t) => {
  for (const [name, value] of [
    ['glewlwyd', 'same'],
    ['dex', /401/],
  ] as const) {
    const { sandbox, env } = await atServer(t, name)
    const live = await startLive(t, sandbox, { env })
    await bothSignIns(live)
    t.match(live.found('wrong secret'), { value }, name)
  }
})

t.test(
  'a platform that hangs or resets crashes no measurement, and each says what it could not do',
  async (t) => {
    const HANG = { mode: 'hang', point: 'after' } as const
    const DROP = { mode: 'drop', point: 'after' } as const
    // What hangs is waited for; all else must be in time on a slow machine as well.
    for (const [how, timeoutMs] of [
      [HANG, '3000'],
      [DROP, '20000'],
    ] as const) {
      const cases: [faults: Partial<Faults>, check: string, says: RegExp][] = [
        [{ resource: { ...how, only: 'GetFlux' } }, 'invalid_token', /gives no response/],
        [
          { resource: { ...how, only: 'UpdateSite' } },
          'site restored',
          /NOT restored.*Send it yourself: PUT/,
        ],
        [{ tokenEndpoint: { ...how, only: 'refresh_token' } }, 'rotation', /no readable response/],
        [{ tokenEndpoint: { ...how, only: 'authorization_code' } }, 'sign-in', /no readable response/],
        [{ revocationEndpoint: how }, 'tokens', /not all tokens/],
      ]
      await Promise.all(
        cases.map(([faults, check, says]) =>
          unlessHeldUp(1_000, async () => {
            const sandbox = await startSandbox(t, { faults })
            const env = {
              UPSTREAM_TIMEOUT_MS: timeoutMs,
              TOKEN_TIMEOUT_MS: timeoutMs,
              OAUTH_REVOCATION_URL: `${sandbox.authUrl}/oauth/revoke`,
            }
            const live = await startLive(t, sandbox, { flux: 'DEMO/power', ...change(t), env })
            live.input.write('yes\n')
            live.input.end()
            await live.signIn(1)
            if (check !== 'sign-in') await live.signIn(2).catch(() => {})
            await live.ended
            const { message = '' } = live.findings().findLast((found) => found.check === check) ?? {}
            assert.match(message, says, `${how.mode}: ${check}`)
          }),
        ),
      )
    }
  },
)

t.test(
  'a platform that begins to hang or reset in the middle is no finding about it: each line says what was not measured',
  async (t) => {
    const folder = t.testdir({
      'operations.json': JSON.stringify(READ_SITE),
      'site.json': JSON.stringify(SITE),
    })
    const file = `${folder}/operations.json`
    const declared = readDeclaredOperations(file)
    const NOT = { value: 'not measured' }
    const RESTORED = { verdict: 'ok', value: true }
    const SILENT = { verdict: 'fault', message: /gave no response/ }
    for (const mode of ['hang', 'drop'] as const) {
      const how = { mode, point: 'after' } as const
      const refresh = { tokenEndpoint: { ...how, only: 'refresh_token' } }
      const cases: [after: string, faults: Partial<Faults>, found: Record<string, object>][] = [
        [
          'invalid_token',
          { resource: { ...how, only: 'GetFlux' } },
          {
            ...{ 'flux JSON': SILENT, 'flux JSV': SILENT, compression: NOT, 'old access token': NOT },
            ...{ 'site absent member': { value: 'kept' }, 'site restored': RESTORED },
            'second sign-in': { value: 'keeps' },
          },
        ],
        ['compression', { resource: { ...how, times: 1 } }, { GetMe: SILENT, 'site restored': RESTORED }],
        [
          'site absent member',
          { resource: { ...how, only: 'UpdateSite', times: 1 } },
          { 'site null': NOT, 'site empty text': { value: 'cleared' }, 'site restored': RESTORED },
        ],
        ['rotation', refresh, { 'refused grant': NOT, 'second sign-in': NOT, 'refresh token reuse': NOT }],
        ['second sign-in', refresh, { 'refresh token reuse': NOT, 'wrong secret': NOT }],
      ]
      await Promise.all(
        cases.map(([after, faults, found]) =>
          unlessHeldUp(500, async () => {
            const dex = { profile: PROFILES.dex!, faults: { exactRedirect: false } }
            const sandbox = await startSandbox(t, {
              operations: declared,
              ...(Object.hasOwn(found, 'wrong secret') ? dex : {}),
            })
            const timeoutMs = mode === 'hang' ? '1500' : '20000'
            const live = await startLive(t, sandbox, {
              ...{ flux: 'DEMO/power', site: 'DEMO/42', restore: `${folder}/site.json`, reuseDelays: [0] },
              env: {
                ...{ ...sandbox.env, OPERATIONS_FILE: file },
                ...{ UPSTREAM_TIMEOUT_MS: timeoutMs, TOKEN_TIMEOUT_MS: timeoutMs },
              },
              onFinding: ({ check }) => check === after && void sandbox.faults.set(faults),
            })
            live.input.end('yes\nyes\n')
            await live.signIn(1)
            await live.signIn(2)
            await live.ended
            for (const [check, finding] of Object.entries(found)) {
              const what = `${mode} after ${after}: ${JSON.stringify(live.found(check))}`
              for (const [member, wanted] of Object.entries(finding)) {
                const is = live.found(check)?.[member as keyof Finding]
                if (wanted instanceof RegExp) assert.match(String(is), wanted, what)
                else assert.equal(is, wanted, what)
              }
            }
            assert.match(JSON.stringify(updatesOf(sandbox).at(-1)?.body), /LAB-42/)
          }),
        ),
      )
    }
  },
)

t.test('a stop is noticed while a read waits', async (t) => {
  const sandbox = await startSandbox(t)
  const gate = sandbox.hold('resource', { only: 'GetFlux' })
  const live = await startLive(t, sandbox, { flux: 'DEMO/power' })
  await live.signIn(1)
  await gate.arrived
  live.stop.abort()
  t.equal(await live.ended, 130, 'while the platform has not answered')
  t.equal(gate.waiting(), 1)
})

t.test('an update or a refresh that is answered after the stop is put in order', async (t) => {
  const sandbox = await startSandbox(t)
  const env = { OAUTH_REVOCATION_URL: `${sandbox.authUrl}/oauth/revoke` }
  const update = sandbox.hold('resource', { point: 'after', only: 'UpdateSite' })
  const changing = await startLive(t, sandbox, { ...change(t), env })
  changing.input.write('yes\n')
  await changing.signIn(1)
  await update.arrived
  changing.stop.abort()
  update.release()
  t.equal(await changing.ended, 130)
  t.match(JSON.parse(String(updatesOf(sandbox).at(-1)?.body)), SITE)

  const refresh = sandbox.hold('token', { point: 'after', only: 'refresh_token' })
  const live = await startLive(t, sandbox, { env })
  await live.signIn(1)
  await refresh.arrived
  live.stop.abort()
  refresh.release()
  t.equal(await live.ended, 130)
  t.match(live.found('tokens'), { value: 'revoked' })
  const revoked = sandbox.journal.entries({ endpoint: 'revoke' }).length
  t.ok(revoked >= 4, 'both pairs')
})

t.test('a resource server that compresses only without Via is found', async (t) => {
  const sandbox = await startSandbox(t)
  const front = createHttpServer(async (request, response) => {
    const headers = { authorization: String(request.headers.authorization) }
    const answer = await fetch(sandbox.baseUrl + request.url, { headers })
    const body = Buffer.from(await answer.arrayBuffer())
    const isGzip = request.headers['accept-encoding'] === 'gzip' && request.headers.via === undefined
    const type = answer.headers.get('content-type') ?? 'text/plain'
    response.writeHead(answer.status, {
      'content-type': type,
      ...(isGzip ? { 'content-encoding': 'gzip' } : {}),
    })
    response.end(isGzip ? gzipSync(body) : body)
  })
  const BASE_URL = `http://127.0.0.1:${await listenOnLoopback(t, front)}`
  for (const [UPSTREAM_VIA, finding] of [
    ['on', { verdict: 'warning', setting: 'UPSTREAM_VIA=off' }],
    ['off', { verdict: 'ok', setting: null }],
  ] as const) {
    const live = await startLive(t, sandbox, { flux: 'DEMO/power', env: { BASE_URL, UPSTREAM_VIA } })
    await bothSignIns(live)
    t.match(live.found('compression'), finding)
  }
})
