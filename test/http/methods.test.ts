import t from 'tap'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import { ask, field, OWN, portOf, problemOf } from './wire.ts'

const PATHS: readonly (readonly [path: string, allow: string])[] = [
  ['/auth/login', 'GET'],
  ['/auth/callback/abc', 'GET'],
  ['/auth/session', 'GET, HEAD, POST'],
  ['/auth/logout', 'POST'],
  ['/auth/client.js', 'GET, HEAD'],
  ['/flux/a', 'GET, HEAD'],
  ['/flux/DEMO/a', 'GET, HEAD'],
  ['/%66lux/a', 'GET, HEAD'],
  ['/site', 'POST'],
  ['/site.json', 'POST'],
  ['/site/42', 'PUT'],
  ['/site/42.json', 'PUT'],
  ['/site/DEMO/42', 'PUT'],
  ['/openapi.json', 'GET, HEAD'],
]

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND', 'SEARCH']

const UNKNOWN = [
  '/auth',
  '/auth/',
  '/auth/login/',
  '/auth/Login',
  '/auth/login/more',
  '/auth/password',
  '/auth/callback',
  '/auth/callback/',
  '/auth/callback/a/b',
  '/auth%2Flogin',
  '//auth/login',
  '/flux',
  '/flux/',
  '/flux//',
  '/flux/a/',
  '/flux//a',
  '/flux/a/b/c',
  '/FLUX/a',
  '//flux/a',
  '/site/',
  '/site//',
  '/site/DEMO/',
  '/site//42',
  '/site/a/b/c',
  '/json/reply/UpdateSite',
  '/oauth/token',
  '/DEMO/flux/a',
  '/livez',
  '/readyz',
  '/metrics',
  '/',
  '/nothing',
  '/index.html',
]

t.test('every other method on a known path is a 405 with Allow, whatever the headers', async (t) => {
  const sandbox = await startSandbox(t)
  const port = portOf(await startBff(t, sandbox))
  for (const [target, allow] of PATHS) {
    for (const method of METHODS) {
      if (allow.split(', ').includes(method)) continue
      for (const site of ['same-origin', 'cross-site']) {
        const answer = await ask(port, { method, target, headers: [['Sec-Fetch-Site', site]] })
        t.equal(answer.status, 405, `${method} ${target} ${site}`)
        t.equal(field(answer, 'allow'), allow, `${method} ${target}`)
        const detail = `Use ${allow.replace(/, (\w+)$/, ' or $1')}.`
        if (method !== 'HEAD') t.match(problemOf(answer), { code: 'method_not_allowed', status: 405, detail })
        t.notOk(answer.headers.has('set-cookie'), `${method} ${target} sets nothing`)
      }
    }
  }
  t.equal(sandbox.journal.entries().length, 0)
})

t.test(
  'a file site.json of the page is served, and without one every method but POST is a 405',
  async (t) => {
    const sandbox = await startSandbox(t)
    const navigate = ['Sec-Fetch-Mode', 'navigate'] as const
    const page = { 'index.html': 'page' }
    const bare = await startBff(t, sandbox, { STATIC_DIR: t.testdir(page) })
    for (const method of ['GET', 'HEAD', 'PUT']) {
      const answer = await ask(portOf(bare), { method, target: '/site.json', headers: [navigate] })
      t.equal(answer.status, 405, method)
      t.equal(field(answer, 'allow'), 'POST', method)
    }
    const port = portOf(await startBff(t, sandbox, { STATIC_DIR: t.testdir({ ...page, 'site.json': '{}' }) }))
    const file = await ask(port, { target: '/site.json' })
    t.equal(file.status, 200)
    t.equal(file.body, '{}')
    t.equal(field(await ask(port, { method: 'PUT', target: '/site.json' }), 'allow'), 'GET, HEAD, POST')
    const post = await ask(port, { method: 'POST', target: '/site.json' })
    t.match(problemOf(post), { code: 'cross_origin' }, 'POST is UpdateSite')
  },
)

t.test('every other path is a 404, whatever the headers, method and body', async (t) => {
  const sandbox = await startSandbox(t)
  const port = portOf(await startBff(t, sandbox))
  for (const target of UNKNOWN) {
    for (const method of ['GET', 'HEAD', 'POST', 'PUT', 'OPTIONS']) {
      const body = method === 'POST' || method === 'PUT' ? '{' : undefined
      const headers = [
        ['Sec-Fetch-Site', 'cross-site'],
        ['Content-Type', 'application/json'],
      ] as const
      const answer = await ask(port, { method, target, headers, ...(body === undefined ? {} : { body }) })
      t.equal(answer.status, 404, `${method} ${target}`)
      t.notOk(answer.headers.has('location'), `${method} ${target} does not redirect`)
      if (method !== 'HEAD') t.match(problemOf(answer), { code: 'not_found', status: 404 }, target)
    }
  }
  t.equal(sandbox.journal.entries().length, 0)
})

t.test('HEAD returns the headers of GET without a body', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox)
  const browser = bff.browser()
  await signIn(browser, sandbox)
  for (const target of ['/auth/session', '/openapi.json', '/flux/a?values=3']) {
    const head = await browser.fetch(target, { method: 'HEAD' })
    const get = await browser.fetch(target)
    t.equal(head.status, 200, target)
    t.equal(head.text, '', target)
    t.equal(head.headers['content-type'], get.headers['content-type'], target)
  }
  t.strictSame(
    sandbox.journal.entries({ kind: 'GetFlux' }).map(({ method }) => method),
    ['HEAD', 'GET'],
    'a HEAD goes upstream as HEAD',
  )
})

t.test('a CORS preflight is not approved', async (t) => {
  const port = portOf(await startBff(t, await startSandbox(t)))
  for (const target of ['/flux/a', '/site/42', '/site', '/auth/session', '/auth/logout', '/auth/login']) {
    const answer = await ask(port, {
      method: 'OPTIONS',
      target,
      headers: [
        ['Origin', 'https://evil.test'],
        ['Access-Control-Request-Method', 'PUT'],
        ['Access-Control-Request-Headers', 'x-csrf'],
      ],
    })
    t.equal(answer.status, 405, target)
    const names = [...answer.headers.keys()].filter((name) => name.startsWith('access-control-'))
    t.strictSame(names, [], target)
  }
})

t.test('with OAUTH_REDIRECT=fixed the callback is one path', async (t) => {
  const port = portOf(await startBff(t, await startSandbox(t), { OAUTH_REDIRECT: 'fixed' }))
  for (const method of ['GET', 'POST'])
    t.equal((await ask(port, { method, target: '/auth/callback/abc', headers: [OWN] })).status, 404, method)
  t.equal(field(await ask(port, { method: 'POST', target: '/auth/callback' }), 'allow'), 'GET')
})
