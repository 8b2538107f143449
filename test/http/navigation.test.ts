import t from 'tap'
import { shared } from '../helpers/shared.ts'
import { ask, field, OWN, problemOf } from './wire.ts'

const NAVIGATE = [
  ['Sec-Fetch-Mode', 'navigate'],
  ['Sec-Fetch-Site', 'none'],
  ['Accept', 'text/html'],
] as const

t.test(
  'a failed navigation gets a page of fixed text and any other request JSON, wherever it is refused',
  async (t) => {
    const { port } = await shared()
    const long = 'c'.repeat(9_000)
    for (const [target, status] of [
      ['/flux/a', 401],
      ['/flux/DEMO/a?format=<b>', 400],
      ['/flux/', 404],
      ['/flux/a/b/c', 404],
      ['/auth/planted<script>', 404],
      // Refused before their routes: by the router, and by the first hook.
      ['/flux/%zz', 400],
      ['/auth/nothing/%zz', 400],
      ['/auth/callback/%zz?code=c', 400],
      [`/flux/${'a'.repeat(5_000)}`, 400],
      [`/auth/callback/${'n'.repeat(5_000)}?code=c`, 400],
      [`/flux/a?planted=${long}`, 414],
      [`/auth/nothing?planted=${long}`, 414],
      [`/auth/callback/${'n'.repeat(43)}?code=${long}`, 414],
      [`/auth/login?returnTo=/${long}`, 414],
      // The router decodes the path.
      ['/%66lux/a', 401],
      ['/%61uth/nothing', 404],
      ['/%61uth/login?flow=none', 400],
    ] as const) {
      const what = target.slice(0, 40)
      const page = await ask(port, { target, headers: NAVIGATE })
      t.strictSame([page.status, field(page, 'content-type')], [status, 'text/html; charset=utf-8'], what)
      t.notMatch(page.body, /planted|<b>|<script/, `${what}: no text of the request`)
      t.match(page.body, status === 401 ? 'href="/auth/login">Sign in</a>' : 'href="/"', what)
      const problem = await ask(port, { target, headers: [OWN, ['Sec-Fetch-Mode', 'cors']] })
      t.match(field(problem, 'content-type'), /^application\/problem\+json/, what)
    }
    for (const target of ['/site/1', '/auth/session', '/auth/logout']) {
      const answer = await ask(port, { target, headers: NAVIGATE })
      t.match(field(answer, 'content-type'), /json/, `${target} answers in JSON`)
    }
  },
)

t.test('cross_origin names the origin that asked and PUBLIC_URL, in detail and log', async (t) => {
  const { bff, port } = await shared({ OAUTH_FLOWS: 'code,password' })
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
      const answer = await ask(port, { method, target, headers: [['Origin', origin]] })
      const { status, code, detail } = problemOf(answer)
      t.strictSame([status, code], [403, 'cross_origin'])
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
    const { detail } = problemOf(await ask(port, { target: '/flux/a', headers: site }))
    t.match(detail, asked)
    t.notMatch(detail, 'planted')
  }
})

t.test(
  'a sign-in in a script or a frame is cross_origin, naming the origin that asked and PUBLIC_URL',
  async (t) => {
    const { bff, port } = await shared()
    const mode = ['Sec-Fetch-Mode', 'cors'] as const
    const site = ['Sec-Fetch-Site', 'cross-site'] as const
    for (const [headers, asked] of [
      [[mode, site, ['Origin', 'https://other.example']], 'from https://other.example.'],
      [[mode, site, ['Referer', 'https://other.example/page']], 'from https://other.example.'],
      [[mode, site], 'marked cross-site.'],
    ] as const) {
      const { status, code, detail } = problemOf(await ask(port, { target: '/auth/login', headers }))
      t.strictSame([status, code], [403, 'cross_origin'])
      t.match(detail, asked)
      t.match(detail, `a navigation of the whole page to ${bff.publicUrl},`)
      t.match(bff.log(), JSON.stringify({ reason: detail }).slice(1, -1))
    }
  },
)
