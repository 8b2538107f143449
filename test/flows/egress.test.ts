import { readFile } from 'node:fs/promises'
import net from 'node:net'
import tls from 'node:tls'
import t, { type Test } from 'tap'
import { cookieHeader, createBrowser } from '../helpers/browser.ts'
import { createCertificate } from '../helpers/certificate.ts'
import type { Teardown } from '../helpers/child.ts'
import { startConnectProxy } from '../helpers/connect-proxy.ts'
import { listenOnLoopback } from '../helpers/ports.ts'
import { startRedis } from '../helpers/redis.ts'
import { presentations } from '../helpers/replicas.ts'
import { startServer } from '../helpers/server-process.ts'
import { CLIENT, decide, signIn, startBff, startSandbox } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { makeFolder } from '../helpers/watchdog.ts'

const CREDENTIALS = 'egress:pa55w0rd'

/** TLS in front of a port. Returns its own port. */
async function endTls(t: Teardown, port: number, options: tls.TlsOptions): Promise<number> {
  const server = tls.createServer(options, (socket) => {
    const plain = net.connect(port, '127.0.0.1')
    for (const [one, other] of [
      [socket, plain],
      [plain, socket],
    ] as const) {
      one.on('error', () => other.destroy())
      one.on('close', () => other.destroy())
      one.pipe(other)
    }
  })
  return await listenOnLoopback(t, server)
}

/** A platform by https under two names that only the proxy can resolve, and the environment of a server behind it. */
async function startFarPlatform(t: Test) {
  const names = 'DNS:auth.platform.example,DNS:data.platform.example,IP:127.0.0.1'
  const certificate = await createCertificate(makeFolder('platform'), names)
  const sandbox = await startSandbox(t)
  const { port, pathname } = new URL(sandbox.authUrl)
  const { pathname: dataPath } = new URL(sandbox.baseUrl)
  const tlsPort = await endTls(t, Number(port), {
    key: await readFile(certificate.keyFile),
    cert: await readFile(certificate.certFile),
  })
  const hosts = { 'auth.platform.example': tlsPort, 'data.platform.example': tlsPort }
  const path = (text: string) => text.replace(/\/$/, '')
  const env = {
    AUTH_URL: `https://auth.platform.example${path(pathname)}`,
    BASE_URL: `https://data.platform.example${path(dataPath)}`,
    OAUTH_REVOCATION_URL: `https://auth.platform.example${path(pathname)}/oauth/revoke`,
    OAUTH_SCOPE: sandbox.baseUrl,
    CLIENT_ID: CLIENT.clientId,
    CLIENT_SECRET: CLIENT.clientSecret,
    WAC: 'DEMO',
    NODE_EXTRA_CA_CERTS: certificate.caFile,
  }
  /** A sign-in of which the user's part does not pass the server. */
  const signInAt = async (publicUrl: string, seconds: number) => {
    const browser = createBrowser(publicUrl)
    sandbox.faults.set({ expiresIn: { value: seconds } })
    const start = await browser.navigate('/auth/login')
    const page = new URL(String(start.headers.location))
    const back = await decide(sandbox, `${sandbox.url}${page.pathname}${page.search}`)
    await browser.navigate(back, { from: 'cross-site' })
    sandbox.faults.set({ expiresIn: 'truth' })
    return browser
  }
  return { sandbox, certificate, hosts, env, signInAt }
}

t.test('a server that reaches the platform only through a TLS proxy with credentials', async (t) => {
  const { sandbox, certificate, hosts, env, signInAt } = await startFarPlatform(t)
  const proxy = await startConnectProxy(t, { credentials: CREDENTIALS, tls: certificate, hosts })
  const server = await startServer(t, {
    ...env,
    https_proxy: proxy.url.replace('://', `://${CREDENTIALS}@`),
    NO_PROXY: 'localhost,127.0.0.1',
  })
  const flux = '/flux/temperature'
  /** Waits for a log line of this event whose reason has these words. */
  const logged = async (event: string, words: RegExp) =>
    await until(`${event} in the log`, () =>
      server.logs().some((line) => line.event === event && String(line.reason).search(words) >= 0),
    )

  await t.test('signs in, reads, refreshes and revokes there', async (t) => {
    const browser = await signInAt(server.publicUrl, 0)
    t.equal((await browser.fetch(flux)).status, 200)
    t.equal(presentations(sandbox).length, 1)
    t.equal((await browser.fetch('/auth/logout', { method: 'POST' })).status, 204)
    await until('revoked', () => sandbox.journal.entries({ endpoint: 'revoke' }).length > 0)
    const targets = ['auth.platform.example:443', 'data.platform.example:443']
    t.strictSame([...new Set(proxy.targets)].sort(), targets)
    for (const { headers } of sandbox.journal.entries())
      t.notOk(headers['proxy-authorization'], 'the platform sees no credentials of the proxy')
  })

  await t.test('ends the call upstream when the browser goes away', async (t) => {
    const browser = await signInAt(server.publicUrl, 3_600)
    t.equal((await browser.fetch(flux)).status, 200)
    sandbox.faults.set({ resource: { mode: 'hang' } })
    const before = sandbox.journal.entries({ endpoint: 'resource' }).length
    const leaving = new AbortController()
    const headers = { cookie: cookieHeader(browser), 'sec-fetch-site': 'same-origin' }
    const left = fetch(server.publicUrl + flux, { headers, signal: leaving.signal })
    await until('it is upstream', () => sandbox.journal.entries({ endpoint: 'resource' }).length > before)
    const ends = proxy.clientEnds.length
    leaving.abort()
    await t.rejects(left, { name: 'AbortError' })
    await until('its tunnel is closed', () => proxy.clientEnds.length > ends)
    sandbox.faults.set({ resource: { mode: 'ok' } })
  })

  await t.test('waits without a doubt while the proxy refuses, and the log says why', async (t) => {
    const browser = await signInAt(server.publicUrl, 0)
    const reader = await signInAt(server.publicUrl, 3_600)
    proxy.cut()
    proxy.respondWith(407)
    const before = presentations(sandbox).length
    t.match((await browser.fetch(flux)).json(), { code: 'authorization_server_unavailable' })
    t.match((await reader.fetch(flux)).json(), { status: 502, code: 'upstream_unavailable' })
    const name = `the egress proxy 127.0.0.1:${proxy.port} refused CONNECT`
    await logged('refresh.unavailable', new RegExp(`${name} auth.platform.example:443 with status 407`))
    await logged('fault', new RegExp(`${name} data.platform.example:443 with status 407`))
    t.equal(presentations(sandbox).length, before)
    proxy.respondWith(200)
    await until('a good answer', async () => (await browser.fetch(flux)).status === 200)
    t.equal(sandbox.counters().reuseDetected, 0)
  })

  t.notMatch(server.output(), /pa55w0rd/, 'the credentials are never printed')
  t.notMatch(server.output(), Buffer.from(CREDENTIALS).toString('base64'))
})

t.test('NODE_TLS_REJECT_UNAUTHORIZED=0 does not switch off the check of any certificate', async (t) => {
  const { sandbox, hosts } = await startFarPlatform(t)
  const byTls = (url: string) => `https://127.0.0.1:${hosts['auth.platform.example']}${new URL(url).pathname}`
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0'
  t.teardown(() => {
    delete process.env.NODE_TLS_REJECT_UNAUTHORIZED
  })

  const unable = await startBff(t, sandbox, { OAUTH_TOKEN_URL: byTls(`${sandbox.authUrl}/oauth/token`) })
  t.equal((await signIn(unable.browser(), sandbox)).status, 503)
  t.match(unable.log(), /SELF_SIGNED/)
  t.strictSame(sandbox.journal.entries({ endpoint: 'token' }), [])

  const platform = { authUrl: sandbox.authUrl, baseUrl: byTls(sandbox.baseUrl) }
  const bff = await startBff(t, platform, { OAUTH_SCOPE: sandbox.baseUrl })
  const browser = bff.browser()
  t.equal((await signIn(browser, sandbox)).status, 303)
  t.match((await browser.fetch('/flux/temperature')).json(), { status: 502, code: 'upstream_unavailable' })
  t.match(bff.log(), /SELF_SIGNED|self-signed/)
  t.strictSame(sandbox.journal.entries({ endpoint: 'resource' }), [])

  const redis = await startRedis(t, { tls: true })
  const doubting = await startBff(t, sandbox, { REDIS_URL: redis.url })
  await until('Redis is not trusted', () => /store\.unreachable.*self-signed/.test(doubting.log()))
})
