import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import fastify, { type FastifyInstance, type LightMyRequestResponse } from 'fastify'
import t, { type Test } from 'tap'
import { Problem } from '../../src/errors.ts'
import { cacheControlFor } from '../../src/spa/files.ts'
import { addStaticFiles } from '../../src/spa/routes.ts'
import { makeFolder } from '../helpers/watchdog.ts'

const PAGE = '<!doctype html><title>start</title>'
const SCRIPT = 'console.log(1)'

/** A build with plain and hashed files, and with names of the server's own paths. */
function makeBuild(): string {
  const build = makeFolder('build')
  for (const [path, text] of Object.entries({
    ...{ 'index.html': PAGE, 'app-3f9c2b1a.js': SCRIPT, 'plain.js': SCRIPT, 'data.bin': '0123456789' },
    ...{ 'with space.txt': 'spaced', 'docs/index.html': 'docs page', 'empty/.hidden': '' },
    ...{ 'auth/page.html': 'shadow', 'flux/page.html': 'shadow', 'site/page.html': 'shadow' },
  })) {
    mkdirSync(join(build, dirname(path)), { recursive: true })
    writeFileSync(join(build, path), text)
  }
  symlinkSync('plain.js', join(build, 'alias.js'))
  return build
}

const settingsFor = (dir: string) => ({ dir, csp: {}, permissionsPolicy: null })

async function makeApp(test: Test, dir: string): Promise<FastifyInstance> {
  const app = fastify({ exposeHeadRoutes: false })
  test.teardown(() => app.close())
  app.setNotFoundHandler(await addStaticFiles(app, settingsFor(dir)))
  app.setErrorHandler((error, _request, reply) => {
    if (!(error instanceof Problem))
      return reply.code(500).send({ code: 'not_a_problem', text: String(error) })
    return reply
      .code(error.status)
      .headers(error.headers)
      .type('application/problem+json')
      .send(error.body('test'))
  })
  app.get('/flux/:id', async () => 'flux')
  await app.ready()
  return app
}

/** The app that tests share, with its files. */
let made: Promise<FastifyInstance> | undefined
const setUp = (): Promise<FastifyInstance> => (made ??= makeApp(t, makeBuild()))

function code(response: LightMyRequestResponse): string {
  return `${response.statusCode} ${JSON.parse(response.body).code}`
}

const HASHED = `app-3f9c2b1a.js static/js/main.3f9c2b1a.chunk.js main.3f9c2b1a.chunk.js.map
  styles.0123456789abcdef0123.css chunk-KZ3JQ2A7.js assets/index-DiwrgTd4.js assets/vendor-D_x-3fAb.css
  nested/assets/logo-B1a2C3d4.svg`

const PLAIN = `index.html main.js my-document.pdf report-20240101.pdf hero-iPhone15.png apple-touch-icon.png
  polyfill-facedeed.js assets/background.png assets/hero-background.png app-3f9c2b1.js
  font-v12-latin-regular.woff2 3f9c2b1a`

t.test(
  'browsers keep a file with a content hash in its name for a year, and ask for any other',
  async (t) => {
    for (const path of HASHED.split(/\s+/))
      t.equal(cacheControlFor(path), 'public, max-age=31536000, immutable', path)
    for (const path of PLAIN.split(/\s+/)) t.equal(cacheControlFor(path), 'no-cache', path)
  },
)

t.test('a file comes with its type, a validator and the security headers of a page', async (t) => {
  const app = await setUp()
  const response = await app.inject('/plain.js')
  t.equal(response.statusCode, 200)
  t.equal(response.body, SCRIPT)
  t.match(response.headers['content-type'], /^(text|application)\/javascript/)
  t.match(response.headers, {
    'cache-control': 'no-cache',
    etag: /./,
    'x-content-type-options': 'nosniff',
    'referrer-policy': 'no-referrer',
    'cross-origin-opener-policy': 'same-origin',
    'cross-origin-resource-policy': 'same-origin',
    'permissions-policy': /camera=\(\)/,
  })
  const policy = String(response.headers['content-security-policy'])
  t.match(policy, "default-src 'self'")
  t.match(policy, "script-src 'self';")
  t.match(policy, "frame-ancestors 'none'")
  t.notMatch(policy, 'unsafe-eval')
  t.equal(response.headers['set-cookie'], undefined)
})

t.test('the root serves the start page, which browsers revalidate on each use', async (t) => {
  const app = await setUp()
  for (const url of ['/', '/?login_error=access_denied', '/index.html']) {
    const response = await app.inject(url)
    t.equal(response.body, PAGE, url)
    t.equal(response.headers['content-type'], 'text/html; charset=utf-8', url)
    t.equal(response.headers['cache-control'], 'no-cache', url)
  }
  t.equal((await app.inject('/docs/')).body, 'docs page')
})

t.test('a navigation to an unknown path gets the start page', async (t) => {
  const app = await setUp()
  const navigations = [
    { 'sec-fetch-mode': 'navigate' },
    { 'sec-fetch-mode': 'navigate', accept: '*/*' },
    { accept: 'text/html,application/xhtml+xml' },
  ]
  for (const headers of navigations) {
    for (const url of [
      '/sites/7',
      '/empty/',
      '/empty',
      '/authors',
      '/fluxes/1',
      '/gone.js',
      '//other.test/x',
    ]) {
      const response = await app.inject({ url, headers })
      t.equal(response.statusCode, 200, url)
      t.equal(response.body, PAGE, url)
      t.equal(response.headers['cache-control'], 'no-cache', url)
      t.match(response.headers.vary, 'sec-fetch-mode', url)
    }
  }
})

t.test('an unknown path is 404 for all requests but navigations', async (t) => {
  const app = await setUp()
  const requests = [{}, { accept: '*/*' }, { 'sec-fetch-mode': 'cors', accept: 'text/html' }]
  for (const headers of requests) {
    t.equal(code(await app.inject({ url: '/gone.js', headers })), '404 not_found')
  }
  const post = await app.inject({ method: 'POST', url: '/gone.js', headers: { accept: 'text/html' } })
  t.equal(code(post), '404 not_found')
})

t.test('neither files nor the history fallback are served under the own paths', async (t) => {
  const app = await setUp()
  const headers = { 'sec-fetch-mode': 'navigate' }
  const own = ['/auth', '/auth/page.html', '/flux/a/page.html', '/flux', '/site/page.html', '/site/x/y']
  for (const url of [...own, '/%61uth/page.html'])
    t.equal(code(await app.inject({ url, headers })), '404 not_found', url)
  t.equal((await app.inject('/flux/page.html')).body, 'flux')
})

t.test('another method on a file is a 405 that names the allowed ones', async (t) => {
  const app = await setUp()
  for (const method of ['POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'] as const) {
    const response = await app.inject({ method, url: '/plain.js' })
    t.equal(code(response), '405 method_not_allowed', method)
    t.equal(response.headers.allow, 'GET, HEAD', method)
  }
  t.equal(code(await app.inject({ method: 'POST', url: '/' })), '405 method_not_allowed')
})

t.test('a symbolic link within the folder and an encoded name are served', async (t) => {
  const app = await setUp()
  t.equal((await app.inject('/alias.js')).body, SCRIPT)
  t.equal((await app.inject('/with%20space.txt')).body, 'spaced')
})

t.test('a range is served, and an unservable range gets the whole file', async (t) => {
  const app = await setUp()
  const part = await app.inject({ url: '/data.bin', headers: { range: 'bytes=2-4' } })
  t.equal(part.statusCode, 206)
  t.equal(part.body, '234')
  for (const range of ['bytes=10-', 'bytes=9-2', 'bytes=-0', 'bytes=0-1,4-5', 'lines=1-2', 'bytes=-']) {
    const whole = await app.inject({ url: '/data.bin', headers: { range } })
    t.equal(whole.statusCode, 200, range)
    t.equal(whole.body, '0123456789', range)
  }
})

t.test('an unsupported precondition on a file is a 400', async (t) => {
  const app = await setUp()
  const response = await app.inject({ url: '/plain.js', headers: { 'if-match': '"other"' } })
  t.equal(code(response), '400 invalid_request')
})

t.test('a file added while the server runs is served', async (t) => {
  const build = makeBuild()
  const app = await makeApp(t, build)
  mkdirSync(join(build, 'late'))
  writeFileSync(join(build, 'late', 'new.txt'), 'new')
  t.equal((await app.inject('/late/new.txt')).body, 'new')
})

t.test('a folder without a start page is refused at start', async (t) => {
  const app = fastify()
  t.teardown(() => app.close())
  const dir = t.testdir({ 'other.html': '' })
  await t.rejects(addStaticFiles(app, settingsFor(dir)), /has no index\.html/)
  await t.rejects(addStaticFiles(app, settingsFor(join(dir, 'missing'))), /has no index\.html/)
})
