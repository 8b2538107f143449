import type { Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { launchChromium } from '../helpers/chromium.ts'
import { metricsOf } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { type Demo, decideOnPage, readFlux, showsState, signInByHand, startDemo } from './demo.ts'
import { findLeaks, secretsOf, storageOf } from './leaks.ts'

const browser = await launchChromium(t)

t.test('a person signs in, reads, writes and signs out, and no token enters the browser', async (t) => {
  const demo = await startDemo(t, browser, { tokenLifeSeconds: 6 })
  const { reverseProxy, context } = demo
  const page = await context.newPage()
  await page.goto(`${reverseProxy.publicUrl}/?tab=readings`)
  await showsState(page, 'out')
  t.strictSame(await context.cookies(), [], 'a visitor gets no cookie')

  await signInByHand(page, reverseProxy.publicUrl)
  t.equal(
    page.url(),
    `${reverseProxy.publicUrl}/?tab=readings`,
    'back where the person was, the address clean',
  )
  await holdsTwoCookies(t, demo)

  for (const [format, type] of FORMATS) await seeFlux(t, page, demo, format, type)
  await editSite(t, page)
  await seeBackgroundRefresh(t, page, demo)
  t.strictSame(await findLeaks(demo, [page]), [], 'while signed in')

  await page.locator('#sign-out').click()
  await showsState(page, 'out')
  t.strictSame(await context.cookies(), [], 'nothing is left in the browser')
  t.equal(await page.locator('#flux-body').textContent(), '', 'the data is off the page')
  await demo.sandbox.journal.until({ endpoint: 'revoke' }, 2)

  t.strictSame(await storageOf(page), [])
  t.strictSame(await findLeaks(demo, [page]), [], 'after signing out')
  const kinds = [...secretsOf(demo).values()]
  for (const kind of ['code', 'refresh_token', 'code_verifier', 'token', 'an access token'])
    t.ok(kinds.includes(kind), `the search knew ${kind}`)
  t.ok(
    reverseProxy.passed.some(({ path }) => /^\/auth\/callback\/.*code=code-/.test(path)),
    'the search would have seen a code',
  )
  t.strictSame(demo.complaints, [], 'the console is silent')
})

t.test('a person who refuses, and whose access is withdrawn later', async (t) => {
  const demo = await startDemo(t, browser)
  const { reverseProxy, context, sandbox } = demo
  const page = await context.newPage()
  const address = `${reverseProxy.publicUrl}/?tab=readings#charts`
  await page.goto(address)

  await t.test('a refusal leaves a notice, a clean address and no session', async (t) => {
    await page.locator('#sign-in-large').click()
    await decideOnPage(page, reverseProxy.publicUrl, 'refuse')
    await page.locator('#notice[data-kind="sign-in"]').waitFor()
    t.match(await page.locator('#notice-text').textContent(), /You refused access/)
    t.equal(page.url(), address)
    await showsState(page, 'out')
    t.strictSame(await context.cookies(), [])
    t.strictSame(sandbox.journal.entries({ endpoint: 'token' }), [])

    await signInByHand(page, reverseProxy.publicUrl)
    t.equal(page.url(), address, 'the next attempt succeeds')
    t.strictSame(demo.complaints, [])
  })

  await t.test('after a revocation the page asks to sign in again', async (t) => {
    sandbox.revokeUser('alice')
    await page.locator('#flux-read').click()
    await page.locator('#flux-problem .problem-code', { hasText: 'login_required' }).waitFor()
    await page.locator('#notice[data-kind="ended"]').waitFor()
    await showsState(page, 'out')
    await page.locator('#notice-action').click()
    await decideOnPage(page, reverseProxy.publicUrl)
    await showsState(page, 'in')
    t.equal(await readFlux(page), 200)
    t.match(demo.complaints, [/status of 401/], 'the one refused call is all that the console shows')
  })

  await t.test('the search for tokens finds one that is hidden, in each place where it looks', async (t) => {
    const read = sandbox.journal.entries({ endpoint: 'resource', outcome: 'answered' })[0]
    const token = String(read?.headers.authorization).slice(7)
    for (const padding of ['', '.', '..']) {
      await page.evaluate(`localStorage.setItem('a', btoa(${JSON.stringify(`${padding}{"a":"${token}"}`)}))`)
      t.strictSame(await findLeaks(demo, [page]), [`an access token: localStorage of ${page.url()}`])
    }
    await page.evaluate('localStorage.clear()')
    t.strictSame(await storageOf(page), [])
    await context.addCookies([{ name: 'a', value: token, url: reverseProxy.publicUrl }])
    t.match(await findLeaks(demo, [page]), ['an access token: cookie a'])
    await context.clearCookies({ name: 'a' })
    sandbox.faults.set({ resourceHeaders: { etag: `"${sandbox.issueTokens('alice').access_token}"` } })
    t.equal(await readFlux(page), 200)
    // The page asks for its session each second, and may have sent the cookie.
    const found = await findLeaks(demo, [page])
    t.ok(found.includes('unused at: GET /flux/temperature'), 'nobody ever presented it')
  })
})

const FORMATS = [
  ['json', 'application/json'],
  ['xml', 'application/xml'],
  ['csv', 'text/csv'],
  ['jsv', 'text/jsv'],
] as const

async function holdsTwoCookies(t: Test, { context }: Demo): Promise<void> {
  const cookies = (await context.cookies()).sort((a, b) => (a.name < b.name ? -1 : 1))
  const common = { domain: 'localhost', path: '/', expires: -1, httpOnly: true, secure: false }
  t.match(cookies, [
    { name: 'record', sameSite: 'Lax', ...common },
    { name: 'session', sameSite: 'Strict', ...common },
  ])
  t.equal(cookies.length, 2, 'the cookie of the sign-in is gone')
}

async function seeFlux(t: Test, page: Page, demo: Demo, format: string, type: string): Promise<void> {
  await page.locator('#flux-result').evaluate('(element) => { element.hidden = true }')
  await page.locator('label', { has: page.locator(`#flux-format-${format}`) }).click()
  await page.locator('#flux-read').click()
  await page.locator('#flux-status', { hasText: `200 · ${type}` }).waitFor()
  await page.locator('#flux-chart polyline.line').waitFor()
  const points = (await page.locator('#flux-chart polyline.line').getAttribute('points')) ?? ''
  t.ok(points.split(' ').length > 10, `${format}: a line through the values`)
  t.match(await page.locator('#flux-chart').getAttribute('aria-label'), 'Outdoor temperature')

  // A second read may be a 304, which has no body.
  const last = demo.reverseProxy.passed.findLast(
    ({ path, status }) => path.startsWith('/flux/') && status === 200,
  )
  t.equal(last?.path, `/flux/temperature?format=${format.toUpperCase()}`)
  const shown = (await page.locator('#flux-body').textContent()) ?? ''
  t.equal(shown, last?.body, `${format}: shown as it came`)
  t.match(shown, /\.\d{7}Z/, `${format}: all seven digits of the fraction`)
}

async function editSite(t: Test, page: Page): Promise<void> {
  await page.locator('#site-id').fill('1')
  await page.locator('#site-name').fill('Nord & Süd')
  await page.locator('#site-parent-none').check()
  await page.locator('#site-save').click()
  await page.locator('#site-status', { hasText: '200 · application/json' }).waitFor()
  const byPut = JSON.parse((await page.locator('#site-body').textContent()) ?? '') as object
  t.match(byPut, { wType: 'Site', id: 1, name: 'Nord & Süd', parentInfrastructureID: null })
}

/** Nobody clicks, and the page asks for nothing but the state of its session. */
async function seeBackgroundRefresh(
  t: Test,
  page: Page,
  { sandbox, reverseProxy, bff }: Demo,
): Promise<void> {
  const refreshes = () => sandbox.journal.entries({ kind: 'refresh_token', outcome: 'granted' }).length
  const before = reverseProxy.passed.length
  const seen = Number(await page.locator('#refresh-count').textContent())
  await page
    .locator('#refresh-count')
    .filter({ hasNotText: new RegExp(`^${seen}$`) })
    .waitFor()
  await page.locator('#refresh-flash').waitFor()
  await page.locator('#session-log li.event-refreshed').first().waitFor()
  // The page may see one late that came before.
  const shown = Number(await page.locator('#refresh-count').textContent())
  t.ok(shown > seen, 'the page counts on')
  t.ok(refreshes() >= shown, 'for each the sandbox gave new tokens')
  const asked = reverseProxy.passed.slice(before).map(({ method, path }) => `${method} ${path}`)
  t.strictSame([...new Set(asked)], ['GET /auth/session'])
  // On a slow machine the one that was seen may have been begun by a read before.
  await until('one that no request began', async () =>
    /bff_refresh_total\{trigger="schedule",outcome="granted"\} [1-9]/.test(await metricsOf(bff)),
  )
}
