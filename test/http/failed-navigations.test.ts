import t, { type Test } from 'tap'
import type { Faults } from '../../sandbox/faults.ts'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import { parseConfig } from '../../src/config/config.ts'
import { PROBLEM_CODES, type ProblemCode, problem } from '../../src/errors.ts'
import { hooks } from '../../src/http/hooks.ts'
import { createServer } from '../../src/http/server.ts'
import { createLog } from '../../src/log.ts'
import { navigationPage } from '../../src/login/pages.ts'
import { type Answer, type Browser, createBrowser } from '../helpers/browser.ts'
import { startRedis } from '../helpers/redis.ts'
import { signInExpired } from '../helpers/replicas.ts'
import { SERVER_ENV } from '../helpers/server-process.ts'
import { CLIENT, decide, signIn, startBff, startSandbox, untilReady } from '../helpers/system.ts'

/** A navigation that fails, and its page. */
interface Row {
  code: ProblemCode
  status: number
  /** The paragraph of the page; by default the advice that fits the status. */
  text?: string
  /** By default a link to the start. */
  link?: { href: string; words: string }
  open: (browser: Browser) => Promise<Answer>
  /** Faults of the sandbox during the navigation. */
  faults?: Partial<Faults>
}

/** In each address that a row opens, and in each response of the resource server. No page may show it. */
const PLANTED = 'planted'
const NONCE = PLANTED.padEnd(43, 'n')

/** No navigation to a route with pages has one of these. */
const NEVER_A_PAGE: Partial<Record<ProblemCode, string>> = {
  headers_too_large: 'the parser has read no header that tells of a navigation',
  invalid_credentials: 'only POST /auth/password, which a script sends',
  payload_too_large: 'only requests with a body that is read',
  request_timeout: 'the parser has not read the whole head',
  unsupported_media_type: 'only requests with a body that is read',
}

const covered = new Set<ProblemCode>()

const to =
  (target: string, options: Parameters<Browser['navigate']>[1] = {}): Row['open'] =>
  (browser) =>
    browser.navigate(target, options)

const resource = (status: number, type = 'text/html'): Partial<Faults> => ({
  resource: { mode: 'status', status, headers: { 'content-type': type }, body: `<h1>${PLANTED}</h1>` },
})

function adviceOn(status: number): string {
  if (status >= 500) return 'You do not have to sign in again because of this. Try again in a moment.'
  if (status === 403) {
    return 'Trying again will not help: your account, or the page that led here, may not open this address.'
  }
  return status === 404 ? 'Nothing is at this address.' : 'Go back and start again.'
}

const escaped = (text: string): string => text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`)

/** Checks the page of a row: what it says, and that it holds no credential and no text of others. */
function isPage(t: Test, page: Answer, row: Omit<Row, 'open'>, secrets: readonly string[] = []): void {
  const { code, status, text = adviceOn(status), link = { href: '/', words: 'Go to the start' } } = row
  covered.add(code)
  t.equal(page.status, status)
  t.equal(page.headers['content-type'], 'text/html; charset=utf-8')
  t.equal(page.headers['cache-control'], 'no-store')
  t.match(page.headers['content-security-policy'], "default-src 'none'")
  const { title } = problem(code)
  t.match(page.text, `<title>${title}</title>`)
  t.match(page.text, `<h1>${title}</h1><p>${escaped(text)}</p>`)
  t.match(page.text, `<a href="${escaped(link.href)}">${link.words}</a>`)
  const id = String(page.headers['x-request-id'])
  t.match(id, /^[\w.-]{8,}$/)
  t.match(page.text, `<p class="id">Request ${id}</p>`)
  t.notMatch(page.setCookies.join('\n'), /^(session|record)=[^;]/m, 'it begins no session')
  const whole = JSON.stringify(page.headers) + page.text
  const shown = [PLANTED, ...secrets].filter((secret) => whole.includes(secret))
  t.strictSame(shown, [], 'neither a secret nor text of a request or an upstream')
}

/** Every credential that these browsers and the platform have exchanged. */
function secretsOf(sandbox: Sandbox, browsers: Browser[]): string[] {
  const cookies = browsers.flatMap((browser) => [...browser.cookies.values()].map(({ value }) => value))
  const sent = sandbox.journal
    .entries()
    .flatMap(({ form, headers: { authorization } }) => [
      ...['code', 'code_verifier', 'refresh_token'].map((name) => String(form?.[name] ?? '')),
      (authorization ?? '').replace('Bearer ', ''),
    ])
  return [CLIENT.clientSecret, ...cookies, ...sent].filter((secret) => secret.length > 8)
}

async function check(
  t: Test,
  rows: readonly Row[],
  { sandbox, browser }: { sandbox: Sandbox; browser: Browser },
) {
  for (const row of rows) {
    const before = sandbox.faults.current()
    await t.test(`${row.status} ${row.code}: ${row.text ?? adviceOn(row.status)}`, async (t) => {
      sandbox.faults.set(row.faults ?? {})
      // Before the navigation: one that signs in has its login cookie cleared.
      const cookies = secretsOf(sandbox, [browser])
      const page = await row.open(browser)
      isPage(t, page, row, [...cookies, ...secretsOf(sandbox, [browser])])
    })
    sandbox.faults.set(before)
  }
}

const NOT_COMPLETED = 'The sign-in could not be completed. Try again in a moment.'
/** The link of a sign-in with `returnTo` /app that fails at the callback. */
const TRY_AGAIN = { href: '/auth/login?returnTo=%2Fapp', words: 'Try again' }

t.test('a failed sign-in gets a page with its status, what to do and the request id', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { TOKEN_TIMEOUT_MS: '300' })
  const browser = bff.browser()
  await signIn(browser, sandbox)
  const signInAgain: Row['open'] = (browser) => signIn(browser, sandbox, '/app')
  const token = (tokenEndpoint: Faults['tokenEndpoint']): Partial<Faults> => ({ tokenEndpoint })
  const rows: Row[] = [
    {
      ...{ code: 'invalid_return_to', status: 400, open: to(`/auth/login?returnTo=//${PLANTED}`) },
      text: 'The parameter returnTo must be a path of this site, of at most 512 bytes.',
    },
    {
      ...{ code: 'invalid_request', status: 400, open: to(`/auth/login?flow=${PLANTED}`) },
      text: 'The parameter flow must be code.',
    },
    {
      ...{ code: 'invalid_request', status: 400, open: to(`/auth/callback/${NONCE}?code=a&code=${PLANTED}`) },
      text: 'The parameter code is repeated.',
    },
    {
      ...{ code: 'invalid_request', status: 400, open: to(`/auth/callback/${NONCE}?${PLANTED}=1`) },
      text: 'Exactly one of the parameters code and error is expected.',
    },
    {
      ...{ code: 'login_failed', status: 400, open: to(`/auth/callback/${PLANTED}?code=${PLANTED}`) },
      text: 'This address belongs to no sign-in.',
    },
    {
      ...{ code: 'login_failed', status: 400, open: to(`/auth/callback/${NONCE}?code=${PLANTED}`) },
      text: 'This sign-in was not started in this browser, is too old, or has been used.',
    },
    {
      ...{ code: 'login_failed', status: 400, open: signInAgain, faults: token({ mode: 'refuse' }) },
      ...{ text: 'The authorization server did not accept the sign-in.', link: TRY_AGAIN },
    },
    {
      code: 'cross_origin',
      status: 403,
      text: `This request comes marked none. Sign-in starts with a navigation of the whole page to ${bff.publicUrl}, not in a script or a frame.`,
      open: to('/auth/login', { headers: { 'sec-fetch-dest': 'iframe' } }),
    },
    {
      code: 'invalid_request',
      status: 400,
      open: to('/auth/callback/%ff?code=a'),
      text: 'Go back and start again.',
    },
    { code: 'not_found', status: 404, open: to(`/auth/${PLANTED}`) },
    { code: 'not_found', status: 404, open: to('/auth/callback/') },
    { code: 'method_not_allowed', status: 405, open: to('/auth/login', { method: 'POST' }) },
    { code: 'method_not_allowed', status: 405, open: to(`/auth/callback/${NONCE}`, { method: 'POST' }) },
    { code: 'uri_too_long', status: 414, open: to(`/auth/login?returnTo=/${PLANTED.repeat(2_000)}`) },
    { code: 'uri_too_long', status: 414, open: to(`/auth/callback/${NONCE}?error=${PLANTED.repeat(2_000)}`) },
    {
      ...{
        code: 'upstream_unavailable',
        status: 502,
        open: signInAgain,
        text: NOT_COMPLETED,
        link: TRY_AGAIN,
      },
      faults: token({ mode: 'html' }),
    },
    {
      ...{
        code: 'authorization_server_unavailable',
        status: 503,
        open: signInAgain,
        text: NOT_COMPLETED,
        link: TRY_AGAIN,
      },
      faults: token({ mode: 'status', status: 500, body: PLANTED }),
    },
    {
      ...{ code: 'authorization_server_unavailable', status: 503, open: signInAgain, link: TRY_AGAIN },
      text: 'This server is not set up correctly for the platform. Trying again will not help: tell the operator the request number.',
      faults: token({ mode: 'invalid_client' }),
    },
    {
      ...{ code: 'upstream_timeout', status: 504, open: signInAgain, text: NOT_COMPLETED, link: TRY_AGAIN },
      faults: token({ mode: 'hang' }),
    },
  ]
  await check(t, rows, { sandbox, browser })
  t.equal((await browser.fetch('/flux/a')).status, 200, 'the session before lives on')
})

t.test(
  'a navigation to data that fails gets a page with its status, what to do and the request id',
  async (t) => {
    const sandbox = await startSandbox(t)
    const bff = await startBff(t, sandbox, { WAC_ALLOWED: 'DEMO', UPSTREAM_TIMEOUT_MS: '300' })
    const browser = bff.browser()
    await signIn(browser, sandbox)
    const signedOut = bff.browser()
    await signIn(signedOut, sandbox)
    const left = [...signedOut.cookies]
    await signedOut.fetch('/auth/logout', { method: 'POST' })
    for (const [name, cookie] of left) signedOut.cookies.set(name, cookie)

    const flux = `/flux/a?${PLANTED}=${PLANTED}`
    const signInHere = { href: '/auth/login', words: 'Sign in' }
    const rows: Row[] = [
      { code: 'invalid_request', status: 400, open: to(`/flux/a?format=${PLANTED}`) },
      { code: 'invalid_request', status: 400, open: to('/flux/%ff') },
      {
        ...{
          code: 'login_required',
          status: 401,
          link: signInHere,
          open: () => bff.browser().navigate(flux),
        },
        text: 'Sign in, then open this address again.',
      },
      {
        ...{ code: 'login_required', status: 401, link: signInHere, open: () => signedOut.navigate(flux) },
        text: 'The session was ended by signing out.',
      },
      {
        code: 'cross_origin',
        status: 403,
        open: to(flux, { headers: { origin: `https://${PLANTED}.example` } }),
      },
      { code: 'wac_not_allowed', status: 403, open: to(`/flux/${PLANTED}/a`) },
      { code: 'upstream_refused', status: 403, open: to(flux), faults: resource(401) },
      { code: 'not_found', status: 404, open: to(`/flux/a/b/${PLANTED}`) },
      { code: 'method_not_allowed', status: 405, open: to(flux, { method: 'POST' }) },
      { code: 'not_acceptable', status: 406, open: to(flux, { headers: { accept: 'image/png' } }) },
      { code: 'uri_too_long', status: 414, open: to(`/flux/${PLANTED.repeat(2_000)}`) },
      { code: 'upstream_error', status: 404, open: to(flux), faults: resource(404) },
      { code: 'upstream_error', status: 409, open: to(flux), faults: resource(409) },
      { code: 'upstream_error', status: 500, open: to(flux), faults: resource(500) },
      { code: 'upstream_unavailable', status: 502, open: to(flux), faults: resource(200) },
      { code: 'upstream_unavailable', status: 502, open: to(flux), faults: { resource: { mode: 'drop' } } },
      { code: 'upstream_timeout', status: 504, open: to(flux), faults: { resource: { mode: 'hang' } } },
    ]
    await check(t, rows, { sandbox, browser })

    const expired = await signInExpired(bff, sandbox)
    await check(
      t,
      [
        {
          ...{ code: 'authorization_server_unavailable', status: 503, open: to(flux) },
          faults: { tokenEndpoint: { mode: 'status', status: 503, body: PLANTED } },
        },
      ],
      { sandbox, browser: expired },
    )
  },
)

t.test('too many sign-ins get a page', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { LOGIN_RATE_PER_MINUTE: '1' })
  const browser = bff.browser()
  await browser.navigate('/auth/login')
  const page = await browser.navigate('/auth/login')
  const text = 'Too many sign-ins. Wait a minute, then try again.'
  isPage(t, page, { code: 'rate_limited', status: 429, text })
  t.match(page.headers['retry-after'], /^[1-9]\d*$/)
})

t.test('while the store is down data and the callback get a page', async (t) => {
  const sandbox = await startSandbox(t)
  const redis = await startRedis(t)
  const bff = await startBff(t, sandbox, { REDIS_URL: redis.url })
  await untilReady(bff)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  const start = await browser.navigate('/auth/login')
  const back = await decide(sandbox, String(start.headers.location))
  await redis.stop()
  for (const [target, text] of [
    ['/flux/a', adviceOn(503)],
    [back, NOT_COMPLETED],
  ] as const) {
    const page = await browser.navigate(target)
    isPage(t, page, { code: 'store_unavailable', status: 503, text }, secretsOf(sandbox, [browser]))
    t.match(page.headers['retry-after'], /^[1-9]\d*$/, target)
  }
})

t.test('an unexpected error gets a page without its text', async (t) => {
  const parsed = parseConfig({ ...SERVER_ENV, PUBLIC_URL: 'http://localhost:3000' })
  if (!parsed.ok) throw new Error(parsed.faults.join())
  const server = createServer(parsed.config, createLog('silent'))
  await server.register(hooks, {
    ...{ secure: false, hasOperations: false, accessLog: 'off', log: createLog('silent') },
    observe() {},
    sessionOf: () => null,
    fallback: () => Promise.reject(new TypeError(PLANTED)),
    navigationPage,
  })
  t.teardown(() => server.close())
  const url = await server.listen({ host: '127.0.0.1', port: 0 })
  isPage(t, await createBrowser(url).navigate('/flux/a'), { code: 'internal_error', status: 500 })
})

t.test('every code is shown on a page, or no navigation has it', async (t) => {
  t.strictSame([...covered, ...Object.keys(NEVER_A_PAGE)].sort(), [...PROBLEM_CODES].sort())
})
