import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { brotliCompressSync, brotliDecompressSync, gunzipSync, gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { request } from 'undici'
import { parseConfig } from '../../src/config/config.ts'
import { requireDocumented } from '../helpers/documented.ts'
import { portOfUrl } from '../helpers/ports.ts'
import { type Bff, startBff } from '../helpers/system.ts'

const PLATFORM = { authUrl: 'http://127.0.0.1:9', baseUrl: 'http://127.0.0.1:9' }
const PAGE = `<!doctype html><title>start</title>${'<p>page</p>'.repeat(50)}`
const SCRIPT = `console.log(1) //${' padding'.repeat(200)}`
const STYLE = `p { color: red }${' '.repeat(500)}`

const PICTURE = '<svg xmlns="http://www.w3.org/2000/svg"/>'
const TEXTS = { '/app.js': SCRIPT, '/site.css': STYLE, '/plain.svg': PICTURE }
const TYPES = {
  '/app.js': 'application/javascript; charset=utf-8',
  '/site.css': 'text/css; charset=utf-8',
  '/plain.svg': 'image/svg+xml',
}

/** A build with both forms of the script, one of the page and of the style, and none of the picture. */
function makeBuild(t: Test): string {
  return t.testdir({
    'index.html': PAGE,
    'index.html.br': brotliCompressSync(PAGE),
    'app.js': SCRIPT,
    'app.js.br': brotliCompressSync(SCRIPT),
    'app.js.gz': gzipSync(SCRIPT),
    'site.css': STYLE,
    'site.css.gz': gzipSync(STYLE),
    'plain.svg': PICTURE,
  })
}

function startWithPage(t: Test, dir: string, env: Record<string, string> = {}): Promise<Bff> {
  return startBff(t, PLATFORM, { STATIC_DIR: dir, ...env })
}

async function get(
  bff: Bff,
  path: string,
  headers: Record<string, string> = {},
  method: 'GET' | 'HEAD' = 'GET',
) {
  const address = bff.publicUrl.replace('localhost', '127.0.0.1') + path
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
  const dir = t.testdir({ 'index.html': PAGE, 'big.js': Buffer.alloc(32_000_000) })
  const bff = await startWithPage(t, dir)
  const { server } = bff.app.server
  t.equal(server.timeout, 3 * (5 * 30_000 + 2 * 10_000 + 15_000), 'no slow call is cut off')
  server.timeout = 300
  const reader = connect(portOfUrl(bff.publicUrl), '127.0.0.1').on('error', () => {})
  const accepted = once(server, 'connection') as Promise<[Socket]>
  reader.pause()
  reader.write('GET /big.js HTTP/1.1\r\nHost: localhost\r\n\r\n')
  const [socket] = await accepted
  await once(socket, 'close')
  t.ok(socket.bytesWritten > 0, 'the response had begun')
  reader.destroy()
})

t.test('the compressed form of a file is sent to a client that prefers it', async (t) => {
  const bff = await startWithPage(t, makeBuild(t))
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
    t.equal(answer.headers['content-encoding'], coding, what)
    t.match(answer.headers.vary, /accept-encoding/i, what)
    t.equal(Number(answer.headers['content-length']), answer.body.length, what)
    const text = TEXTS[path]
    t.equal(decoded(answer), text, what)
    t.equal(answer.headers['content-type'], TYPES[path], what)
    t.equal(answer.headers['cache-control'], 'no-cache', what)
    t.match(answer.headers['content-security-policy'], "script-src 'self'", what)
  }
})

t.test('each form of a file has its validator, its HEAD and its ranges', async (t) => {
  const bff = await startWithPage(t, makeBuild(t))
  const tags = new Set<string>()
  for (const coding of ['br', 'gzip', 'identity']) {
    const headers = { 'accept-encoding': coding }
    const whole = await get(bff, '/app.js', headers)
    const etag = String(whole.headers.etag)
    tags.add(etag)
    const head = await get(bff, '/app.js', headers, 'HEAD')
    t.equal(head.body.length, 0)
    for (const name of ['content-length', 'content-encoding', 'content-type', 'etag', 'vary']) {
      t.equal(head.headers[name], whole.headers[name], `${coding}: HEAD has the same ${name}`)
    }
    const fresh = await get(bff, '/app.js', { ...headers, 'if-none-match': etag })
    t.equal(fresh.status, 304, coding)
    t.match(fresh.headers.vary, /accept-encoding/i)
    t.equal(fresh.body.length, 0)
    const part = await get(bff, '/app.js', { ...headers, range: 'bytes=2-5' })
    t.equal(part.status, 206, coding)
    t.same(part.body, whole.body.subarray(2, 6), `${coding}: a range of the form that was chosen`)
    const beyond = await get(bff, '/app.js', { ...headers, range: `bytes=${whole.body.length}-` })
    t.equal(beyond.status, 200, `${coding}: a range beyond its end is ignored`)
  }
  t.equal(tags.size, 3)
})

t.test('a navigation to a path of the app gets the compressed start page', async (t) => {
  const bff = await startWithPage(t, makeBuild(t))
  const headers = { 'accept-encoding': 'gzip, br', 'sec-fetch-mode': 'navigate' }
  for (const path of ['/', '/deep/link', '/index.html']) {
    const answer = await get(bff, path, headers)
    t.equal(answer.headers['content-encoding'], 'br', path)
    t.equal(answer.headers['content-type'], 'text/html; charset=utf-8', path)
    t.match(answer.headers.vary, /accept-encoding/i, path)
    t.equal(decoded(answer), PAGE, path)
  }
  t.match((await get(bff, '/deep/link', headers)).headers.vary, /sec-fetch-mode, accept, accept-encoding/)
})

t.test('STATIC_CSP adds sources, and STATIC_PERMISSIONS_POLICY replaces the default', async (t) => {
  const bff = await startWithPage(t, makeBuild(t), {
    STATIC_CSP:
      "img-src https://*.tiles.example selfservice.example; CONNECT-SRC wss://live.example:8443/feed 'self';worker-src blob:; frame-src https://maps.example; object-src 'self'; script-src https://cdn.example 'wasm-unsafe-eval';",
    STATIC_PERMISSIONS_POLICY: 'geolocation=(self "https://maps.example"), camera=()',
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
    t.equal(headers['permissions-policy'], 'geolocation=(self "https://maps.example"), camera=()')
  }
  const problem = await get(bff, '/flux/a')
  t.match(problem.headers['content-security-policy'], "default-src 'none'", 'the API keeps its own policy')
})

t.test('the settings of the page warn where no page is served', (t) => {
  const parsed = parseConfig({
    BASE_URL: PLATFORM.baseUrl,
    AUTH_URL: PLATFORM.authUrl,
    PUBLIC_URL: 'http://localhost:3000',
    CLIENT_ID: 'a',
    CLIENT_SECRET: 'b',
    SESSION_SECRET: 's'.repeat(32),
    REDIS_URL: 'redis://redis',
    STATIC_CSP: 'img-src https:',
    STATIC_PERMISSIONS_POLICY: 'fullscreen=*',
  })
  if (!parsed.ok) throw new Error(parsed.faults.join('\n'))
  t.strictSame(parsed.warnings, [
    'STATIC_CSP has no effect without STATIC_DIR',
    'STATIC_PERMISSIONS_POLICY has no effect without STATIC_DIR',
  ])
  t.end()
})
