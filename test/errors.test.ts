import t from 'tap'
import { Problem, type ProblemCode, problem, unavailable } from '../src/errors.ts'
import { StoreUnavailable } from '../src/store/store.ts'

/** Codes and statuses are relied upon by browsers: a change here is a breaking change. */
const STATUS: Record<ProblemCode, number> = {
  invalid_request: 400,
  invalid_return_to: 400,
  login_failed: 400,
  login_required: 401,
  invalid_credentials: 401,
  cross_origin: 403,
  wac_not_allowed: 403,
  upstream_refused: 403,
  not_found: 404,
  method_not_allowed: 405,
  not_acceptable: 406,
  request_timeout: 408,
  payload_too_large: 413,
  uri_too_long: 414,
  unsupported_media_type: 415,
  rate_limited: 429,
  headers_too_large: 431,
  internal_error: 500,
  upstream_error: 502,
  upstream_unavailable: 502,
  store_unavailable: 503,
  authorization_server_unavailable: 503,
  upstream_timeout: 504,
}

const entries = Object.entries(STATUS) as [ProblemCode, number][]

t.test('each code has its status, a title, and a body of the form that RFC 9457 gives', async (t) => {
  for (const [code, status] of entries) {
    const fault = problem(code)
    t.ok(fault instanceof Problem && fault instanceof Error)
    t.equal(fault.status, status, code)
    const { title, loginUrl, ...body } = JSON.parse(fault.body('request-1')) as Record<string, unknown>
    t.match(title, /^[A-Z][^.]+$/)
    t.strictSame(body, {
      type: `urn:bff:problem:${code}`,
      status,
      detail: `${title}.`,
      code,
      requestId: 'request-1',
    })
    t.equal(loginUrl, code === 'login_required' ? '/auth/login' : undefined)
  }
})

t.test('each 401 carries a challenge, and nothing else does (RFC 9110 section 11.6.1)', async (t) => {
  for (const [code, status] of entries) {
    t.equal('www-authenticate' in problem(code).headers, status === 401, code)
  }
})

t.test('a detail is said in place of the title, a cause never', async (t) => {
  const fault = problem('invalid_request', { detail: 'format is repeated.', cause: new Error('inner-text') })
  const body = JSON.parse(fault.body('r')) as Record<string, unknown>
  t.equal(body.detail, 'format is repeated.')
  t.equal(body.title, 'The request is not valid')
  t.notMatch(fault.body('r'), 'inner-text')
  t.equal(problem('invalid_request', 'format is repeated.').detail, 'format is repeated.')
})

t.test('an upstream error has the upstream’s own status, in the body as well', async (t) => {
  const fault = problem('upstream_error', { status: 418, headers: { 'retry-after': '7' } })
  t.equal(fault.status, 418)
  t.match(JSON.parse(fault.body('r')), { status: 418, code: 'upstream_error' })
  t.strictSame(fault.headers, { 'retry-after': '7' })
})

t.test('further members and headers are added to those of the code', async (t) => {
  const fault = problem('login_required', { members: { reason: 'idle' }, headers: { 'x-one': '1' } })
  t.match(JSON.parse(fault.body('r')), { loginUrl: '/auth/login', reason: 'idle' })
  t.strictSame(fault.headers, { 'www-authenticate': 'Session realm="bff"', 'x-one': '1' })
  t.strictSame(Object.keys(problem('login_required').headers), ['www-authenticate'], 'and to no other one')
})

t.test('what is unavailable says when to come again: whole seconds, at least one', async (t) => {
  for (const [given, said] of [
    [0, '1'],
    [-3, '1'],
    [0.2, '1'],
    [1.2, '2'],
    [60, '60'],
  ] as const) {
    const fault = unavailable('authorization_server_unavailable', given)
    t.equal(fault.status, 503)
    t.strictSame(fault.headers, { 'retry-after': said })
  }
})

t.test('a store that fails is a 503 to come again after, with its cause for the log alone', async (t) => {
  const cause = new Error('connect ECONNREFUSED redis.internal:6379')
  const fault = new StoreUnavailable(cause)
  t.ok(fault instanceof Problem)
  t.equal(fault.name, 'StoreUnavailable')
  t.equal(fault.status, 503)
  t.strictSame(fault.headers, { 'retry-after': '1' })
  t.equal(fault.cause, cause)
  t.notMatch(fault.body('r'), 'redis.internal')
})
