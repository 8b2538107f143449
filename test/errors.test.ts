import { readFileSync } from 'node:fs'
import t from 'tap'
import { PROBLEM_CODES, Problem, type ProblemCode, problem, unavailable } from '../src/errors.ts'
import { OTHER_ERROR } from '../src/http/openapi.ts'
import { tableRows } from './helpers/documentation.ts'
import { shared } from './helpers/shared.ts'

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
  length_required: 411,
  payload_too_large: 413,
  uri_too_long: 414,
  unsupported_media_type: 415,
  rate_limited: 429,
  headers_too_large: 431,
  internal_error: 500,
  upstream_error: 502,
  upstream_unavailable: 502,
  store_unavailable: 503,
  token_refreshed: 503,
  authorization_server_unavailable: 503,
  shutting_down: 503,
  upstream_timeout: 504,
}

const entries = Object.entries(STATUS) as [ProblemCode, number][]

/** The codes of a cell, as `a`, `b`; none where it has other words. */
const codesOf = (cell = ''): string[] =>
  /^`[a-z_]+`(?:, `[a-z_]+`)*$/.test(cell) ? cell.replaceAll('`', '').split(', ') : []

const onSpaPage = tableRows('docs/spa.md', 'Errors').map(([statuses = '', codes]) => ({
  statuses: statuses.split(', '),
  codes: codesOf(codes),
}))
const explained = tableRows('docs/troubleshooting.md', 'Error codes').map(([codes, ...cells]) => ({
  codes: codesOf(codes),
  cells,
}))
/** Those of the client itself. */
const OF_CLIENT = ['answered_by_page', 'sign_in_loop', 'unreachable']
const [ofClient = ''] = /type ErrorCode =.*?\n\n/s.exec(readFileSync('client/bff-client.ts', 'utf8')) ?? []

/** Where else each code stands, and what belongs there. */
const PLACES: Readonly<Record<string, string[]>> = {
  'STATUS in this test: its status': Object.keys(STATUS),
  'ErrorCode in client/bff-client.ts: its name': [...ofClient.matchAll(/'(\w+)'/g)]
    .map(([, code]) => code!)
    .filter((code) => !OF_CLIENT.includes(code)),
  'docs/spa.md, "Errors": a row with its status': [...new Set(onSpaPage.flatMap(({ codes }) => codes))],
  'docs/troubleshooting.md, "Error codes": one row with cause and fix': explained.flatMap(
    ({ codes }) => codes,
  ),
}

for (const [place, codes] of Object.entries(PLACES))
  t.test(`each code of src/errors.ts is in ${place}`, async (t) =>
    t.strictSame(codes.sort(), [...PROBLEM_CODES].sort()),
  )

t.test('docs/troubleshooting.md has cause and fix of each code', async (t) => {
  for (const { codes, cells } of explained)
    t.equal(cells.filter((cell) => cell !== '').length, 2, codes.join())
})

t.test('each code has status, title and body by RFC 9457, a 401 a challenge (RFC 9110 11.6.1)', async (t) => {
  for (const [code, status] of entries) {
    const fault = problem(code)
    t.ok(fault instanceof Problem && fault instanceof Error)
    t.equal(fault.status, status, code)
    t.equal('www-authenticate' in fault.headers, status === 401, code)
    const { title, loginUrl, ...body } = JSON.parse(fault.body('request-1')) as Record<string, unknown>
    t.match(title, /^[A-Z][^.]+$/)
    t.strictSame(body, {
      type: `urn:bff:problem:${code}`,
      status,
      detail:
        code === 'store_unavailable'
          ? "The server cannot use its session store now. Your session may still be valid. The server's log has the cause."
          : `${title}.`,
      code,
      requestId: 'request-1',
    })
    t.equal(loginUrl, code === 'login_required' ? '/auth/login' : undefined)
  }
})

t.test('the body holds the detail of a problem and never its cause', async (t) => {
  const fault = problem('invalid_request', { detail: 'format is repeated.', cause: new Error('inner-text') })
  t.match(JSON.parse(fault.body('r')), { detail: 'format is repeated.', title: 'The request is not valid' })
  t.notMatch(fault.body('r'), 'inner-text')
  t.equal(problem('invalid_request', 'format is repeated.').detail, 'format is repeated.')
})

t.test('the body of a 405 names the methods of Allow', async (t) => {
  for (const [allow, detail] of [
    ['GET', 'Use GET.'],
    ['GET, HEAD', 'Use GET or HEAD.'],
    ['GET, HEAD, POST', 'Use GET, HEAD or POST.'],
  ] as const) {
    t.match(JSON.parse(problem('method_not_allowed', { headers: { allow } }).body('r')), { detail })
  }
})

t.test('a status, members and headers are added to those of the code', async (t) => {
  const upstream = problem('upstream_error', { status: 418, headers: { 'retry-after': '7' } })
  t.match(upstream, { status: 418, headers: { 'retry-after': '7' } })
  t.match(JSON.parse(upstream.body('r')), { status: 418, code: 'upstream_error' })
  const fault = problem('login_required', { members: { reason: 'idle' }, headers: { 'x-one': '1' } })
  t.match(JSON.parse(fault.body('r')), { loginUrl: '/auth/login', reason: 'idle' })
  t.strictSame(fault.headers, { 'www-authenticate': 'Session realm="bff"', 'x-one': '1' })
  t.strictSame(Object.keys(problem('login_required').headers), ['www-authenticate'], 'and to no other one')
})

t.test('a 503 carries Retry-After in whole seconds, at least one', async (t) => {
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

t.test('docs/spa.md lists each code under its status', async (t) => {
  for (const [code, status] of entries) {
    const listed = onSpaPage.filter(({ codes }) => codes.includes(code)).flatMap(({ statuses }) => statuses)
    const expected = code === 'upstream_error' ? "the upstream's" : String(status)
    t.ok(listed.includes(expected), `${code}: ${expected}`)
  }
})

t.test('OpenAPI knows each code, and names codes of its table under their status', async (t) => {
  const { bff } = await shared({ OAUTH_FLOWS: 'code,token,password,client', CLIENT_FLUX_ALLOWED: '*' })
  const document = bff.app.server.swagger() as unknown as {
    paths: object
    components: { schemas: { Problem: { properties: { code: { enum: string[] } } } } }
  }
  t.same(document.components.schemas.Problem.properties.code.enum, PROBLEM_CODES)
  type Responses = Record<string, { description: string; content?: object }>
  const operations = Object.entries(
    document.paths as Record<string, Record<string, { responses: Responses }>>,
  )
  for (const [path, methods] of operations) {
    for (const { responses } of Object.values(methods)) {
      for (const [status, { description, content = {} }] of Object.entries(responses)) {
        if (!('application/problem+json' in content) || description === OTHER_ERROR) continue
        // The codes come first; words about them follow.
        const [list = ''] = description.split(/[:;]|, with/)
        for (const code of list.split(', ')) {
          t.ok(isCode(code), `${path} ${status}: ${code}`)
          const expected = code === 'upstream_error' ? 'default' : String(STATUS[code as ProblemCode])
          t.equal(status, expected, `${path}: ${code}`)
        }
      }
    }
  }
})

function isCode(text: string): boolean {
  return (PROBLEM_CODES as readonly string[]).includes(text)
}
