import t, { type Test } from 'tap'
import type { Faults } from '../../sandbox/faults.ts'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import { PROBLEM_CODES, type ProblemCode, problem } from '../../src/errors.ts'
import { hooks } from '../../src/http/hooks.ts'
import { createServer } from '../../src/http/server.ts'
import { createLog } from '../../src/log.ts'
import { navigationPage } from '../../src/login/pages.ts'
import { StoreUnavailable } from '../../src/store/store.ts'
import { configOf } from '../config/environment.ts'
import { type Answer, type Browser, createBrowser } from '../helpers/browser.ts'
import { signInExpired } from '../helpers/replicas.ts'
import { signedIn } from '../helpers/shared.ts'
import { CLIENT, signIn, startBff, startSandbox } from '../helpers/system.ts'

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

const row = (status: number, code: ProblemCode, open: Row['open'], more: Partial<Row> = {}): Row => ({
  ...{ status, code, open, ...more },
})

t.test('a failed sign-in gets a page with its status, what to do and the request id', async (t) => {
  const { sandbox, bff, browser } = await signedIn()
  const framed = { headers: { 'sec-fetch-dest': 'iframe' } }
  await check(
    t,
    [
      row(400, 'invalid_return_to', to(`/auth/login?returnTo=//${PLANTED}`), {
        text: 'The parameter returnTo must be a path of this site, of at most 512 bytes.',
      }),
      row(400, 'invalid_request', to(`/auth/login?flow=${PLANTED}`), {
        text: 'The parameter flow must be code.',
      }),
      row(400, 'invalid_request', to(`/auth/callback/${NONCE}?code=a&code=${PLANTED}`), {
        text: 'The parameter code is repeated.',
      }),
      row(400, 'invalid_request', to(`/auth/callback/${NONCE}?${PLANTED}=1`), {
        text: 'Exactly one of the parameters code and error is expected.',
      }),
      row(400, 'login_failed', to(`/auth/callback/${PLANTED}?code=${PLANTED}`), {
        text: 'This address belongs to no sign-in.',
      }),
      row(400, 'login_failed', to(`/auth/callback/${NONCE}?code=${PLANTED}`), {
        text: 'This sign-in was not started in this browser, is too old, or has been used.',
      }),
      row(400, 'login_failed', (browser) => signIn(browser, sandbox, '/app'), {
        text: 'The authorization server did not accept the sign-in.',
        link: { href: '/auth/login?returnTo=%2Fapp', words: 'Try again' },
        faults: { tokenEndpoint: { mode: 'refuse' } },
      }),
      row(403, 'cross_origin', to('/auth/login', framed), {
        text: `This request comes marked none. Sign-in starts with a navigation of the whole page to ${bff.publicUrl}, not in a script or a frame.`,
      }),
      row(404, 'not_found', to(`/auth/${PLANTED}`)),
      row(405, 'method_not_allowed', to('/auth/login', { method: 'POST' })),
      row(405, 'method_not_allowed', to(`/auth/callback/${NONCE}`, { method: 'POST' })),
      row(502, 'upstream_unavailable', (browser) => signIn(browser, sandbox, '/app'), {
        text: NOT_COMPLETED,
        link: { href: '/auth/login?returnTo=%2Fapp', words: 'Try again' },
        faults: { tokenEndpoint: { mode: 'html' } },
      }),
    ],
    { sandbox, browser },
  )
  t.equal((await browser.fetch('/flux/a')).status, 200, 'the session before lives on')
})

t.test(
  'a navigation to data that fails gets a page with its status, what to do and the request id',
  async (t) => {
    const { sandbox, bff, browser } = await signedIn({ WAC_ALLOWED: 'DEMO' })
    const signedOut = bff.browser()
    await signIn(signedOut, sandbox)
    const left = [...signedOut.cookies]
    await signedOut.fetch('/auth/logout', { method: 'POST' })
    for (const [name, cookie] of left) signedOut.cookies.set(name, cookie)

    const flux = `/flux/a?${PLANTED}=${PLANTED}`
    const link = { href: '/auth/login', words: 'Sign in' }
    const upstreamError = (status: number) =>
      row(status, 'upstream_error', to(flux), { faults: resource(status) })
    await check(
      t,
      [
        row(400, 'invalid_request', to(`/flux/a?format=${PLANTED}`)),
        row(400, 'invalid_request', to('/flux/%ff')),
        row(401, 'login_required', () => bff.browser().navigate(flux), {
          ...{ link, text: 'Sign in, then open this address again.' },
        }),
        row(401, 'login_required', () => signedOut.navigate(flux), {
          ...{ link, text: 'The session was ended by signing out.' },
        }),
        row(403, 'cross_origin', to(flux, { headers: { origin: `https://${PLANTED}.example` } })),
        row(403, 'wac_not_allowed', to(`/flux/${PLANTED}/a`)),
        row(403, 'upstream_refused', to(flux), { faults: resource(401) }),
        row(404, 'not_found', to(`/flux/a/b/${PLANTED}`)),
        row(405, 'method_not_allowed', to(flux, { method: 'POST' })),
        row(406, 'not_acceptable', to(flux, { headers: { accept: 'image/png' } })),
        row(414, 'uri_too_long', to(`/flux/${PLANTED.repeat(2_000)}`)),
        ...[404, 409, 500].map(upstreamError),
        row(502, 'upstream_unavailable', to(flux), { faults: resource(200) }),
        row(502, 'upstream_unavailable', to(flux), { faults: { resource: { mode: 'drop' } } }),
      ],
      { sandbox, browser },
    )

    const hurried = await signedIn({ UPSTREAM_TIMEOUT_MS: '300' })
    const hang = { faults: { resource: { mode: 'hang' } } } as const
    await check(t, [row(504, 'upstream_timeout', to(flux), hang)], hurried)

    const own = await startSandbox(t)
    const expired = await signInExpired(await startBff(t, own), own)
    const faults = { tokenEndpoint: { mode: 'status', status: 503, body: PLANTED } } as const
    const unavailable = row(503, 'authorization_server_unavailable', to(flux), { faults })
    await check(t, [unavailable], { sandbox: own, browser: expired })
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

t.test('an unexpected error, and a store that is down, get a page without their text', async (t) => {
  const cause = new TypeError(PLANTED)
  for (const [error, code, status] of [
    [cause, 'internal_error', 500],
    [new StoreUnavailable(cause), 'store_unavailable', 503],
  ] as const) {
    const server = createServer(configOf({ PUBLIC_URL: 'http://localhost:3000' }), createLog('silent'))
    await server.register(hooks, {
      ...{ secure: false, hasOperations: false, accessLog: 'off', log: createLog('silent') },
      observe() {},
      sessionOf: () => null,
      fallback: () => Promise.reject(error),
      navigationPage,
    })
    t.teardown(() => server.close())
    const url = await server.listen({ host: '127.0.0.1', port: 0 })
    isPage(t, await createBrowser(url).navigate('/flux/a'), { code, status })
  }
})

t.test('every code is shown on a page, or no navigation has it', async (t) => {
  t.strictSame([...covered, ...Object.keys(NEVER_A_PAGE)].sort(), [...PROBLEM_CODES].sort())
})
