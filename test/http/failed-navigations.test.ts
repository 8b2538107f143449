import t, { type Test } from 'tap'
import type { Faults } from '../../sandbox/faults.ts'
import { PROFILES } from '../../sandbox/profiles.ts'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import { PROBLEM_CODES, type ProblemCode, problem } from '../../src/errors.ts'
import { StoreUnavailable } from '../../src/vault/store/store.ts'
import { type Answer, type Browser, createBrowser } from '../helpers/browser.ts'
import { signInExpired } from '../helpers/replicas.ts'
import { startAtProfile } from '../helpers/servers/profile.ts'
import { shared, signedIn } from '../helpers/shared.ts'
import { CLIENT, signIn, startBff, startSandbox } from '../helpers/system.ts'
import { withHooks } from './hooks-server.ts'
import { ask, field, OWN } from './wire.ts'

/** A navigation that fails, and its page. */
interface Row {
  code: ProblemCode
  status: number
  /** The paragraph of the page; by default the advice that fits the status. */
  text?: string
  /** By default a link to the start. */
  link?: { href: string; words: string }
  open: (browser: Browser) => Promise<Answer>
  /** The same call by a script of the page, which gets a problem. */
  ask?: (browser: Browser) => Promise<Answer>
  /** Faults of the sandbox meanwhile. */
  faults?: Partial<Faults>
}

/** In each address that a row opens, and in each response of the resource server. No page may show it. */
const PLANTED = 'planted'
const NONCE = PLANTED.padEnd(43, 'n')

/** No navigation to a route with pages has one of these. */
const NEVER_A_PAGE: Partial<Record<ProblemCode, string>> = {
  headers_too_large: 'the parser has read no header that tells of a navigation',
  invalid_credentials: 'only POST /auth/password, which a script sends',
  length_required: 'only an upload, which a script sends',
  payload_too_large: 'only requests with a body that is read',
  shutting_down: 'test/flows/stop.test.ts opens its page',
  token_refreshed: 'only an upload, which a script sends',
  request_timeout: 'the parser has not read the whole head',
  unsupported_media_type: 'only requests with a body that is read',
}

const covered = new Set<ProblemCode>()

const to =
  (target: string, options: Parameters<Browser['navigate']>[1] = {}): Row['open'] =>
  (browser) =>
    browser.navigate(target, options)

const row = (status: number, code: ProblemCode, open: Row['open'], more: Partial<Row> = {}): Row => ({
  ...{ status, code, open, ...more },
})

/** A call of data: a navigation to it gets a page, and a script a problem. */
const data = (status: number, code: ProblemCode, ...call: Parameters<typeof to>): Row =>
  row(status, code, to(...call), { ask: (browser) => browser.fetch(...call) })

function adviceOn({ status, code }: Pick<Row, 'status' | 'code'>): string {
  if (code === 'cross_origin') return 'Open it from a page of this site instead.'
  if (status >= 500) return 'You do not have to sign in again because of this. Try again in a moment.'
  if (status === 403) return 'Trying again will not help: your account may not open this address.'
  return status === 404 ? 'Check it for a misspelling.' : 'Go back and start again.'
}

const escaped = (text: string): string => text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`)

/** Checks the page of a row: what it says, and that it holds no credential and no text of others. */
function isPage(t: Test, page: Answer, row: Omit<Row, 'open'>, secrets: readonly string[] = []): void {
  const { code, status, text = adviceOn(row), link = { href: '/', words: 'Go to the start' } } = row
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

/** Checks the problem of a row: these members and no others. */
function isJson(t: Test, { status, headers, json }: Answer, row: Row): void {
  const { code } = row
  t.equal(status, row.status)
  t.match(headers['content-type'], /^application\/problem\+json/)
  const body = json()
  t.match(body, { type: /^[a-z]+:\S+$/, title: /./, status, detail: /./, code })
  t.equal(body.requestId, headers['x-request-id'])
  const members = ['type', 'title', 'status', 'detail', 'code', 'requestId']
  const ofLogin = row.link?.href === '/auth/login' ? ['loginUrl'] : []
  const ofEnd = code === 'login_required' && 'reason' in body ? ['reason'] : []
  t.strictSame(Object.keys(body), [...members, ...ofLogin, ...ofEnd])
  t.equal(body.loginUrl, ofLogin.length > 0 ? '/auth/login' : undefined)
  if (status === 401) t.match(headers['www-authenticate'], /^Session /)
  if (status === 503 || status === 429) t.match(headers['retry-after'], /^[1-9]\d*$/)
}

/** Every credential that this browser and the platform have exchanged. */
function secretsOf(sandbox: Sandbox, browser: Browser): string[] {
  const cookies = [...browser.cookies.values()].map(({ value }) => value)
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
    await t.test(`${row.status} ${row.code}: ${row.text ?? adviceOn(row)}`, async (t) => {
      sandbox.faults.set(row.faults ?? {})
      // Before the navigation: one that signs in has its login cookie cleared.
      const cookies = secretsOf(sandbox, browser)
      const page = await row.open(browser)
      isPage(t, page, row, [...cookies, ...secretsOf(sandbox, browser)])
      if (row.ask !== undefined) isJson(t, await row.ask(browser), row)
    })
    sandbox.faults.set(before)
  }
}

const NOT_COMPLETED = 'The sign-in could not be completed. Try again in a moment.'

t.test('a failed sign-in gets a page with its status, what to do and the request id', async (t) => {
  const { sandbox, bff, browser } = await signedIn()
  const framed = { headers: { 'sec-fetch-dest': 'iframe' } }
  await check(
    t,
    [
      row(400, 'invalid_return_to', to(`/auth/login?returnTo=//${PLANTED}`), {
        text: 'The parameter returnTo must be the path of a page of this site, of at most 512 bytes.',
      }),
      row(400, 'invalid_request', to(`/auth/login?flow=${PLANTED}`), {
        text: 'The parameter flow must be code.',
      }),
      row(
        400,
        'invalid_request',
        () => bff.browser().navigate(`/auth/callback/${NONCE}?code=a&code=${PLANTED}`),
        {
          text: 'The parameter code is repeated.',
        },
      ),
      row(400, 'invalid_request', () => bff.browser().navigate(`/auth/callback/${NONCE}?${PLANTED}=1`), {
        text: 'Exactly one of the parameters code and error is expected.',
      }),
      row(400, 'login_failed', to(`/auth/callback/${PLANTED}?code=${PLANTED}`), {
        text: 'This address belongs to no sign-in.',
      }),
      row(400, 'login_failed', () => bff.browser().navigate(`/auth/callback/${NONCE}?code=${PLANTED}`), {
        text: 'This sign-in was not started in this browser, is too old, or has been used.',
        link: { href: '/auth/login', words: 'Sign in' },
      }),
      row(400, 'login_failed', (browser) => signIn(browser, sandbox, '/app'), {
        text: 'The authorization server did not accept this sign-in. If that happens each time, tell the operator the request number.',
        link: { href: '/auth/login?returnTo=%2Fapp', words: 'Sign in' },
        faults: { tokenEndpoint: { mode: 'refuse' } },
      }),
      row(403, 'cross_origin', to('/auth/login', framed), {
        text: `This request comes marked none. Sign-in starts with a navigation of the whole page to ${bff.publicUrl}, not in a script or a frame.`,
      }),
      row(404, 'not_found', to(`/auth/${PLANTED}`)),
      row(404, 'not_found', to('/auth')),
      row(405, 'method_not_allowed', to('/auth/logout'), {
        text: 'This address cannot be opened in this way. Use POST.',
      }),
      row(403, 'cross_origin', to('/auth/logout', { method: 'POST', from: 'cross-site' })),
      row(405, 'method_not_allowed', to('/auth/login', { method: 'POST' }), {
        text: 'This address cannot be opened in this way. Use GET.',
      }),
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

t.test('a call of data that fails gets a page in a navigation, and a problem in a script', async (t) => {
  const { sandbox, bff, browser } = await signedIn({ WAC_ALLOWED: 'DEMO' })
  const signedOut = bff.browser()
  await signIn(signedOut, sandbox)
  const left = [...signedOut.cookies]
  await signedOut.fetch('/auth/logout', { method: 'POST' })
  for (const [name, cookie] of left) signedOut.cookies.set(name, cookie)

  const flux = `/flux/a?${PLANTED}=${PLANTED}`
  const link = { href: '/auth/login', words: 'Sign in' }
  const fails = (status: number, code: ProblemCode, resource: Partial<Faults>['resource']) => ({
    ...data(status, code, flux),
    ...{ faults: { resource } as Partial<Faults> },
  })
  const says = (status: number) => {
    const headers = { 'content-type': 'text/html', 'retry-after': '9' }
    return { mode: 'status', status, headers, body: `<h1>${PLANTED}</h1>` } as const
  }
  await check(
    t,
    [
      data(400, 'invalid_request', `/flux/a?format=${PLANTED}`),
      data(400, 'invalid_request', `/flux/DEMO/a?format=<b>${PLANTED}`),
      data(400, 'invalid_request', '/flux/%ff'),
      // Refused before their routes: by the router, and by the first hook.
      data(400, 'invalid_request', `/flux/%zz?${PLANTED}`),
      data(400, 'invalid_request', `/flux/${PLANTED.repeat(800)}`),
      row(401, 'login_required', () => bff.browser().navigate(flux), {
        ...{ link, text: 'Sign in, then open this address again.' },
        ask: () => bff.browser().fetch(flux),
      }),
      // The router decodes the path.
      row(401, 'login_required', () => bff.browser().navigate(`/%66lux/${PLANTED}`), {
        ...{ link, text: 'Sign in, then open this address again.' },
      }),
      row(401, 'login_required', () => signedOut.navigate(flux), {
        ...{ link, text: 'The session was ended by signing out.' },
        ask: () => signedOut.fetch(flux),
      }),
      data(403, 'cross_origin', flux, { headers: { origin: `https://${PLANTED}.example` } }),
      row(403, 'cross_origin', to(flux, { from: 'cross-site' }), {
        text: 'Another site has sent you here. Open the address only if you meant to.',
        link: { href: '', words: 'Open' },
      }),
      data(403, 'wac_not_allowed', `/flux/${PLANTED}/a`),
      fails(403, 'upstream_refused', says(401)),
      data(404, 'not_found', `/flux/a/b/${PLANTED}`),
      data(404, 'not_found', `/flux/?${PLANTED}`),
      {
        ...data(405, 'method_not_allowed', flux, { method: 'POST' }),
        text: 'This address cannot be opened in this way. Use GET or HEAD.',
      },
      data(406, 'not_acceptable', flux, { headers: { accept: 'image/png' } }),
      data(414, 'uri_too_long', `/flux/${PLANTED.repeat(2_000)}`),
      data(414, 'uri_too_long', `/flux/a?x=${PLANTED.repeat(2_000)}`),
      ...[404, 409, 500, 503].map((status) => fails(status, 'upstream_error', says(status))),
      fails(502, 'upstream_unavailable', says(200)),
      fails(502, 'upstream_unavailable', { mode: 'drop' }),
    ],
    { sandbox, browser },
  )

  const hurried = await signedIn({ UPSTREAM_TIMEOUT_MS: '300' })
  await check(t, [fails(504, 'upstream_timeout', { mode: 'hang' })], hurried)

  const own = await startSandbox(t)
  const expired = await signInExpired(await startBff(t, own), own)
  const faults = { tokenEndpoint: { mode: 'status', status: 503, body: PLANTED } } as const
  const unavailable = { ...data(503, 'authorization_server_unavailable', flux), faults }
  await check(t, [unavailable], { sandbox: own, browser: expired })
})

t.test(
  'a grant that is dead in unknown words offers a sign-in, in a navigation and in a script',
  async (t) => {
    const { sandbox, bff } = await startAtProfile(t, PROFILES.glewlwyd!, { env: { OAUTH_REFUSED_GRANT: '' } })
    const browser = bff.browser()
    await signIn(browser, sandbox)
    sandbox.revokeAll()
    sandbox.expireAccessTokens()
    const rejected = {
      ...data(503, 'authorization_server_unavailable', '/flux/a'),
      text: 'The authorization server refreshes no tokens of this session now. A new sign-in may help.',
      link: { href: '/auth/login', words: 'Sign in' },
    }
    await check(t, [rejected], { sandbox, browser })
    await signIn(browser, sandbox)
    t.equal((await browser.fetch('/flux/a')).status, 200, 'which helps')
  },
)

t.test('no text of an address reaches a page of /auth, and other paths answer in JSON', async (t) => {
  const { port } = await shared()
  const long = PLANTED.repeat(2_000)
  const navigate = [OWN, ['Sec-Fetch-Mode', 'navigate']] as const
  for (const [target, status] of [
    ['/auth/nothing/%zz', 400],
    ['/auth/callback/%zz?code=c', 400],
    [`/auth/callback/${NONCE.repeat(100)}?code=c`, 400],
    [`/auth/nothing?x=${long}`, 414],
    [`/auth/callback/${NONCE}?code=${long}`, 414],
    [`/auth/login?returnTo=/${long}`, 414],
    [`/%61uth/${PLANTED}<script>`, 404],
    [`/%61uth/login?flow=${PLANTED}`, 400],
  ] as const) {
    const page = await ask(port, { target, headers: navigate })
    const what = target.slice(0, 40)
    t.strictSame([page.status, field(page, 'content-type')], [status, 'text/html; charset=utf-8'], what)
    t.notMatch(page.body, /planted|<script/, what)
  }
  for (const target of ['/site/1', '/auth/session'])
    t.match(field(await ask(port, { target, headers: navigate }), 'content-type'), /json/, target)
})

/** What Firefox sends where a service worker answers a navigation with `fetch(event.request)`. */
const PASSED_ON = {
  'sec-fetch-mode': 'same-origin',
  'sec-fetch-dest': 'empty',
  'sec-fetch-site': 'same-origin',
  accept: 'text/html,application/xhtml+xml,*/*;q=0.8',
}

t.test('a navigation that a service worker of Firefox passes on is a navigation everywhere', async (t) => {
  const { bff, sandbox } = await shared()
  const browser = bff.browser()
  const passOn = (path: string, method = 'GET') => browser.navigate(path, { method, headers: PASSED_ON })
  const begun = await passOn('/auth/login')
  t.equal(begun.status, 303)
  t.match(begun.headers.location, new URL('/oauth/authorize', sandbox.url).href)
  for (const [path, status] of [
    [`/auth/callback/${NONCE}?code=a`, 400],
    ['/auth/nothing', 404],
    ['/flux/temperature', 401],
  ] as const) {
    const page = await passOn(path)
    t.strictSame([page.status, page.headers['content-type']], [status, 'text/html; charset=utf-8'], path)
  }
  t.equal((await passOn('/auth/logout', 'POST')).headers.location, '/', 'a form signs out')
  for (const other of [
    { accept: '*/*' },
    { 'sec-fetch-mode': 'cors' },
    { 'sec-fetch-mode': 'no-cors' },
    { 'sec-fetch-dest': 'iframe' },
  ])
    t.match(
      (await browser.navigate('/auth/login', { headers: { ...PASSED_ON, ...other } })).json(),
      { code: 'cross_origin' },
      JSON.stringify(other),
    )
})

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
    const { listen } = await withHooks(t, () => Promise.reject(error))
    const url = await listen()
    isPage(t, await createBrowser(url).navigate('/flux/a'), { code, status })
  }
})

t.test('every code is shown on a page, or no navigation has it', async (t) => {
  t.strictSame([...covered, ...Object.keys(NEVER_A_PAGE)].sort(), [...PROBLEM_CODES].sort())
})
