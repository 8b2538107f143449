import t from 'tap'
import { shared } from '../helpers/shared.ts'
import { ask, field, problemOf } from './wire.ts'

/** By what they allow. */
const PATHS: Readonly<Record<string, readonly string[]>> = {
  GET: ['/auth/login', '/auth/callback/abc'],
  'GET, HEAD': ['/auth/client.js', '/auth/ready', '/flux/a', '/flux/DEMO/a', '/%66lux/a', '/openapi.json'],
  'GET, HEAD, POST': ['/auth/session'],
  POST: ['/auth/logout', '/site', '/site.json'],
  PUT: ['/site/42', '/site/42.json', '/site/DEMO/42'],
}

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND', 'SEARCH']

const UNKNOWN = `/auth /auth/ /auth/login/ /auth/Login /auth/login/more /auth/password /auth/callback /auth/callback/
  /auth/callback/a/b /auth%2Flogin //auth/login /flux /flux/ /flux// /flux/// /flux/?a=1 /flux/a/ /flux//a /flux/DEMO/
  /flux/a/b/c /FLUX/a //flux/a /site/ /site// /site/?a=1 /site//1 /site/DEMO/ /site/42/ /site//42 /site/a/b/c
  /json/reply/UpdateSite /oauth/token /DEMO/flux/a /livez /readyz /metrics / /nothing /index.html`

t.test('every other method on a known path is a 405 with Allow, whatever the headers', async (t) => {
  const { sandbox, port } = await shared()
  for (const [allow, targets] of Object.entries(PATHS)) {
    for (const target of targets) {
      for (const method of METHODS.filter((method) => !allow.split(', ').includes(method))) {
        const answer = await ask(port, { method, target, headers: [['Sec-Fetch-Site', 'cross-site']] })
        t.strictSame([answer.status, field(answer, 'allow')], [405, allow], `${method} ${target}`)
        if (method !== 'HEAD') t.match(problemOf(answer), { code: 'method_not_allowed', status: 405 })
        t.notOk(answer.headers.has('set-cookie'), `${method} ${target} sets nothing`)
      }
    }
  }
  t.equal(sandbox.journal.entries().length, 0)
})

t.test('a file site.json of the page is served, without one only POST is allowed', async (t) => {
  const navigate = ['Sec-Fetch-Mode', 'navigate'] as const
  const page = { 'index.html': 'page' }
  const folder = t.testdir({ bare: page, full: { ...page, 'site.json': '{}' } })
  const bare = await shared({ STATIC_DIR: `${folder}/bare` })
  const refused = await ask(bare.port, { target: '/site.json', headers: [navigate] })
  t.strictSame([refused.status, field(refused, 'allow')], [405, 'POST'])
  const { port } = await shared({ STATIC_DIR: `${folder}/full` })
  const file = await ask(port, { target: '/site.json' })
  t.strictSame([file.status, file.body], [200, '{}'])
  t.equal(field(await ask(port, { method: 'PUT', target: '/site.json' }), 'allow'), 'GET, HEAD, POST')
  const post = await ask(port, { method: 'POST', target: '/site.json' })
  t.match(problemOf(post), { code: 'cross_origin' }, 'POST is UpdateSite')
})

t.test('every other path is a 404, whatever the headers, method and body', async (t) => {
  const { sandbox, port } = await shared()
  const headers = [
    ['Sec-Fetch-Site', 'cross-site'],
    ['Content-Type', 'application/json'],
  ] as const
  for (const target of UNKNOWN.split(/\s+/)) {
    for (const method of ['GET', 'HEAD', 'POST', 'PUT', 'OPTIONS']) {
      const answer = await ask(port, {
        method,
        target,
        headers,
        ...(method.startsWith('P') ? { body: '{' } : {}),
      })
      const seen = [answer.status, field(answer, 'location')]
      t.strictSame(seen, [404, undefined], `${method} ${target}`)
      if (method !== 'HEAD') t.match(problemOf(answer), { code: 'not_found', status: 404 }, target)
    }
  }
  t.equal(sandbox.journal.entries().length, 0)
})

t.test('a CORS preflight is not approved', async (t) => {
  const { port } = await shared()
  const headers = [
    ['Origin', 'https://evil.test'],
    ['Access-Control-Request-Method', 'PUT'],
    ['Access-Control-Request-Headers', 'x-csrf'],
  ] as const
  for (const target of ['/flux/a', '/site/42', '/site', '/auth/session', '/auth/logout', '/auth/login']) {
    const answer = await ask(port, { method: 'OPTIONS', target, headers })
    t.equal(answer.status, 405, target)
    t.strictSame(
      [...answer.headers.keys()].filter((name) => name.startsWith('access-control-')),
      [],
      target,
    )
  }
})
