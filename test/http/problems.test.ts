import type { AddressInfo } from 'node:net'
import { Writable } from 'node:stream'
import t, { type Test } from 'tap'
import { parseConfig } from '../../src/config/config.ts'
import { type ProblemCode, unavailable } from '../../src/errors.ts'
import { hooks } from '../../src/http/hooks.ts'
import { createServer } from '../../src/http/server.ts'
import { createLog } from '../../src/log.ts'
import { startRedis } from '../helpers/redis.ts'
import { SERVER_ENV } from '../helpers/server-process.ts'
import { type Bff, signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'
import { elapsed } from '../helpers/wait.ts'
import { ask, field, OWN, portOf, problemOf, type Question } from './wire.ts'

const JSON_TYPE: readonly [string, string] = ['Content-Type', 'application/json']

interface Expected {
  status: number
  code: ProblemCode
  detail?: RegExp
  /** Of `login_required`, where a session has ended. */
  reason?: string
}

async function answers(
  t: Test,
  bff: Bff,
  question: Question,
  { status, code, detail = /./, reason }: Expected,
): Promise<void> {
  const answer = await ask(portOf(bff), question)
  const what = `${code}: ${question.method ?? 'GET'} ${question.target?.slice(0, 40)}`
  t.equal(answer.status, status, what)
  t.match(field(answer, 'content-type'), /^application\/problem\+json/, what)
  const body = problemOf(answer)
  t.match(body, { type: /^[a-z]+:\S+$/, title: /./, status, detail, code }, what)
  t.equal(body.requestId, field(answer, 'x-request-id'), what)
  t.equal(body.reason, reason, what)
  const further = code === 'login_required' ? ['loginUrl', ...(reason === undefined ? [] : ['reason'])] : []
  const members = ['type', 'title', 'status', 'detail', 'code', 'requestId', ...further]
  t.strictSame(Object.keys(body), members, `${what}: nothing else`)
  if (status === 401) t.match(field(answer, 'www-authenticate'), /^Session /, what)
  if (status === 503 || status === 429) t.match(field(answer, 'retry-after'), /^[1-9]\d*$/, what)
}

async function signedIn(bff: Bff, sandbox: Parameters<typeof signIn>[1]): Promise<readonly [string, string]> {
  const browser = bff.browser()
  await signIn(browser, sandbox)
  return ['Cookie', `session=${browser.cookies.get('session')!.value}`]
}

t.test('each fault of a request is a problem with its code', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { WAC_ALLOWED: 'DEMO' })
  const cookie = await signedIn(bff, sandbox)
  const site = { method: 'PUT', target: '/site/1' }
  await answers(t, bff, { target: '/auth/login?returnTo=x' }, { status: 400, code: 'invalid_return_to' })
  await answers(
    t,
    bff,
    { target: '/auth/login?flow=x' },
    { status: 400, code: 'invalid_request', detail: /flow/ },
  )
  await answers(t, bff, { target: '/auth/callback/x?code=y' }, { status: 400, code: 'login_failed' })
  await answers(
    t,
    bff,
    { target: '/flux/!', headers: [OWN] },
    { status: 400, code: 'invalid_request', detail: /fluxId/ },
  )
  await answers(
    t,
    bff,
    { target: `/flux/${'a'.repeat(8_000)}`, headers: [OWN] },
    { status: 400, code: 'invalid_request', detail: /fluxId/ },
  )
  await answers(t, bff, { target: '/flux/a', headers: [OWN] }, { status: 401, code: 'login_required' })
  await answers(t, bff, { target: '/flux/a' }, { status: 403, code: 'cross_origin', detail: /X-CSRF: 1/ })
  await answers(
    t,
    bff,
    { target: '/flux/ACME/a', headers: [OWN, cookie] },
    { status: 403, code: 'wac_not_allowed' },
  )
  await answers(t, bff, { target: '/nothing' }, { status: 404, code: 'not_found' })
  await answers(t, bff, { method: 'PATCH', target: '/flux/a' }, { status: 405, code: 'method_not_allowed' })
  await answers(
    t,
    bff,
    { target: '/flux/a', headers: [OWN, ['Accept', 'image/*']] },
    { status: 406, code: 'not_acceptable' },
  )
  await answers(
    t,
    bff,
    { ...site, headers: [OWN, JSON_TYPE], body: 'x'.repeat(65_537) },
    { status: 413, code: 'payload_too_large' },
  )
  await answers(
    t,
    bff,
    { ...site, headers: [OWN, ['Content-Type', 'text/plain']], body: '{}' },
    { status: 415, code: 'unsupported_media_type' },
  )
  t.equal(sandbox.journal.entries({ kind: 'GetFlux' }).length, 0)
})

t.test('each failure of a server behind this one is a problem with its code', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { UPSTREAM_TIMEOUT_MS: '200' })
  const flux = { target: '/flux/a', headers: [OWN, await signedIn(bff, sandbox)] }
  sandbox.faults.set({ resource: { mode: 'hang' } })
  await answers(t, bff, flux, { status: 504, code: 'upstream_timeout' })
  sandbox.faults.set({ resource: { mode: 'drop' } })
  await answers(t, bff, flux, { status: 502, code: 'upstream_unavailable' })
  sandbox.faults.set({ resource: { mode: 'html' } })
  await answers(t, bff, flux, { status: 502, code: 'upstream_unavailable' })
  sandbox.faults.set({
    resource: { mode: 'status', status: 302, headers: { location: 'https://evil.test' } },
  })
  await answers(t, bff, flux, { status: 502, code: 'upstream_unavailable' })
  for (const status of [404, 409, 500, 503]) {
    const headers = { 'content-type': 'text/html', 'retry-after': '9' }
    sandbox.faults.set({ resource: { mode: 'status', status, headers, body: '<h1>no</h1>' } })
    await answers(t, bff, flux, { status, code: 'upstream_error' })
  }
  sandbox.faults.set({
    resource: { mode: 'status', status: 401, headers: { 'content-type': 'application/json' }, body: '{}' },
  })
  await answers(t, bff, flux, { status: 403, code: 'upstream_refused' })
})

t.test('an ended session and a missing session have different details', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { SESSION_IDLE_SECONDS: '1', SESSION_MAX_SECONDS: '100' })
  const cookie = await signedIn(bff, sandbox)
  await elapsed(1_020)
  const flux = { target: '/flux/a', headers: [OWN, cookie] }
  await answers(t, bff, flux, { status: 401, code: 'login_required', detail: /ended/, reason: 'idle' })
  await answers(
    t,
    bff,
    { ...flux, headers: [OWN] },
    { status: 401, code: 'login_required', detail: /no session cookie .*credentials: 'omit'/ },
  )
})

t.test('a token that both servers refuse ends the session with login_required', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const flux = { target: '/flux/a', headers: [OWN, await signedIn(bff, sandbox)] }
  sandbox.revokeAll()
  await answers(t, bff, flux, {
    status: 401,
    code: 'login_required',
    detail: /no longer accept/,
    reason: 'refused',
  })
})

t.test('a failure of the authorization server when a token is needed is a 503', async (t) => {
  const sandbox = await startSandbox(t, { tokenLifeSeconds: 1 })
  const bff = await startBff(t, sandbox)
  const flux = { target: '/flux/a', headers: [OWN, await signedIn(bff, sandbox)] }
  sandbox.faults.set({ tokenEndpoint: { mode: 'status', status: 503 } })
  await elapsed(1_020)
  await answers(t, bff, flux, { status: 503, code: 'authorization_server_unavailable' })
})

t.test('an unreachable store is a 503', async (t) => {
  const sandbox = await startSandbox(t)
  const redis = await startRedis(t)
  const bff = await startBff(t, sandbox, { REDIS_URL: redis.url })
  await untilReady(bff)
  const cookie = await signedIn(bff, sandbox)
  await redis.stop()
  for (const question of [
    { target: '/flux/a', headers: [OWN, cookie] },
    { target: '/auth/session', headers: [OWN, cookie] },
    { method: 'POST', target: '/auth/logout', headers: [OWN, cookie] },
  ]) {
    const detail = /may still be valid\. The server's log has the cause\.$/
    await answers(t, bff, question, { status: 503, code: 'store_unavailable', detail })
  }
  const reasons = [...bff.log().matchAll(/"code":"store_unavailable".*?"reason":"([^"]*)"/g)]
  t.ok(reasons.length >= 3)
  for (const [, reason] of reasons) t.match(reason, /^not connected to Redis/)
})

/** Asks a server each of whose answers is this fault; the answer, and what was logged of the fault. */
async function askFailing(t: Test, fault: Error) {
  const parsed = parseConfig({ ...SERVER_ENV, PUBLIC_URL: 'http://localhost:3000' })
  if (!parsed.ok) throw new Error(parsed.faults.join())
  let logged = ''
  const sink = new Writable({
    write(chunk, _encoding, done) {
      logged += chunk
      done()
    },
  })
  const server = createServer(parsed.config, createLog('silent'))
  await server.register(hooks, {
    secure: false,
    hasOperations: false,
    accessLog: 'errors',
    log: createLog('info', sink),
    observe: () => {},
    sessionOf: () => null,
    fallback(_request, reply) {
      // As of a file that cannot be opened.
      reply.headers({ 'cache-control': 'public, immutable', etag: 'W/"1-2"', 'content-encoding': 'br' })
      return Promise.reject(fault)
    },
    navigationPage: () => () => null,
  })
  t.teardown(() => server.close())
  await server.listen({ host: '127.0.0.1', port: 0 })
  const { port } = server.server.address() as AddressInfo
  const answer = await ask(port, { target: '/x?code=planted-code' })
  t.notMatch(logged, /planted-code/)
  const lines = logged
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>)
  return { answer, line: lines.find(({ event }) => event === 'fault') }
}

t.test('an unexpected error is a 500 without details, and the log has them', async (t) => {
  const fault = new TypeError('planted', { cause: new Error('deeper') })
  const { answer, line } = await askFailing(t, fault)
  t.equal(field(answer, 'cache-control'), 'no-store', 'nobody keeps a failure')
  for (const name of ['etag', 'content-encoding']) t.notOk(answer.headers.has(name), name)
  t.equal(answer.status, 500)
  t.match(problemOf(answer), { code: 'internal_error', status: 500 })
  t.notMatch(answer.body, /planted|deeper|TypeError|at /)
  t.match(line, { level: 'error', reqId: field(answer, 'x-request-id'), code: 'internal_error' })
  t.match(line?.err, { type: 'TypeError', message: /planted/, stack: /problems\.test/ })
  t.match(JSON.stringify(line), /deeper/)
})

t.test('an expected fault is logged as a sentence without a stack', async (t) => {
  const { answer, line } = await askFailing(
    t,
    unavailable('store_unavailable', 1, { cause: new Error('why it is away') }),
  )
  t.equal(answer.status, 503)
  t.match(line, { level: 'warn', code: 'store_unavailable', reason: 'why it is away' })
  t.notMatch(JSON.stringify(line), /problems\.test/)
})
