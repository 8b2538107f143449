import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { dirname, join } from 'node:path'
import { brotliCompressSync, brotliDecompressSync, gunzipSync, gzipSync } from 'node:zlib'
import fastify from 'fastify'
import t from 'tap'
import { request } from 'undici'
import { createLog } from '../../src/log.ts'
import { cacheControlFor } from '../../src/spa/files.ts'
import { addStaticFiles } from '../../src/spa/routes.ts'
import { warningsOf } from '../config/environment.ts'
import { requireDocumented } from '../helpers/documented.ts'
import { portOfUrl } from '../helpers/ports.ts'
import { shared } from '../helpers/shared.ts'
import { type Bff, startBff, startSandbox } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { makeFolder } from '../helpers/watchdog.ts'
import { ask, field, problemOf } from '../http/wire.ts'

const PAGE = `<!doctype html><title>start</title>${'<p>page</p>'.repeat(50)}`
const SCRIPT = `console.log(1) //${' padding'.repeat(200)}`
const STYLE = `p { color: red }${' '.repeat(500)}`
const PICTURE = '<svg xmlns="http://www.w3.org/2000/svg"/>'

const FILES = {
  '/app.js': { text: SCRIPT, type: 'application/javascript; charset=utf-8' },
  '/site.css': { text: STYLE, type: 'text/css; charset=utf-8' },
  '/plain.svg': { text: PICTURE, type: 'image/svg+xml' },
}

/** Both compressed forms of the script, one of the page and of the style. */
const BUILD = {
  'index.html': PAGE,
  'index.html.br': brotliCompressSync(PAGE),
  'app.js': SCRIPT,
  'app.js.br': brotliCompressSync(SCRIPT),
  'app.js.gz': gzipSync(SCRIPT),
  'site.css': STYLE,
  'site.css.gz': gzipSync(STYLE),
  'plain.svg': PICTURE,
  'big.js': Buffer.alloc(32_000_000),
  ...{ 'with space.txt': 'spaced', 'docs/index.html': 'docs page', 'empty/.hidden': '' },
}

const STATIC_DIR = makeFolder('build')
for (const [path, content] of Object.entries(BUILD)) {
  mkdirSync(dirname(join(STATIC_DIR, path)), { recursive: true })
  writeFileSync(join(STATIC_DIR, path), content)
}
symlinkSync('plain.svg', join(STATIC_DIR, 'alias.svg'))

type Headers = Record<string, string>

const NAVIGATE = { 'sec-fetch-mode': 'navigate' }

/** By a service worker of Firefox. */
const PASSED_ON = { 'sec-fetch-mode': 'same-origin', 'sec-fetch-dest': 'empty', accept: 'text/html' }

async function get(
  { publicUrl }: Pick<Bff, 'publicUrl'>,
  path: string,
  headers: Headers = {},
  method: 'GET' | 'HEAD' | 'POST' | 'PUT' = 'GET',
) {
  const address = publicUrl.replace('localhost', '127.0.0.1') + path
  // Unlike `fetch` it leaves a content coding to the caller.
  const { statusCode: status, headers: fields, body } = await request(address, { method, headers })
  const bytes = Buffer.from(await body.arrayBuffer())
  const header = (name: string) => fields[name]?.toString()
  requireDocumented(portOfUrl(address), { method, target: path, status, header, body: bytes.toString() })
  return { status, headers: fields, body: bytes }
}

function decoded({ headers, body }: Awaited<ReturnType<typeof get>>): string {
  const coding = headers['content-encoding']
  if (coding === 'br') return brotliDecompressSync(body).toString()
  return (coding === 'gzip' ? gunzipSync(body) : body).toString()
}

t.test('a browser that stops reading a file does not hold its connection for ever', async (t) => {
  const bff = await startBff(t, await startSandbox(t), { STATIC_DIR })
  const { server } = bff.app.server
  t.equal(server.timeout, 3 * (5 * 30_000 + 2 * 10_000 + 15_000), 'no slow call is cut off')
  const reader = connect(portOfUrl(bff.publicUrl), '127.0.0.1').on('error', () => {})
  const accepted = once(server, 'connection') as Promise<[Socket]>
  reader.pause()
  reader.write('GET /big.js HTTP/1.1\r\nHost: localhost\r\n\r\n')
  const [socket] = await accepted
  await until('the response has begun', () => socket.bytesWritten > 0)
  socket.setTimeout(300)
  await once(socket, 'close')
  reader.destroy()
})

t.test('browsers keep a file with a hash in its name for a year, and ask for any other', async (t) => {
  const hashed = `app-3f9c2b1a.js static/js/main.3f9c2b1a.chunk.js main.3f9c2b1a.chunk.js.map
    styles.0123456789abcdef0123.css chunk-KZ3JQ2A7.js assets/index-DiwrgTd4.js assets/vendor-D_x-3fAb.css
    nested/assets/logo-B1a2C3d4.svg`
  const plain = `index.html main.js my-document.pdf report-20240101.pdf hero-iPhone15.png apple-touch-icon.png
    polyfill-facedeed.js assets/background.png assets/hero-background.png app-3f9c2b1.js
    font-v12-latin-regular.woff2 3f9c2b1a`
  for (const path of hashed.split(/\s+/))
    t.equal(cacheControlFor(path), 'public, max-age=31536000, immutable', path)
  for (const path of plain.split(/\s+/)) t.equal(cacheControlFor(path), 'no-cache', path)
})

t.test('the form that the client prefers is sent, with its type and the headers of a page', async (t) => {
  const { bff } = await shared({ STATIC_DIR })
  for (const [path, accepted, coding] of [
    ['/app.js', 'gzip, deflate, br, zstd', 'br'],
    ['/app.js', 'BR', 'br'],
    ['/app.js', 'gzip, br;q=0.9', 'gzip'],
    ['/app.js', 'gzip;q=0.5, br;q=0.50', 'br'],
    ['/app.js', 'x-gzip', 'gzip'],
    ['/app.js', '*', 'br'],
    ['/app.js', 'br;q=0, *;q=0.1', 'gzip'],
    ['/app.js', 'br;q=0, gzip;q=0', undefined],
    ['/app.js', 'identity, gzip;q=0.5', undefined],
    ['/app.js', 'deflate, zstd', undefined],
    ['/app.js', 'br;q=x', undefined],
    ['/app.js', '', undefined],
    ['/app.js', undefined, undefined],
    ['/site.css', 'gzip, br', 'gzip'],
    ['/site.css', 'br', undefined],
    ['/site.css', 'br, identity;q=0', undefined],
    ['/plain.svg', 'gzip, br', undefined],
  ] as const) {
    const answer = await get(bff, path, accepted === undefined ? {} : { 'accept-encoding': accepted })
    const what = `${path} with ${accepted}`
    t.equal(answer.status, 200, what)
    t.equal(decoded(answer), FILES[path].text, what)
    const { 'content-length': length, 'content-encoding': sent, ...headers } = answer.headers
    t.strictSame([Number(length), sent], [answer.body.length, coding], what)
    const expected = {
      'content-type': FILES[path].type,
      'cache-control': 'no-cache',
      etag: /./,
      vary: /accept-encoding/i,
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'same-origin',
      'cross-origin-opener-policy': 'same-origin',
      'cross-origin-resource-policy': 'same-origin',
      'permissions-policy': /camera=\(\)/,
      'content-security-policy': /^default-src 'self'; script-src 'self';.* frame-ancestors 'none'/,
    }
    t.match(headers, expected, what)
    t.notMatch(headers['content-security-policy'], 'unsafe-eval', what)
    t.notOk('set-cookie' in headers, what)
  }
})

t.test('each form of a file has its validator, its HEAD and its ranges', async (t) => {
  const { bff } = await shared({ STATIC_DIR })
  const tags = new Set<string>()
  for (const coding of ['br', 'gzip', 'identity']) {
    const headers = { 'accept-encoding': coding }
    const whole = await get(bff, '/app.js', headers)
    const etag = String(whole.headers.etag)
    tags.add(etag)
    const head = await get(bff, '/app.js', headers, 'HEAD')
    t.equal(head.body.length, 0)
    for (const name of ['content-length', 'content-encoding', 'content-type', 'etag', 'vary'])
      t.equal(head.headers[name], whole.headers[name], `${coding}: HEAD has the same ${name}`)
    const fresh = await get(bff, '/app.js', { ...headers, 'if-none-match': etag })
    t.strictSame([fresh.status, fresh.body.length], [304, 0], coding)
    t.match(fresh.headers.vary, /accept-encoding/i)
    const part = await get(bff, '/app.js', { ...headers, range: 'bytes=2-5' })
    t.equal(part.status, 206, coding)
    t.same(part.body, whole.body.subarray(2, 6), `${coding}: a range of the form that was chosen`)
    const unservable = ['bytes=9-2', 'bytes=-0', 'bytes=0-1,4-5', 'lines=1-2', 'bytes=-']
    for (const range of [`bytes=${whole.body.length}-`, ...unservable]) {
      const ignored = await get(bff, '/app.js', { ...headers, range })
      t.same([ignored.status, ignored.body], [200, whole.body], `${coding}: ${range}`)
    }
  }
  t.equal(tags.size, 3)
  t.equal((await get(bff, '/app.js', { 'if-match': '"other"' })).status, 400, 'an unsupported precondition')
})

t.test('the root and navigations to unknown paths get the start page, other requests 404', async (t) => {
  const { bff } = await shared({ STATIC_DIR })
  const accept = 'text/html,application/xhtml+xml'
  const unknown = ['/sites/7', '/empty/', '/empty', '/authors', '/fluxes/1', '/gone.js', '//other.test/x']
  for (const headers of [NAVIGATE, { ...NAVIGATE, accept: '*/*' }, { accept }, PASSED_ON] as Headers[]) {
    for (const path of ['/', '/?login_error=access_denied', '/index.html', ...unknown]) {
      const answer = await get(bff, path, { ...headers, 'accept-encoding': 'gzip, br' })
      const { 'content-encoding': coding, 'content-type': type, 'cache-control': kept, vary } = answer.headers
      t.strictSame([answer.status, coding, kept], [200, 'br', 'no-cache'], path)
      t.equal(type, 'text/html; charset=utf-8', path)
      t.equal(decoded(answer), PAGE, path)
      const expected = unknown.includes(path)
        ? /sec-fetch-mode, sec-fetch-dest, accept, accept-encoding/
        : /accept-encoding/i
      t.match(vary, expected, path)
    }
  }
  for (const headers of [{}, { accept: '*/*' }, { 'sec-fetch-mode': 'cors', accept }] as Headers[])
    t.equal((await get(bff, '/gone.js', headers)).status, 404)
  t.equal((await get(bff, '/gone.js', { accept }, 'POST')).status, 404)
  for (const path of ['/app.js', '/'])
    for (const method of ['POST', 'PUT'] as const) {
      const { status, headers } = await get(bff, path, {}, method)
      t.strictSame([status, headers.allow], [405, 'GET, HEAD'], `${method} ${path}`)
    }
  for (const [path, text] of [
    ['/docs/', 'docs page'],
    ['/alias.svg', PICTURE],
    ['/with%20space.txt', 'spaced'],
  ] as const)
    t.equal(decoded(await get(bff, path)), text, path)
  mkdirSync(join(STATIC_DIR, 'late'))
  writeFileSync(join(STATIC_DIR, 'late', 'new.txt'), 'new')
  t.equal(decoded(await get(bff, '/late/new.txt')), 'new', 'added while the server runs')
})

t.test('a folder without a start page is refused at start', async (t) => {
  const app = fastify()
  t.teardown(() => app.close())
  const folder = t.testdir({ 'other.html': '' })
  for (const dir of [folder, join(folder, 'missing')])
    await t.rejects(
      addStaticFiles(app, {
        settings: { dir, csp: {}, referrerPolicy: 'same-origin', permissionsPolicy: null },
        ...{ operations: [], log: createLog('silent') },
      }),
      /has no index\.html/,
    )
})

t.test('STATIC_CSP adds sources, and STATIC_PERMISSIONS_POLICY replaces the default', async (t) => {
  const { bff } = await shared({
    STATIC_DIR,
    STATIC_CSP:
      "img-src https://*.tiles.example selfservice.example; CONNECT-SRC wss://live.example:8443/feed 'self';worker-src blob:; frame-src https://maps.example; object-src 'self'; script-src https://cdn.example 'wasm-unsafe-eval';",
    STATIC_PERMISSIONS_POLICY: 'geolocation=(self "https://maps.example"), camera=()',
    STATIC_REFERRER_POLICY: 'strict-origin-when-cross-origin',
  })
  for (const path of ['/', '/app.js']) {
    const { headers } = await get(bff, path)
    t.strictSame(String(headers['content-security-policy']).split('; '), [
      "default-src 'self'",
      "script-src 'self' https://cdn.example 'wasm-unsafe-eval'",
      "style-src 'self' 'unsafe-inline'",
      "img-src 'self' data: blob: https://*.tiles.example selfservice.example",
      "font-src 'self' data:",
      "connect-src wss://live.example:8443/feed 'self'",
      "object-src 'self'",
      "base-uri 'self'",
      "form-action 'self'",
      "frame-ancestors 'none'",
      "worker-src 'self' blob:",
      "frame-src 'self' https://maps.example",
    ])
    t.equal(headers['referrer-policy'], 'strict-origin-when-cross-origin')
    t.equal(headers['permissions-policy'], 'geolocation=(self "https://maps.example"), camera=()')
  }
  const problem = await get(bff, '/flux/a')
  t.match(problem.headers['content-security-policy'], "default-src 'none'", 'the API keeps its own policy')
})

t.test(
  'each inline script that the policy blocks is one warning with the hash that permits it',
  async (t) => {
    const [inline, other] = ['\r\nstart()\r\n', 'other()']
    const hash = (text: string) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`
    const started = hash('\nstart()\n')
    const folder = t.testdir({
      'index.html': `<!doctype html><!-- <script>gone()</script> --><script>${inline}</script>
      <script type="module" data-a="1">${other}</script><script>${other}</script>
      <script type="application/json">{"data":1}</script><script src="/a.js"></script>
      <link rel="stylesheet" href="/a.css" media="print" onload="this.media='all'"><script></script>`,
    })
    const sandbox = await startSandbox(t)
    const warnings = async (STATIC_CSP: string) => {
      const bff = await startBff(t, sandbox, { STATIC_DIR: folder, STATIC_CSP })
      const lines = bff.log().match(/"msg":"index\.html has [^"]*/g) ?? []
      return { bff, lines }
    }
    const { lines } = await warnings('img-src https:')
    t.equal(lines.length, 3)
    t.match(
      lines[0],
      `inline script that browsers will block: put it into a file, or add script-src ${started} to STATIC_CSP`,
    )
    t.match(lines[1], hash(other))
    t.match(lines[2], 'inline onload that browsers will block')
    const permitted = await warnings(
      `script-src ${started} ${hash(other).replaceAll('+', '-').replaceAll('/', '_')}`,
    )
    t.equal(permitted.lines.length, 1, 'a hash in base64 or base64url permits its text')
    t.match(
      (await get(permitted.bff, '/')).headers['content-security-policy'],
      `script-src 'self' ${started}`,
    )
  },
)

t.test('the settings of the page warn where no page is served', async (t) => {
  t.strictSame(warningsOf({ STATIC_CSP: 'img-src https:', STATIC_PERMISSIONS_POLICY: 'fullscreen=*' }), [
    'STATIC_CSP has no effect without STATIC_DIR',
    'STATIC_PERMISSIONS_POLICY has no effect without STATIC_DIR',
  ])
})

t.test('the server sends the browser client that fits it, with its types', async (t) => {
  const { bff } = await shared({ STATIC_DIR })
  for (const [path, file, type] of [
    ['/auth/client.js', 'bff-client.js', 'text/javascript; charset=utf-8'],
    ['/auth/client.d.ts', 'bff-client.d.ts', 'text/plain; charset=utf-8'],
  ] as const) {
    const { status, headers, body } = await get(bff, path)
    t.equal(status, 200)
    t.equal(headers['content-type'], type)
    t.equal(headers['cache-control'], 'no-cache', 'browsers ask whether it is the newest')
    t.same(body, readFileSync(new URL(`../../dist/client/${file}`, import.meta.url)))
    const again = await get(bff, path, { 'if-none-match': String(headers.etag) })
    t.strictSame([again.status, again.body.length], [304, 0])
  }
})

/** None of these reads a file. */
const OUT_OF_REACH = `/private/../index.html /private/%2e%2e/index.html /private/./x.txt /private/%2e/x.txt
  /private//x.txt //private/x.txt /private/x.txt/ /private/x.txt%00 /private/x.txt%00.html /index.html/..
  /../secret.txt /..%2fsecret.txt /%2e%2e/secret.txt /%252e%252e/secret.txt /..%5csecret.txt
  /private/../../secret.txt /private/..%2f..%2fsecret.txt /private\\..\\index.html /;/../secret.txt /a%2e.txt
  /v%2etxt%2f /link.txt /folder/ /folder/secret.txt /loop /private /empty/ /.env /%2eenv /.git/config
  /.well-known/.hidden /.well-known/../secret.txt /.well-known/%2e%2e/%2e%2e/secret.txt
  /private/.well-known/x /%2ewell-known/security.txt /auth%2fsession /AUTH/session /private/../auth/session
  /x/../auth/session /auth/shadow.txt /%61uth/shadow.txt`

t.test('no form of a path reads what is outside the build, hidden or below the own paths', async (t) => {
  const base = t.testdir({
    'secret.txt': 'OUTSIDE',
    outside: { 'index.html': 'OUTSIDE', 'secret.txt': 'OUTSIDE' },
    build: {
      ...{
        'index.html': 'INDEX',
        '.env': 'HIDDEN',
        '.git': { config: 'HIDDEN' },
        empty: {},
        'v.txt': 'PLAIN',
      },
      '.well-known': { 'security.txt': 'CONTACT', '.hidden': 'HIDDEN' },
      private: { 'x.txt': 'INSIDE', '.well-known': { x: 'HIDDEN' } },
      ...{
        auth: { session: 'SHADOW', 'shadow.txt': 'SHADOW' },
        flux: { 'a.b': { c: { d: 'SHADOW' } } },
        'a%2e.txt': 'PERCENT',
      },
    },
  })
  for (const [target, name] of [
    [join(base, 'secret.txt'), 'link.txt'],
    [join(base, 'secret.txt'), 'v.txt.br'],
    [join(base, 'outside'), 'folder'],
    ['loop', 'loop'],
  ] as const)
    symlinkSync(target, join(base, 'build', name))
  const { port } = await shared({ STATIC_DIR: join(base, 'build') })
  const read = (target: string, ...headers: (readonly [string, string])[]) =>
    ask(port, { target, headers: [['Accept-Encoding', 'br'], ...headers] })
  for (const path of [...OUT_OF_REACH.split(/\s+/), `/${'a'.repeat(300)}`]) {
    const { status, body } = await read(path)
    t.equal(status, 404, path)
    t.notMatch(body, /INDEX|INSIDE|HIDDEN|OUTSIDE|SHADOW|PERCENT/, path)
  }
  const navigate = ['Sec-Fetch-Mode', 'navigate'] as const
  t.equal((await read('/pages/1', navigate)).body, 'INDEX')
  const own = ['/auth', '/auth/shadow.txt', '/%61uth/shadow.txt', '/flux', '/flux/a.b/c/d', '/site/x/y/z']
  for (const path of [...own, '/auth/.x', '/auth/a%2fb/c', '/flux/a/b/%5c']) {
    const { status, body } = await read(path, navigate)
    t.equal(status, 404, `a navigation to ${path}`)
    t.notMatch(body, /INDEX|SHADOW/, path)
  }
  for (const path of ['/auth/%zz', '/auth/login/%e4', '/flux/%zz'])
    t.equal((await read(path, navigate)).status, 400, `a navigation to ${path}`)
  const noFiles = [
    '/.env',
    '/.git/config',
    '/../x',
    '/%2e%2e/x',
    '/a%00',
    '/a%2fb',
    '/a%5cb',
    '/%e4',
    '/a/%zz?x=%',
  ]
  for (const path of noFiles) {
    t.equal((await read(path, navigate)).body, 'INDEX', `a navigation to ${path}`)
    t.not((await read(path)).status, 200, path)
  }

  const plain = await read('/v.txt')
  t.equal(plain.body, 'PLAIN', 'a compressed form that is a link out of the build is not used')
  t.notOk(field(plain, 'content-encoding'))
  t.equal((await read('/.well-known/security.txt')).body, 'CONTACT')
  t.equal((await read('/private/x.txt')).body, 'INSIDE')
  t.equal((await read('/a%252e.txt')).body, 'PERCENT', 'decoded once')
  for (const path of ['/auth/session', '/%61uth/session'])
    t.match(problemOf(await read(path)), { authenticated: false }, path)
})
