import { mkdir, symlink, writeFile } from 'node:fs/promises'
import { request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import fastify, { type FastifyInstance, type LightMyRequestResponse } from 'fastify'
import t, { type Test } from 'tap'
import { Problem } from '../../src/errors.ts'
import { addStaticFiles } from '../../src/spa/routes.ts'

const PAGE = '<!doctype html><title>start</title>'
const SCRIPT = 'console.log(1)'

/** A build with plain and hashed files, and with things that must stay out of reach. */
async function makeBuild(test: Test): Promise<string> {
  const base = test.testdir({
    'secret.txt': 'outside',
    outside: { 'index.html': 'outside page' },
    build: {
      'index.html': PAGE,
      'app-3f9c2b1a.js': SCRIPT,
      'plain.js': SCRIPT,
      'with space.txt': 'spaced',
      'data.bin': '0123456789',
      '.env': 'SECRET=1',
      '.git': { config: 'hidden' },
      '.well-known': { 'security.txt': 'Contact: us', '.hidden': 'no' },
      docs: { 'index.html': 'docs page', '.well-known': { x: 'no' } },
      empty: {},
      auth: { 'page.html': 'shadow' },
      flux: { 'page.html': 'shadow' },
      site: { 'page.html': 'shadow' },
    },
  })
  const build = join(base, 'build')
  await symlink(join(base, 'secret.txt'), join(build, 'leak.txt'))
  await symlink(join(base, 'outside'), join(build, 'out'))
  await symlink('plain.js', join(build, 'alias.js'))
  await symlink('loop', join(build, 'loop'))
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

async function setUp(test: Test): Promise<FastifyInstance> {
  return makeApp(test, await makeBuild(test))
}

function code(response: LightMyRequestResponse): string {
  return `${response.statusCode} ${JSON.parse(response.body).code}`
}

/** Sends a path as it stands; `inject` would resolve its dots first. */
async function getRaw(app: FastifyInstance, path: string, headers: Record<string, string> = {}) {
  const { port } = app.server.address() as AddressInfo
  return new Promise<string>((resolve, reject) => {
    const sent = request({ host: '127.0.0.1', port, path, headers, agent: false }, (response) => {
      let body = ''
      response.setEncoding('utf8')
      response.on('data', (chunk) => {
        body += chunk
      })
      response.on('end', () => resolve(`${response.statusCode} ${/"code":"(\w+)"/.exec(body)?.[1] ?? body}`))
    })
    sent.on('error', reject).end()
  })
}

t.test('a file comes with its type, a validator and the security headers of a page', async (t) => {
  const app = await setUp(t)
  const response = await app.inject('/plain.js')
  t.equal(response.statusCode, 200)
  t.equal(response.body, SCRIPT)
  t.match(response.headers['content-type'], /^(text|application)\/javascript/)
  t.equal(response.headers['cache-control'], 'no-cache')
  t.ok(response.headers.etag)
  t.equal(response.headers['x-content-type-options'], 'nosniff')
  t.equal(response.headers['referrer-policy'], 'no-referrer')
  t.equal(response.headers['cross-origin-opener-policy'], 'same-origin')
  t.equal(response.headers['cross-origin-resource-policy'], 'same-origin')
  t.match(response.headers['permissions-policy'], /camera=\(\)/)
  const policy = String(response.headers['content-security-policy'])
  t.match(policy, "default-src 'self'")
  t.match(policy, "script-src 'self';")
  t.match(policy, "frame-ancestors 'none'")
  t.notMatch(policy, 'unsafe-eval')
  t.equal(response.headers['set-cookie'], undefined)
})

t.test('the root serves the start page, which browsers revalidate on each use', async (t) => {
  const app = await setUp(t)
  for (const url of ['/', '/?login_error=access_denied', '/index.html']) {
    const response = await app.inject(url)
    t.equal(response.body, PAGE, url)
    t.equal(response.headers['content-type'], 'text/html; charset=utf-8', url)
    t.equal(response.headers['cache-control'], 'no-cache', url)
  }
  t.equal((await app.inject('/docs/')).body, 'docs page')
})

t.test('a file with a content hash in its name is cached for a year', async (t) => {
  const app = await setUp(t)
  const response = await app.inject('/app-3f9c2b1a.js')
  t.equal(response.headers['cache-control'], 'public, max-age=31536000, immutable')
})

t.test('HEAD returns the headers of GET without a body', async (t) => {
  const app = await setUp(t)
  const response = await app.inject({ method: 'HEAD', url: '/plain.js' })
  t.equal(response.statusCode, 200)
  t.equal(response.headers['content-length'], String(SCRIPT.length))
  t.equal(response.body, '')
})

t.test('a browser that holds the current file gets a 304', async (t) => {
  const app = await setUp(t)
  const { etag } = (await app.inject('/plain.js')).headers
  const response = await app.inject({ url: '/plain.js', headers: { 'if-none-match': String(etag) } })
  t.equal(response.statusCode, 304)
  t.equal(response.headers['cache-control'], 'no-cache')
  t.equal(response.body, '')
})

t.test('a navigation to an unknown path gets the start page', async (t) => {
  const app = await setUp(t)
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
      '//elsewhere.test/x',
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
  const app = await setUp(t)
  const requests = [{}, { accept: '*/*' }, { 'sec-fetch-mode': 'cors', accept: 'text/html' }]
  for (const headers of requests) {
    t.equal(code(await app.inject({ url: '/gone.js', headers })), '404 not_found')
  }
  const post = await app.inject({ method: 'POST', url: '/gone.js', headers: { accept: 'text/html' } })
  t.equal(code(post), '404 not_found')
})

t.test('neither files nor the history fallback are served under the own paths', async (t) => {
  const app = await setUp(t)
  const headers = { 'sec-fetch-mode': 'navigate' }
  for (const url of [
    '/auth',
    '/auth/page.html',
    '/flux/a/page.html',
    '/flux',
    '/site/page.html',
    '/site/x/y',
  ]) {
    t.equal(code(await app.inject({ url, headers })), '404 not_found', url)
  }
  t.equal(code(await app.inject({ url: '/%61uth/page.html', headers })), '404 not_found')
  t.equal((await app.inject('/flux/page.html')).body, 'flux')
})

t.test('another method on a file is a 405 that names the allowed ones', async (t) => {
  const app = await setUp(t)
  for (const method of ['POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'] as const) {
    const response = await app.inject({ method, url: '/plain.js' })
    t.equal(code(response), '405 method_not_allowed', method)
    t.equal(response.headers.allow, 'GET, HEAD', method)
  }
  t.equal(code(await app.inject({ method: 'POST', url: '/' })), '405 method_not_allowed')
})

t.test('hidden files, folders and files outside the served folder are 404', async (t) => {
  const app = await setUp(t)
  const paths = [
    '/.env',
    '/%2eenv',
    '/.git/config',
    '/.well-known/.hidden',
    '/docs/.well-known/x',
    '/%2ewell-known/security.txt',
    '/../secret.txt',
    '/%2e%2e/secret.txt',
    '/..%2fsecret.txt',
    '/..%5csecret.txt',
    '/docs/../../secret.txt',
    '/docs/..%2f..%2fsecret.txt',
    '/leak.txt',
    '/out/',
    '/out/index.html',
    '/loop',
    '/docs',
    '/empty/',
    '/plain.js/',
    '/plain.js%00.html',
    '/plain%2ejs%2f',
    `/${'a'.repeat(300)}`,
  ]
  await app.listen({ host: '127.0.0.1', port: 0 })
  t.equal(await getRaw(app, '/plain.js'), `200 ${SCRIPT}`)
  t.equal(await getRaw(app, '/.well-known/security.txt'), '200 Contact: us')
  for (const path of paths) t.equal(await getRaw(app, path), '404 not_found', path)
})

t.test('a navigation to a hidden or malformed path is 404', async (t) => {
  const app = await setUp(t)
  await app.listen({ host: '127.0.0.1', port: 0 })
  const headers = { 'sec-fetch-mode': 'navigate' }
  t.equal(await getRaw(app, '/pages/1', headers), `200 ${PAGE}`)
  for (const path of ['/.env', '/.git/config', '/a%2fb', '/../x', '/%2e%2e/x', '/a%00', '/a%5cb']) {
    t.equal(await getRaw(app, path, headers), '404 not_found', path)
  }
})

t.test('a symbolic link within the folder and an encoded name are served', async (t) => {
  const app = await setUp(t)
  t.equal((await app.inject('/alias.js')).body, SCRIPT)
  t.equal((await app.inject('/with%20space.txt')).body, 'spaced')
})

t.test('a range is served, and an unservable range gets the whole file', async (t) => {
  const app = await setUp(t)
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
  const app = await setUp(t)
  const response = await app.inject({ url: '/plain.js', headers: { 'if-match': '"other"' } })
  t.equal(code(response), '400 invalid_request')
})

t.test('a file added while the server runs is served', async (t) => {
  const build = await makeBuild(t)
  const app = await makeApp(t, build)
  await mkdir(join(build, 'late'))
  await writeFile(join(build, 'late', 'new.txt'), 'new')
  t.equal((await app.inject('/late/new.txt')).body, 'new')
})

t.test('a folder without a start page is refused at start', async (t) => {
  const app = fastify()
  t.teardown(() => app.close())
  const dir = t.testdir({ 'other.html': '' })
  await t.rejects(addStaticFiles(app, settingsFor(dir)), /has no index\.html/)
  await t.rejects(addStaticFiles(app, settingsFor(join(dir, 'missing'))), /has no index\.html/)
})
