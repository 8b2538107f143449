import t from 'tap'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
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
    ] as const) {
      const page = await ask(portOf(bff), { target, headers: NAVIGATE })
      t.equal(page.status, status, target)
      t.equal(field(page, 'content-type'), 'text/html; charset=utf-8', target)
      t.equal(field(page, 'cache-control'), 'no-store', target)
      t.match(field(page, 'content-security-policy'), /default-src 'none'/, target)
      t.notMatch(page.body, /planted|<b>|<script/, `${target}: no text of the request`)
      t.match(page.body, status === 401 ? 'href="/auth/login">Sign in</a>' : 'href="/"', target)
      const problem = await ask(portOf(bff), { target, headers: [OWN, ['Accept', 'text/html']] })
      t.equal(problem.status, status, target)
      t.match(
        field(problem, 'content-type'),
        /^application\/problem\+json/,
        `${target}: fetch gets JSON as before`,
      )
    }
    for (const target of ['/site/1', '/auth/session', '/auth/logout']) {
      const answer = await ask(portOf(bff), { target, headers: NAVIGATE })
      t.match(field(answer, 'content-type'), /json/, `${target} answers in JSON`)
    }
  },
)

t.test('the page of an ended session says why it ended', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, { SESSION_MAX_SECONDS: '1', SESSION_IDLE_SECONDS: '1' })
  const browser = bff.browser()
  await signIn(browser, sandbox)
  await new Promise((resolve) => setTimeout(resolve, 1_050))
  const page = await browser.navigate('/flux/a')
  t.equal(page.status, 401)
  t.match(page.text, /The session has reached its longest duration/)
})

t.test('cross_origin names the origin that asked and PUBLIC_URL, in detail and log', async (t) => {
  const bff = await startBff(t, await startSandbox(t))
  for (const [origin, named] of [
    ['https://other.example', 'from https://other.example.'],
    ['http://localhost:5173', 'from http://localhost:5173.'],
    ['null', 'from null.'],
    ['no <origin>', 'without an origin.'],
    [`https://${'a'.repeat(300)}.example`, 'without an origin.'],
  ] as const) {
    for (const [method, target] of [
      ['POST', '/auth/logout'],
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
  const answer = await ask(portOf(bff), { target: '/flux/a', headers: [['Sec-Fetch-Site', 'same-site']] })
  t.match(problemOf(answer).detail, 'marked same-site')
})
