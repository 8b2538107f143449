import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { BrowserContext, Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { createBrowser, isProblem } from '../helpers/browser.ts'
import { launchBindingChromium, launchWhole, newProfile } from '../helpers/chromium.ts'
import { DURABLE, startRedis } from '../helpers/redis.ts'
import { type Passed, startTlsReverseProxy } from '../helpers/reverse-proxy.ts'
import { untilReady } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { makeFolder } from '../helpers/watchdog.ts'
import { type DemoServers, decideOnPage, startDemoServers } from './demo.ts'

const HOST = 'bff.example'
const OTHER_SITE = 'https://other.example/'
const SESSION = '__Host-Http-session'
const DEVICE = '__Host-device'
const REGISTER = 'POST /auth/device'
const REFRESH = 'POST /auth/device/refresh'
const FLUX = '/flux/temperature'

/** The server behind https with a page that asks nothing by itself, so that each request is one of the test. */
async function startServers(t: Test, { restarts = false } = {}) {
  const folder = makeFolder('page')
  await writeFile(join(folder, 'index.html'), '<!doctype html><title>Empty</title>')
  const redis = await startRedis(t, restarts ? { args: DURABLE } : {})
  const reverseProxy = await startTlsReverseProxy(t, HOST)
  const servers = await startDemoServers(t, reverseProxy, {
    env: { REDIS_URL: redis.url, STATIC_DIR: folder },
  })
  await untilReady(servers.bff)
  return { ...servers, redis }
}

type Servers = Awaited<ReturnType<typeof startServers>>

/** A page of an empty profile, and what it sent: its requests since the last call, in order of their responses. */
async function openPage(context: BrowserContext, { reverseProxy }: Servers) {
  const page = await context.newPage()
  let seen = reverseProxy.passed.length
  return {
    page,
    since(): Passed[] {
      const from = seen
      seen = reverseProxy.passed.length
      return reverseProxy.passed.slice(from)
    },
  }
}

/** Signs in by the page of the authorization server, which is of another site. Answers the response that set the cookie. */
async function signIn(page: Page, { reverseProxy }: Servers): Promise<Passed> {
  await page.goto(`${reverseProxy.publicUrl}/auth/login`)
  await decideOnPage(page, reverseProxy.publicUrl)
  return reverseProxy.passed.findLast(({ path }) => path.startsWith('/auth/callback'))!
}

/** Waits for the registration that follows a sign-in. It fails where the browser sends none: the other tests would pass for nothing. */
async function untilRegistered({ reverseProxy }: DemoServers, after: Passed): Promise<Passed> {
  const since = (): Passed[] => reverseProxy.passed.slice(reverseProxy.passed.indexOf(after))
  const look = (): Passed | undefined => since().find((one) => nameOf(one) === REGISTER)
  await until('Chromium registers its device (have the switches of test/helpers/chromium.ts moved?)', () =>
    Boolean(look()),
  )
  return look()!
}

/** The first refresh, which makes the session bound. Chromium begins it at the next request. */
async function untilBound(page: Page): Promise<void> {
  await until('the session is bound', async () => (await call(page, '/auth/session')).body.bound === true)
}

/** A call by the page's own `fetch`. */
async function call(page: Page, path: string, init: object = {}) {
  const { status, text } = (await page.evaluate(
    `fetch(${JSON.stringify(path)}, ${JSON.stringify(init)}).then(async (response) => ({ status: response.status, text: await response.text() }))`,
  )) as { status: number; text: string }
  return { status, text, body: (text.startsWith('{') ? JSON.parse(text) : {}) as Record<string, unknown> }
}

function nameOf({ method, path }: Passed): string {
  return `${method} ${path}`
}

/** Requests and responses, such as `POST /auth/device 200`. */
function told(passed: readonly Passed[]): string[] {
  return passed.map((one) => `${nameOf(one)} ${one.status}`)
}

function refreshesIn(passed: readonly Passed[]): number[] {
  return passed.filter((one) => nameOf(one) === REFRESH).map(({ status }) => status)
}

/** Another client with copies of these cookies of the browser. */
async function thiefOf(context: BrowserContext, { bff }: Servers, names: readonly string[]) {
  const thief = createBrowser(bff.publicUrl, { port: portOfBff(bff) })
  for (const { name, value } of await context.cookies())
    if (names.includes(name)) thief.cookies.set(name, { value, strict: false })
  return thief
}

function portOfBff({ app }: Servers['bff']): number {
  return (app.server.server.address() as { port: number }).port
}

t.test('in a Chromium that binds sessions to its device', async (t) => {
  const servers = await startServers(t, { restarts: true })
  const { reverseProxy, sandbox, redis, bff } = servers
  const browser = await launchBindingChromium(t, [reverseProxy.publicKeyHash])
  const context = await newProfile(t, browser, { proxy: reverseProxy.proxy })
  const { page, since } = await openPage(context, servers)
  /** The device cookie has expired. */
  const expire = (): Promise<void> => context.clearCookies({ name: DEVICE })
  const isBound = async (): Promise<unknown> => (await call(page, '/auth/session')).body.bound

  const callback = await signIn(page, servers)
  const registration = await untilRegistered(servers, callback)
  await t.test('it registers after a sign-in whose last page is of another site', async (t) => {
    t.equal(callback.requestHeaders['sec-fetch-site'], 'cross-site')
    t.equal(registration.status, 200)
    t.match(registration.requestHeaders, { 'sec-fetch-site': 'same-origin', origin: bff.publicUrl })
    t.notOk(registration.requestHeaders.cookie?.includes(SESSION), 'no session cookie comes along')
  })

  await t.test('the session is bound from the first refresh on', async (t) => {
    t.equal((await call(page, FLUX)).status, 200)
    await untilBound(page)
    t.strictSame(refreshesIn(since()), [403, 200], 'one refresh, while the requests went on')
    const device = (await context.cookies()).find(({ name }) => name === DEVICE)
    t.match(device, { domain: HOST, path: '/', httpOnly: true, secure: true, sameSite: 'Strict' })
  })

  await t.test('a copied session cookie is 401 from another client', async (t) => {
    const thief = await thiefOf(context, servers, [SESSION])
    const refused = await thief.fetch(FLUX)
    isProblem(t, refused, 401, 'login_required', 'the cookie alone')
    t.equal(refused.json().reason, 'device')
    t.equal((await call(page, FLUX)).status, 200, 'its own browser is not disturbed')
    t.equal((await (await thiefOf(context, servers, [SESSION, DEVICE])).fetch(FLUX)).status, 200)
    const challenged = await thief.fetch('/auth/device/refresh', { method: 'POST' })
    t.strictSame([challenged.status, challenged.setCookies], [403, []], 'and it has no key')
  })

  await t.test(
    'what waits for a new device cookie arrives whole, and all of it waits for one refresh',
    async (t) => {
      await expire()
      since()
      const site = { name: 'Held', description: 'é'.repeat(2_000), code: null, parentInfrastructureID: null }
      const put = {
        method: 'PUT',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(site),
      }
      const answers = await Promise.all([
        call(page, '/site/1', put),
        call(page, '/site/2', { ...put, keepalive: true }),
        ...Array.from({ length: 4 }, () => call(page, FLUX)),
      ])
      t.strictSame(
        answers.map(({ status }) => status),
        [200, 200, 200, 200, 200, 200],
      )
      const passed = since()
      // Without a 403 where it still had a challenge.
      t.equal(refreshesIn(passed).filter((status) => status === 200).length, 1)
      t.equal(passed.filter(({ status }) => status === 401).length, 0)
      const written = sandbox.journal.entries({ endpoint: 'resource', kind: 'UpdateSite' })
      t.strictSame(
        written.map(({ body }) => JSON.parse(body!).description),
        [site.description, site.description],
      )
    },
  )

  await t.test('while the store is away it is 503, and 200 when it is back', async (t) => {
    await expire()
    since()
    await redis.stop()
    const away = await call(page, FLUX)
    t.equal(away.status, 503)
    t.equal(away.body.code, 'store_unavailable')
    const asked = since()
    t.strictSame([...new Set(refreshesIn(asked))], [503])
    t.match(
      asked.find(({ path }) => path === FLUX),
      { requestHeaders: { 'secure-session-skipped': /./ } },
    )
    await redis.restart()
    await untilReady(bff)
    t.equal((await call(page, FLUX)).status, 200)
    t.equal(await isBound(), true, 'nobody was signed out')
  })

  await t.test('a link from another site leads to the data, by a page of our own origin', async (t) => {
    reverseProxy.addHost(new URL(OTHER_SITE).host, (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/html' })
      response.end(
        `<a id="data" href="${bff.publicUrl}${FLUX}">Data</a><a id="app" href="${bff.publicUrl}/">App</a>`,
      )
    })
    await expire()
    const tab = await context.newPage()
    t.teardown(() => tab.close())
    await tab.goto(OTHER_SITE)
    since()
    await tab.locator('#data').click()
    await tab.getByRole('link', { name: 'Open' }).click()
    await until('the data is there', () => since().some((one) => one.path === FLUX && one.status < 400))

    await expire()
    await tab.goto(OTHER_SITE)
    await tab.locator('#app').click()
    await tab.waitForURL(`${bff.publicUrl}/`)
    t.equal((await call(tab, FLUX)).status, 200)
    await expire()
    since()
    const typed = await tab.goto(bff.publicUrl + FLUX)
    t.ok(typed!.status() < 400, 'and an address that is typed refreshes at once')
    t.strictSame(refreshesIn(since()).slice(-1), [200])
  })

  await t.test('a second sign-in binds the new session', async (t) => {
    const again = await signIn(page, servers)
    await untilRegistered(servers, again)
    await untilBound(page)
    await expire()
    since()
    t.equal((await call(page, FLUX)).status, 200)
    t.strictSame(refreshesIn(since()).slice(-1), [200])
    t.equal((await (await thiefOf(context, servers, [SESSION])).fetch(FLUX)).status, 401)
  })

  await t.test('signing out needs no device, and the browser then forgets it', async (t) => {
    await expire()
    t.equal((await call(page, '/auth/logout', { method: 'POST' })).status, 204)
    since()
    for (let times = 0; times < 3; times++)
      t.equal((await call(page, '/auth/session')).body.authenticated, false)
    t.ok(refreshesIn(since()).length <= 1, 'it asks once at most')
    await signIn(page, servers)
    t.equal((await call(page, FLUX)).status, 200)
  })
})

t.test('a Chromium without the feature sends nothing more, and its session stays unbound', async (t) => {
  const servers = await startServers(t)
  const browser = await launchWhole(t, [
    `--ignore-certificate-errors-spki-list=${servers.reverseProxy.publicKeyHash}`,
  ])
  const context = await newProfile(t, browser, { proxy: servers.reverseProxy.proxy })
  const { page, since } = await openPage(context, servers)
  const callback = await signIn(page, servers)
  t.ok(callback.headers.includes('secure-session-registration'), 'a registration is offered')
  t.match((await call(page, '/auth/session')).body, { authenticated: true, bound: false })
  t.equal((await call(page, FLUX)).status, 200)
  t.equal((await (await thiefOf(context, servers, [SESSION])).fetch(FLUX)).status, 200)
  t.equal((await call(page, '/auth/logout', { method: 'POST' })).status, 204)
  t.strictSame(
    told(since()).filter((one) => one.includes('/auth/device')),
    [],
  )
})
