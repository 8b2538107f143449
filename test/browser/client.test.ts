import { copyFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { launchChromium } from '../helpers/chromium.ts'
import { listenOnLoopback } from '../helpers/ports.ts'
import { elapsed } from '../helpers/wait.ts'
import { makeFolder } from '../helpers/watchdog.ts'
import { type Demo, decideOnPage, openTab, startDemo } from './demo.ts'

const browser = await launchChromium(t)
const CLIENT = fileURLToPath(new URL('../../dist/client/bff-client.js', import.meta.url))

// At /auto the page signs in by itself and never looks at `login_error`: the page that would loop.
const PAGE = `
import * as bff from '/bff-client.js'
const heard = []
Object.assign(window, { bff, heard, error: null, failure: ({ name, status, code, reason, loginUrl, requestId, retryAfter, body }) =>
  ({ name, status, code, reason, loginUrl, requestId: requestId !== null, retryAfter, body }) })
const show = (text) => { document.querySelector('h1').textContent = text; console.info(text) }
const signIn = () => bff.signIn().catch((error) => show(error.code))
if (location.pathname === '/auto') {
  document.querySelector('h1').onclick = signIn
  const { authenticated } = await bff.session()
  if (authenticated) show('in')
  else await Promise.all([signIn(), signIn()])
} else {
  window.error = bff.cameBack()
  bff.onSessionChange((session) => heard.push(session))
  const { authenticated } = await bff.session()
  show(authenticated ? 'in' : 'out')
}
`

const PAGE_FILE =
  '<!doctype html><link rel="icon" href="data:,"><h1></h1><script type="module" src="/page.js"></script>'

async function startPage(t: Test, env: Record<string, string> = {}): Promise<Demo> {
  const folder = makeFolder('client')
  copyFileSync(CLIENT, join(folder, 'bff-client.js'))
  writeFileSync(join(folder, 'page.js'), PAGE)
  writeFileSync(join(folder, 'index.html'), PAGE_FILE)
  return await startDemo(t, browser, { env: { STATIC_DIR: folder, ...env } })
}

async function shows(tab: Page, text: string): Promise<void> {
  await tab.locator('h1', { hasText: text }).waitFor()
}

/** Resolves when the page shows this. Playwright's look at a page counts as a click in it, and listening does not. */
async function isToldThat(tab: Page, text: string): Promise<void> {
  await tab.waitForEvent('console', (message) => message.text() === text)
}

/** The failure of this call in the page, reduced to its members. */
async function failureOf(tab: Page, call: string): Promise<Record<string, unknown>> {
  return await tab.evaluate(`${call}.then(() => ({}), failure)`)
}

interface Heard {
  authenticated: boolean
  ended?: { reason: string }
}

/** What the tab's listener was told last, once it says this. */
async function hears(tab: Page, authenticated: boolean): Promise<Heard> {
  // A function: the page's policy forbids to evaluate a text a second time.
  await tab.waitForFunction((wanted) => {
    const { heard } = globalThis as unknown as { heard: { authenticated: boolean }[] }
    return heard.at(-1)?.authenticated === wanted
  }, authenticated)
  return await tab.evaluate('heard.at(-1)')
}

t.test('the client in a page', async (t) => {
  const demo = await startPage(t)
  const { sandbox, reverseProxy, context } = demo
  const { publicUrl, passed } = reverseProxy
  const asked = (path: string) => passed.filter((exchange) => exchange.path.startsWith(path)).length

  await t.test('it signs in, calls, waits, tells other tabs, and reports every failure', async (t) => {
    const first = await openTab(demo, '/')
    const second = await openTab(demo, '/reports/7?tab=2&q=a%20b#x')
    await shows(first, 'out')
    await shows(second, 'out')
    t.match(await failureOf(first, 'bff.flux("temperature")'), {
      name: 'BffError',
      status: 401,
      code: 'login_required',
      reason: null,
      requestId: true,
    })

    // Evaluations wait for promises, and this one stays pending.
    await second.evaluate('void bff.signIn()')
    const askedByFirst: string[] = []
    first.on('request', (request) => askedByFirst.push(request.url()))
    await decideOnPage(second, publicUrl)
    await shows(second, 'in')
    t.equal(second.url(), `${publicUrl}/reports/7?tab=2&q=a%20b#x`)
    t.equal(asked('/auth/login'), 1)
    await hears(first, true)
    t.strictSame(askedByFirst, [], 'the other tab hears of a sign-in without a question')

    t.match(await first.evaluate('bff.flux("temperature", { query: { values: 3 } })'), { wType: 'Flux' })
    const exact = await first.evaluate(
      'bff.flux("power", { wac: "DEMO", bigint: true }).then(({ id }) => [typeof id, String(id)])',
    )
    const text = String(await first.evaluate('bff.flux("power", { format: "CSV" })'))
    t.strictSame(exact, ['bigint', /\d{16,}/.exec(text)?.[0]], 'every digit of the id')
    const changed = await first.evaluate(
      `bff.updateSite(42, { name: "Bench", description: "D", code: null, parentInfrastructureID: 7n })
          .then((site) => bff.updateSite(42, { ...bff.changesOf(site), name: "Bench 2" }))`,
    )
    t.match(changed, { id: 42, name: 'Bench 2', description: 'D', parentInfrastructureID: 7 })
    const updates = () => sandbox.journal.entries({ kind: 'UpdateSite' })
    const members = 'code description name parentInfrastructureID siteID wType wac'
    for (const { body } of updates())
      t.equal(
        Object.keys(JSON.parse(body ?? ''))
          .sort()
          .join(' '),
        members,
        'all members are sent',
      )
    await first.evaluate('bff.updateSite(42, { name: "Part" }, { partial: true })')
    t.match(JSON.parse(updates().at(-1)?.body ?? ''), { name: 'Part', description: undefined })

    t.match(
      await failureOf(first, 'bff.flux("a b")'),
      { status: 400, code: 'invalid_request' },
      'an error of the server',
    )
    sandbox.faults.set({ resource: { mode: 'truncated', times: 1 } })
    t.match(await failureOf(first, 'bff.flux("power")'), { name: 'SyntaxError' }, 'half of a JSON text')
    const missing = await failureOf(first, 'bff.updateSite(404, {}, { partial: true })')
    t.match(missing, { status: 404, code: null }, 'an error of the platform')
    t.ok(missing.body, 'its text is there')

    const busy = (seconds: string) =>
      sandbox.faults.set({
        resource: { mode: 'status', status: 503, headers: { 'retry-after': seconds }, times: 1 },
      })
    busy('1')
    const waited = await first.evaluate(`(async () => {
      const waits = [], startedAt = performance.now()
      await bff.flux('temperature', { onWait: (seconds, { status }) => waits.push(seconds, status) })
      return [...waits, performance.now() - startedAt >= 1000]
    })()`)
    t.strictSame(waited, [1, 503, true], 'a read waits as long as Retry-After says')
    busy('16')
    t.match(await failureOf(first, 'bff.flux("power")'), { status: 503, retryAfter: 16 }, 'but not for ever')
    const before = asked('/site/')
    busy('1')
    t.match(await failureOf(first, 'bff.updateSite(1, {}, { partial: true })'), {
      status: 503,
      retryAfter: 1,
    })
    t.equal(asked('/site/'), before + 1, 'a write is sent once')
    busy('9')
    const aborted = await first.evaluate(`(async () => {
      const abort = new AbortController()
      const call = bff.flux('power', { signal: abort.signal, onWait: () => setTimeout(() => abort.abort()) })
      return await call.catch(({ name }) => name)
    })()`)
    t.equal(aborted, 'AbortError', 'a wait can be aborted')
    await context.setOffline(true)
    t.match(await failureOf(first, 'bff.session()'), { status: 0, code: 'unreachable' })
    await context.setOffline(false)

    const extended = await first.evaluate('bff.staySignedIn().then(({ authenticated }) => authenticated)')
    t.equal(extended, true)
    askedByFirst.length = 0
    await second.evaluate('bff.signOut()')
    await hears(first, false)
    t.strictSame(askedByFirst, [], 'and of a sign-out')
    t.strictSame(await context.cookies(), [])

    await first.evaluate('void bff.signIn("/")')
    await decideOnPage(first, publicUrl)
    await shows(first, 'in')
    await hears(second, true)
    sandbox.revokeAll()
    sandbox.expireAccessTokens()
    t.match(await failureOf(first, 'bff.flux("power")'), { code: 'login_required', reason: 'refused' })
    for (const tab of [first, second]) {
      t.equal((await hears(tab, false)).ended?.reason, 'refused', 'each tab hears why it ended')
    }
  })

  await t.test('a session that alone is rejected tells where a sign-in would help, and stays', async (t) => {
    const tab = await openTab(demo, '/')
    await tab.evaluate('void bff.signIn()')
    await decideOnPage(tab, publicUrl)
    await shows(tab, 'in')
    const before = asked('/auth/login')
    sandbox.faults.set({ tokenEndpoint: { mode: 'refuse', error: 'invalid_request' } })
    sandbox.expireAccessTokens()
    t.match(await failureOf(tab, 'bff.flux("power", { waitMs: 0 })'), {
      status: 503,
      code: 'authorization_server_unavailable',
      loginUrl: '/auth/login',
      retryAfter: Number,
    })
    sandbox.faults.set({ tokenEndpoint: { mode: 'ok' } })
    t.match(await tab.evaluate('bff.flux("power")'), { wType: 'Flux' }, 'the read waits until it goes on')
    t.equal(asked('/auth/login'), before, 'no sign-in by itself')
    sandbox.faults.set({ resource: { mode: 'status', status: 503, times: 1 } })
    t.match(await failureOf(tab, 'bff.flux("power")'), { status: 503, loginUrl: null }, 'another failure')
    await tab.evaluate('bff.signOut()')
    await tab.close()
  })

  await t.test('it says that the page answered in place of the server', async (t) => {
    const tab = await context.newPage()
    const index = { contentType: 'text/html', body: PAGE_FILE }
    await tab.route('**/auth/session', (route) => route.fulfill(index))
    await tab.goto(publicUrl)
    await tab.waitForFunction('window.bff')
    for (const call of ['bff.session()', 'bff.staySignedIn()'])
      t.match(await failureOf(tab, call), { name: 'BffError', code: 'answered_by_page', status: 200 }, call)
    await tab.unroute('**/auth/session')
    await tab.route('**/auth/login?*', (route) => route.fulfill(index))
    await tab.goto(`${publicUrl}/auth/login?returnTo=%2F`)
    await tab.waitForFunction('window.bff')
    for (const call of ['bff.session()', 'bff.signIn()'])
      t.match(await failureOf(tab, call), { code: 'answered_by_page', status: 0 }, call)
    await tab.close()
  })

  await t.test(
    'a call in the background says so, and only a failed gateway is to be asked again',
    async (t) => {
      const tab = await context.newPage()
      await tab.goto(publicUrl)
      await tab.waitForFunction('window.bff')
      const asking = tab.waitForRequest('**/flux/a?*')
      await tab.evaluate("bff.flux('a', { background: true }).catch(() => {})")
      t.equal((await asking).headers()['x-activity'], 'none')
      const decided = await tab.evaluate(`[
      [0, new bff.BffError('unreachable')], [1, new bff.BffError('upstream_timeout', new Response('', { status: 504 }))],
      [2, new bff.BffError('unreachable')], [0, new bff.BffError('login_required', new Response('', { status: 401 }))],
      [0, new Error('other')], [0, new bff.BffError(null, new Response('', { status: 502, headers: { 'retry-after': '1' } }))],
    ].map((question) => bff.shouldRetry(...question))`)
      t.strictSame(decided, [true, true, false, false, false, false])
      await tab.close()
    },
  )

  await t.test(
    'what a worker or a proxy answers without the server is no error of the platform',
    async (t) => {
      const tab = await context.newPage()
      await tab.goto(publicUrl)
      await tab.waitForFunction('window.bff')
      const answer = (status: number, headers = {}) =>
        tab.route('**/flux/a?*', (route) => route.fulfill({ status, headers, body: '' }), { times: 1 })
      await answer(503, { 'x-request-id': 'a' })
      t.match(await failureOf(tab, 'bff.flux("a")'), { code: null, status: 503 })
      // As Angular's worker answers without a connection.
      await answer(504)
      t.match(await failureOf(tab, 'bff.flux("a")'), { code: 'unreachable', status: 504 })
      // The page of a proxy for a request that it refuses.
      const html = { 'content-type': 'text/html' }
      await answer(413, html)
      t.match(await failureOf(tab, 'bff.flux("a")'), { code: null, status: 413 })
      // That of a host of pages for a method or an address that it does not know.
      await answer(405, html)
      t.match(await failureOf(tab, 'bff.flux("a")'), { code: 'answered_by_page', status: 405 })
      await tab.close()
    },
  )

  await t.test('a sign-in that brought no session is repeated only by a click', async (t) => {
    const before = asked('/auth/login')
    const begun = () => asked('/auth/login') - before
    sandbox.faults.set({ authorizeError: 'server_error' })
    const tab = await openTab(demo, '/auto')
    const repeated = isToldThat(tab, 'sign_in_loop')
    await decideOnPage(tab, publicUrl)
    await repeated
    t.equal(begun(), 1, 'two calls at once are one sign-in, and a failed one is not repeated')

    await tab.locator('h1').click()
    await tab.locator('#refuse').waitFor()
    // For five seconds the click would count for the page that comes back.
    await elapsed(5_100)
    const usable = isToldThat(tab, 'sign_in_loop')
    await tab.goBack()
    await usable
    t.equal(begun(), 2, 'a click goes, and "back" shows the page as usable')

    sandbox.faults.set({ authorizeError: null })
    await tab.locator('h1').click()
    await decideOnPage(tab, publicUrl, 'refuse')
    await tab.goto(`${publicUrl}/other?x=1&login_error=access_denied#_`)
    await shows(tab, 'out')
    t.equal(await tab.evaluate('error'), 'access_denied')
    t.equal(tab.url(), `${publicUrl}/other?x=1`, 'the address is clean again')
  })
})

t.test('signOut goes on to the provider where OAUTH_END_SESSION_URL is set', async (t) => {
  const provider = createServer((_request, response) => response.end('signed out here too'))
  const end = `http://127.0.0.1:${await listenOnLoopback(t, provider)}/logout?a=b`
  const demo = await startPage(t, { OAUTH_END_SESSION_URL: end })
  const { publicUrl } = demo.reverseProxy
  const tab = await openTab(demo, '/')
  const other = await openTab(demo, '/')
  await tab.evaluate('void bff.signIn()')
  await decideOnPage(tab, publicUrl)
  await shows(tab, 'in')
  await tab.evaluate('void bff.signOut()')
  await tab.waitForURL((url) => url.href.startsWith(`${end}&`))
  const { client_id, post_logout_redirect_uri } = Object.fromEntries(new URL(tab.url()).searchParams)
  t.type(client_id, 'string')
  t.equal(post_logout_redirect_uri, `${publicUrl}/`)
  await hears(other, false)
  t.strictSame(await demo.context.cookies(publicUrl), [])
})
