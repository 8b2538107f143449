import t from 'tap'
import { isProblem } from '../helpers/browser.ts'
import { shared, signedIn } from '../helpers/shared.ts'
import { metricsOf, startBff, startSandbox } from '../helpers/system.ts'
import { ALICE, sendPassword, signedInOverRedis } from './sign-ins.ts'

const PERMITTED = { OAUTH_FLOWS: 'code,password' }

t.test('the password flow is served only if OAUTH_FLOWS names it', async (t) => {
  const { sandbox, bff } = await shared()
  isProblem(t, await sendPassword(bff.browser(), ALICE), 404, 'not_found', 'off')
  t.equal(sandbox.journal.entries().length, 0)

  const answer = await (await shared(PERMITTED)).bff.browser().fetch('/auth/password')
  isProblem(t, answer, 405, 'method_not_allowed', 'GET')
  t.equal(answer.headers.allow, 'POST')
})

t.test('user name and password start a session like any other and end the previous one', async (t) => {
  const { sandbox, bff, browser } = await signedIn(PERMITTED)
  const before = new Map(browser.cookies)

  const answer = await sendPassword(browser, ALICE)
  t.equal(answer.status, 200)
  const session = (await browser.fetch('/auth/session')).json()
  t.strictSame({ ...answer.json(), now: '' }, { ...session, now: '' }, 'the body of /auth/session')
  t.match(answer.json(), { authenticated: true, flow: 'password', refreshable: true, wac: 'DEMO' })
  t.not(browser.cookies.get('session')!.value, before.get('session')!.value)
  sandbox.faults.set({ resource: { mode: 'invalid-token', times: 1 } })
  t.equal((await browser.fetch('/flux/a')).status, 200, 'its token is refreshed')
  const [request, refresh] = sandbox.journal.entries({ endpoint: 'token' })
  t.match(request?.form, {
    grant_type: 'password',
    ...ALICE,
    scope: sandbox.baseUrl,
    redirect_uri: `${bff.publicUrl}/auth/callback`,
  })
  t.match(refresh?.form, { grant_type: 'refresh_token' })
  t.notMatch(bff.log(), 'wonderland')
  t.match(await metricsOf(bff), /^bff_sessions_started_total\{flow="password"\} [1-9]/m)

  for (const [name, cookie] of before) browser.cookies.set(name, cookie)
  const ended = await browser.fetch('/flux/a')
  isProblem(t, ended, 401, 'login_required', 'the session before')
  t.equal(ended.json().detail, 'The session ended when a new one was started.')
})

t.test('a faulty password request names its fault and changes no session', async (t) => {
  const { sandbox, browser } = await signedIn(PERMITTED)
  const before = new Map(browser.cookies)
  for (const [body, detail] of [
    ['', 'The body is empty.'],
    ['{', /^The body is not valid JSON\.$/],
    ['[object Object]', 'The body is not valid JSON. It is [object Object]: use JSON.stringify.'],
    [[], 'The body must be a JSON object.'],
    [{}, 'The member username is missing.'],
    [{ username: 'a' }, 'The member password is missing.'],
    [{ username: '', password: 'b' }, /^The member username /],
    [{ username: 'a', password: 5 }, /^The member password /],
    [{ username: 'a', password: 'b'.repeat(1025) }, /^The member password /],
    [{ ...ALICE, remember: true }, 'The member remember is not known.'],
  ] as const) {
    const answer = await sendPassword(browser, body)
    isProblem(t, answer, 400, 'invalid_request', String(detail))
    t.match(answer.json().detail, detail)
  }
  for (const [options, status, code] of [
    [{ headers: { 'sec-fetch-site': 'cross-site' } }, 403, 'cross_origin'],
    [{ headers: { 'content-type': 'application/x-www-form-urlencoded' } }, 415, 'unsupported_media_type'],
    [{ body: ' '.repeat(20_000) }, 413, 'payload_too_large'],
  ] as const) {
    isProblem(t, await sendPassword(browser, ALICE, options), status, code, code)
  }
  t.equal(sandbox.journal.entries().length, 0, 'no request reached the platform')

  const wrong = await sendPassword(browser, { ...ALICE, password: 'wrong' })
  isProblem(t, wrong, 401, 'invalid_credentials', 'a wrong password')
  t.strictSame(browser.cookies, before)
  t.equal((await browser.fetch('/flux/a')).status, 200)
})

t.test('a failing token endpoint or an unreachable store is not reported as a wrong password', async (t) => {
  for (const [fault, status, code] of [
    [{ mode: 'invalid_client' }, 503, 'authorization_server_unavailable'],
    [
      { mode: 'status', status: 401, body: '{"error":"invalid_token"}' },
      503,
      'authorization_server_unavailable',
    ],
    [{ mode: 'refuse', error: 'temporarily_unavailable' }, 503, 'authorization_server_unavailable'],
    [{ mode: 'refuse', error: 'unsupported_grant_type' }, 503, 'authorization_server_unavailable'],
    [{ mode: 'html' }, 502, 'upstream_unavailable'],
  ] as const) {
    const { sandbox, bff } = await shared(PERMITTED)
    sandbox.faults.set({ tokenEndpoint: fault })
    const answer = await sendPassword(bff.browser(), { ...ALICE, username: `alice ${code}` })
    isProblem(t, answer, status, code, fault.mode)
  }
  const { sandbox, redis, bff } = await signedInOverRedis(t, PERMITTED)
  const browser = bff.browser()
  await redis.stop()
  isProblem(t, await sendPassword(browser, ALICE), 503, 'store_unavailable', 'no store')
  t.equal(sandbox.journal.entries().length, 0, 'no tokens are requested that could not be stored')
  t.equal(browser.cookies.size, 0)
})

t.test('five tries a minute are permitted for a name and address, and thirty from an address', async (t) => {
  const sandbox = await startSandbox(t)
  const env = { ...PERMITTED, TRUST_PROXY: '127.0.0.1/32', LOGIN_RATE_PER_MINUTE: '0' }
  const bff = await startBff(t, sandbox, env)
  const browser = bff.browser()
  const from = (address: string) => ({ headers: { 'x-forwarded-for': address } })
  for (let attempt = 0; attempt < 5; attempt += 1) {
    const name = ['alice', 'AL\u0130CE', ' \u00e1lice ', 'alice\u0308\ud800', 'ali\u200bce'][attempt]
    const wrong = { username: name, password: `wrong ${attempt}` }
    const answer = await sendPassword(browser, wrong, from('192.0.2.1'))
    isProblem(t, answer, 401, 'invalid_credentials', `try ${attempt}`)
  }
  const limited = await sendPassword(browser, ALICE, from('192.0.2.1'))
  isProblem(t, limited, 429, 'rate_limited', 'the sixth')
  const wait = Number(limited.headers['retry-after'])
  t.ok(wait > 0 && wait <= 60, `${wait} s`)
  t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, 5)

  for (let attempt = 0; attempt < 30; attempt += 1) {
    const answer = await sendPassword(browser, '{', from('198.51.100.1'))
    isProblem(t, answer, 400, 'invalid_request', 'bad bodies count')
  }
  const many = await sendPassword(browser, 'x', {
    headers: { ...from('198.51.100.1').headers, 'content-type': 'text/plain' },
  })
  isProblem(t, many, 429, 'rate_limited', 'before the body is looked at')
  isProblem(
    t,
    await sendPassword(browser, '{', from('198.51.100.2')),
    400,
    'invalid_request',
    'another address',
  )
  const lines = bff.log().match(/.*"rate_limit\.exceeded".*/g) ?? []
  t.equal(lines.length, 2)
  for (const line of lines) {
    t.match(line, 'too many passwords: the limits are fixed, so wait for a minute')
    t.notMatch(line, 'LOGIN_RATE_PER_MINUTE', 'no variable changes these limits')
  }
})

t.test(
  'a stranger locks no user out by wrong passwords, and fifty a minute are permitted for a name',
  async (t) => {
    const sandbox = await startSandbox(t)
    const env = { ...PERMITTED, TRUST_PROXY: '127.0.0.1/32', LOGIN_RATE_PER_MINUTE: '0' }
    const bff = await startBff(t, sandbox, env)
    const attempt = (address: string, password: string) => {
      const headers = { 'x-forwarded-for': address }
      return sendPassword(bff.browser(), { ...ALICE, password }, { headers })
    }
    const statuses: number[] = []
    for (let tries = 0; tries < 8; tries += 1) statuses.push((await attempt('192.0.2.1', 'wrong')).status)
    t.strictSame(statuses, [401, 401, 401, 401, 401, 429, 429, 429])
    t.equal((await attempt('198.51.100.1', ALICE.password)).status, 200, 'the user, from elsewhere')
    // Five from the stranger and one of the user are counted for the name; what was refused is not.
    for (let tries = 0; tries < 44; tries += 1)
      t.equal((await attempt(`203.0.113.${tries}`, 'wrong')).status, 401, `${tries}`)
    t.equal((await attempt('203.0.113.200', 'wrong')).status, 429, 'the next one')
  },
)
