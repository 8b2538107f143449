import t from 'tap'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import { elapsed } from '../helpers/wait.ts'
import { ask, field, OWN, portOf, problemOf } from './wire.ts'

const NAVIGATE = [
  ['Sec-Fetch-Mode', 'navigate'],
  ['Sec-Fetch-Site', 'none'],
  ['Accept', 'text/html'],
] as const

t.test(
  'a navigation to data or to an unknown address below /auth that fails gets a page of fixed text',
  async (t) => {
    const sandbox = await startSandbox(t)
    const bff = await startBff(t, sandbox)
    for (const [target, status] of [
      ['/flux/a', 401],
      ['/flux/DEMO/a?format=<b>', 400],
      ['/flux/', 404],
      ['/flux/a/b/c', 404],
      ['/auth/planted<script>', 404],
      ['/auth/', 404],
      // Refused before their routes: by the router, and by the first hook.
      ['/flux/%zz', 400],
      ['/auth/nothing/%zz', 400],
      [`/flux/${'a'.repeat(5_000)}`, 400],
      [`/flux/a?planted=${'b'.repeat(9_000)}`, 414],
      [`/auth/nothing?planted=${'b'.repeat(9_000)}`, 414],
      // The router decodes the path.
      ['/%66lux/a', 401],
      ['/%61uth/nothing', 404],
    ] as const) {
      const what = target.slice(0, 40)
      const page = await ask(portOf(bff), { target, headers: NAVIGATE })
      t.equal(page.status, status, what)
      t.equal(field(page, 'content-type'), 'text/html; charset=utf-8', what)
      t.equal(field(page, 'cache-control'), 'no-store', what)
      t.match(field(page, 'content-security-policy'), /default-src 'none'/, what)
      t.notMatch(page.body, /planted|<b>|<script/, `${what}: no text of the request`)
      t.match(page.body, status === 401 ? 'href="/auth/login">Sign in</a>' : 'href="/"', what)
      const problem = await ask(portOf(bff), { target, headers: [OWN, ['Accept', 'text/html']] })
      t.equal(problem.status, status, what)
      t.match(
        field(problem, 'content-type'),
        /^application\/problem\+json/,
        `${what}: fetch gets JSON as before`,
      )
    }
    for (const target of ['/site/1', '/auth/session', '/auth/logout']) {
      const answer = await ask(portOf(bff), { target, headers: NAVIGATE })
      t.match(field(answer, 'content-type'), /json/, `${target} answers in JSON`)
    }
  },
)

t.test(
  'a sign-in that fails gets a page for a navigation alone, wherever the request is refused',
  async (t) => {
    const port = portOf(await startBff(t, await startSandbox(t)))
    for (const [target, status] of [
      [`/auth/callback/${'n'.repeat(43)}?code=${'c'.repeat(9_000)}`, 414],
      [`/auth/callback/${'n'.repeat(5_000)}?code=c`, 400],
      ['/auth/callback/%zz?code=c', 400],
      [`/auth/login?returnTo=/${'c'.repeat(9_000)}`, 414],
      ['/%61uth/login?flow=none', 400],
    ] as const) {
      const what = target.slice(0, 40)
      const page = await ask(port, { target, headers: NAVIGATE })
      t.equal(page.status, status, what)
      t.equal(field(page, 'content-type'), 'text/html; charset=utf-8', what)
      t.match(field(page, 'content-security-policy'), /default-src 'none'/, what)
      const json = await ask(port, { target, headers: [['Sec-Fetch-Mode', 'cors']] })
      t.match(field(json, 'content-type'), /^application\/problem\+json/, what)
    }
  },
)

t.test('the page of an ended session says why it ended', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { SESSION_MAX_SECONDS: '1', SESSION_IDLE_SECONDS: '1' })
  const browser = bff.browser()
  await signIn(browser, sandbox)
  await elapsed(1_050)
  const page = await browser.navigate('/flux/a')
  t.equal(page.status, 401)
  t.match(page.text, /The session has reached its longest duration/)
})

t.test('cross_origin names the origin that asked and PUBLIC_URL, in detail and log', async (t) => {
  const bff = await startBff(t, await startSandbox(t), { OAUTH_FLOWS: 'code,password' })
  for (const [origin, named] of [
    ['https://other.example', 'from https://other.example.'],
    ['http://localhost:5173', 'from http://localhost:5173.'],
    ['null', 'from null.'],
    ['no <origin>', 'with an Origin that no browser writes.'],
    ['https://evil.example/', 'with an Origin that no browser writes.'],
    [`https://${'a'.repeat(300)}.example`, 'with an Origin that no browser writes.'],
  ] as const) {
    for (const [method, target] of [
      ['POST', '/auth/logout'],
      ['POST', '/auth/session'],
      ['POST', '/auth/password'],
      ['PUT', '/site/1'],
      ['GET', '/flux/a'],
    ] as const) {
      const answer = await ask(portOf(bff), { method, target, headers: [['Origin', origin]] })
      t.equal(answer.status, 403)
      const { code, detail } = problemOf(answer)
      t.equal(code, 'cross_origin')
      t.match(detail, named)
      t.match(detail, `Only pages of ${bff.publicUrl} may ask`)
      t.match(bff.log(), JSON.stringify({ reason: detail }).slice(1, -1))
    }
  }
  for (const [site, asked] of [
    [[['Sec-Fetch-Site', 'same-site']], 'marked same-site'],
    [[['Referer', 'https://other.example/page?planted=1']], 'from https://other.example.'],
    [[['Referer', 'about:planted']], 'without an origin'],
  ] as const) {
    const { detail } = problemOf(await ask(portOf(bff), { target: '/flux/a', headers: site }))
    t.match(detail, asked)
    t.notMatch(detail, 'planted')
  }
})

t.test(
  'a sign-in in a script or a frame is cross_origin, naming the origin that asked and PUBLIC_URL',
  async (t) => {
    const bff = await startBff(t, await startSandbox(t))
    const mode = ['Sec-Fetch-Mode', 'cors'] as const
    const site = ['Sec-Fetch-Site', 'cross-site'] as const
    for (const [headers, asked] of [
      [[mode, site, ['Origin', 'https://other.example']], 'from https://other.example.'],
      [[mode, site, ['Referer', 'https://other.example/page']], 'from https://other.example.'],
      [[mode, site], 'marked cross-site.'],
    ] as const) {
      const answer = await ask(portOf(bff), { target: '/auth/login', headers })
      t.equal(answer.status, 403)
      const { code, detail } = problemOf(answer)
      t.equal(code, 'cross_origin')
      t.match(detail, asked)
      t.match(detail, `a navigation of the whole page to ${bff.publicUrl},`)
      t.match(bff.log(), JSON.stringify({ reason: detail }).slice(1, -1))
    }
  },
)
