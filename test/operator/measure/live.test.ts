import { createServer } from 'node:net'
import { PassThrough } from 'node:stream'
import t, { type Test } from 'tap'
import { type LiveOptions, runLive } from '../../../operator/measure/live.ts'
import type { Finding } from '../../../operator/report.ts'
import type { Faults } from '../../../sandbox/faults.ts'
import { readDeclaredOperations } from '../../../sandbox/operations.ts'
import { READINGS } from '../../../sandbox/profiles.ts'
import type { Sandbox } from '../../../sandbox/sandbox.ts'
import { createBrowser } from '../../helpers/browser.ts'
import { type Teardown, waitForOutput } from '../../helpers/child.ts'
import { freePort, listenOnLoopback } from '../../helpers/ports.ts'
import { startBuilt } from '../../helpers/server-process.ts'
import { decide, platformEnv, startSandbox } from '../../helpers/system.ts'
import { until } from '../../helpers/wait.ts'

const NOTHING: LiveOptions = { json: true, flux: null, site: null, restore: null }
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

function envOf(sandbox: Sandbox, port: number) {
  return {
    HOST: '127.0.0.1',
    PORT: String(port),
    PUBLIC_URL: `http://localhost:${port}`,
    ...platformEnv(sandbox),
    SESSION_SECRET: 'the-first-secret-of-the-tests-of-32-characters',
    // Nobody listens there: no session may be stored.
    REDIS_URL: 'redis://127.0.0.1:9',
  }
}

/** Starts the command. Its lines, as they come, and the operator's hand and browser. */
async function startLive(
  t: Teardown,
  sandbox: Sandbox,
  { env = {}, ...options }: Partial<LiveOptions> & { env?: Record<string, string> } = {},
) {
  const base = envOf(sandbox, await freePort())
  const publicUrl = base.PUBLIC_URL
  const { ended, input, stop, lines, errors } = start(t, { ...base, ...env }, options)
  let hasEnded = false
  void ended.then(() => {
    hasEnded = true
  })
  const findings = (): Finding[] => lines.map((line) => JSON.parse(line) as Finding)
  const addresses = (): string[] =>
    findings().flatMap(({ check, value }) =>
      check === 'sign-in' && typeof value === 'string' ? [value] : [],
    )
  const address = async (number: number): Promise<string> => {
    await until('an address', () => hasEnded || addresses().length >= number)
    return addresses()[number - 1] ?? ''
  }
  const browser = createBrowser(publicUrl)
  return {
    ended,
    lines,
    errors,
    input,
    stop,
    publicUrl,
    browser,
    findings,
    address,
    found: (check: string) => findings().find((finding) => finding.check === check),
    /** The operator signs in at the printed address, as alice. */
    async signIn(number: number) {
      const start = await browser.navigate((await address(number)).slice(publicUrl.length))
      return await browser.navigate(await decide(sandbox, String(start.headers.location)), {
        from: 'cross-site',
      })
    },
  }
}

function start(t: Teardown, env: Record<string, string>, options: Partial<LiveOptions> = {}) {
  const input = new PassThrough()
  const stop = new AbortController()
  const lines: string[] = []
  const errors: string[] = []
  const out = (line: string) => lines.push(line)
  const error = (line: string) => errors.push(line)
  const ended = runLive(env, { ...NOTHING, ...options }, { input, out, error, stop: stop.signal })
  t.teardown(async () => {
    stop.abort()
    await ended
  })
  return { ended, input, stop, lines, errors }
}

type Live = Awaited<ReturnType<typeof startLive>>

async function bothSignIns(live: Live): Promise<number> {
  await live.signIn(1)
  await live.signIn(2)
  return await live.ended
}

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
  const presented = sandbox.journal.entries().filter(({ form }) => form?.grant_type === 'refresh_token')
  t.equal(presented.length, 1, 'no refresh token is presented twice')
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

  const live = await startLive(t, sandbox, asked)
  live.input.write('yes\n')
  t.equal(await bothSignIns(live), 0)
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
  live.input.write(`${await decide(sandbox, await live.address(2))}\n`)
  t.equal(await live.ended, 0)
  t.match(live.found('second sign-in'), { value: 'keeps' })
  t.match(live.errors.join('\n'), /does not lead to this process/)
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
  t.match(live.found('tokens'), { value: 'revoked' })
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
