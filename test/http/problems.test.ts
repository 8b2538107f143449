import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { type ProblemCode, unavailable } from '../../src/errors.ts'
import { hooks } from '../../src/http/hooks.ts'
import { createServer } from '../../src/http/server.ts'
import { createLog } from '../../src/log.ts'
import { configOf } from '../config/environment.ts'
import { collectLog } from '../helpers/log-lines.ts'
import { signedIn } from '../helpers/shared.ts'
import { ask, field, OWN, problemOf, type Question } from './wire.ts'

interface Expected {
  status: number
  code: ProblemCode
  detail?: RegExp
  /** Of `login_required`, where a session has ended. */
  reason?: string
}

async function answers(
  t: Test,
  port: number,
  question: Question,
  { status, code, detail = /./, reason }: Expected,
): Promise<void> {
  const answer = await ask(port, question)
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

/** A row of a table: what is asked, and what the problem says. */
type Case = [question: Question, status: number, code: ProblemCode, detail?: RegExp]

t.test('a fault of a request is a problem with these members and no others', async (t) => {
  const { sandbox, port, cookie } = await signedIn({ WAC_ALLOWED: 'DEMO' })
  const json = ['Content-Type', 'application/json'] as const
  const cases: Case[] = [
    [{ target: '/auth/callback/x?code=y' }, 400, 'login_failed'],
    [{ target: '/flux/!', headers: [OWN] }, 400, 'invalid_request', /fluxId/],
    [{ target: `/flux/${'a'.repeat(8_000)}`, headers: [OWN] }, 400, 'invalid_request', /fluxId/],
    [{ target: '/flux/a', headers: [OWN] }, 401, 'login_required', /no session cookie .*credentials: 'omit'/],
    [{ target: '/flux/a' }, 403, 'cross_origin', /X-CSRF: 1/],
    [{ target: '/flux/ACME/a', headers: [OWN, cookie] }, 403, 'wac_not_allowed'],
    [{ target: '/nothing' }, 404, 'not_found'],
    [
      { method: 'PUT', target: '/site/1', headers: [OWN, json], body: 'x'.repeat(65_537) },
      413,
      'payload_too_large',
    ],
  ]
  for (const [question, status, code, detail] of cases)
    await answers(t, port, question, { status, code, ...(detail === undefined ? {} : { detail }) })
  t.equal(sandbox.journal.entries().length, 0)
})

t.test('each failure of a server behind this one is a problem with its code', async (t) => {
  const html = { 'content-type': 'text/html', 'retry-after': '9' }
  const json = { 'content-type': 'application/json' }
  for (const [resource, status, code] of [
    [{ mode: 'hang' }, 504, 'upstream_timeout'],
    [{ mode: 'drop' }, 502, 'upstream_unavailable'],
    [{ mode: 'html' }, 502, 'upstream_unavailable'],
    [{ mode: 'status', status: 503, headers: html, body: '<h1>no</h1>' }, 503, 'upstream_error'],
    [{ mode: 'status', status: 401, headers: json, body: '{}' }, 403, 'upstream_refused'],
  ] as const) {
    const system = await signedIn(resource.mode === 'hang' ? { UPSTREAM_TIMEOUT_MS: '200' } : {})
    system.sandbox.faults.set({ resource })
    const flux = { target: '/flux/a', headers: [OWN, system.cookie] }
    await answers(t, system.port, flux, { status, code })
  }
})

t.test('a token that both servers refuse ends the session with login_required', async (t) => {
  const { sandbox, port, cookie } = await signedIn()
  sandbox.revokeAll()
  const flux = { target: '/flux/a', headers: [OWN, cookie] }
  const expected = {
    status: 401,
    code: 'login_required',
    detail: /no longer accept/,
    reason: 'refused',
  } as const
  await answers(t, port, flux, expected)
})

/** Asks a server each of whose answers is this fault; the answer, and what was logged of the fault. */
async function askFailing(t: Test, fault: Error) {
  const { sink, text, lines } = collectLog()
  const server = createServer(configOf({ PUBLIC_URL: 'http://localhost:3000' }), createLog('silent'))
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
  t.notMatch(text(), /planted-code/)
  return { answer, line: lines('fault')[0] }
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
