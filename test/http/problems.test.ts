import t, { type Test } from 'tap'
import { unavailable } from '../../src/errors.ts'
import { toProblem } from '../../src/http/problems.ts'
import { portOfUrl } from '../helpers/ports.ts'
import { signedIn } from '../helpers/shared.ts'
import { withHooks } from './hooks-server.ts'
import { ask, field, OWN, problemOf } from './wire.ts'

t.test('a problem says what to change', async (t) => {
  const { sandbox, port, browser } = await signedIn()
  for (const [question, code, detail] of [
    [{ target: '/flux/!', headers: [OWN] }, 'invalid_request', /fluxId/],
    [{ target: '/flux/a', headers: [OWN] }, 'login_required', /no session cookie .*credentials: 'omit'/],
    [{ target: '/flux/a' }, 'cross_origin', /X-CSRF: 1/],
  ] as const)
    t.match(problemOf(await ask(port, question)), { code, detail }, `${code} ${question.target.slice(0, 20)}`)
  t.equal(sandbox.journal.entries().length, 0)
  sandbox.revokeAll()
  const { status, json } = await browser.fetch('/flux/a')
  t.equal(status, 401)
  t.match(
    json(),
    { code: 'login_required', detail: /no longer accept/, reason: 'refused' },
    'both servers refuse',
  )
})

/** Asks a server each of whose answers is this fault; the answer, and what was logged of the fault. */
async function askFailing(t: Test, fault: Error) {
  const { text, lines, listen } = await withHooks(t, (_request, reply) => {
    // As of a file that cannot be opened.
    reply.headers({ 'cache-control': 'public, immutable', etag: 'W/"1-2"', 'content-encoding': 'br' })
    return Promise.reject(fault)
  })
  const answer = await ask(portOfUrl(await listen()), { target: '/x?code=planted-code' })
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

t.test('a detail holds at most 128 characters of the path of a member', async (t) => {
  const instancePath = `/${'x'.repeat(500)}`
  const wrong = { keyword: 'type', instancePath, params: { type: 'string,null' } }
  const { message } = toProblem({ validation: [wrong] })
  t.equal(message, `The member ${'x'.repeat(128)} must be string or null.`)
})
