import type { Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { launchChromium } from '../helpers/chromium.ts'
import { metricsOf } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { type Demo, decideOnPage, openTab, readFlux, showsState, signInByHand, startDemo } from './demo.ts'
import { findLeaks, secretsOf } from './leaks.ts'

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

  for (const [format, type] of FORMATS) await seeFlux(t, page, demo, format, type)
  await editSite(t, page)
  await seeBackgroundRefresh(t, page, demo)
  t.strictSame(await findLeaks(demo, [page]), [], 'while signed in')

  await page.locator('#sign-out').click()
  await showsState(page, 'out')
  t.strictSame(await context.cookies(), [], 'nothing is left in the browser')
  t.equal(await page.locator('#flux-body').textContent(), '', 'the data is off the page')
  await demo.sandbox.journal.until({ endpoint: 'revoke' }, 2)

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

t.test('where a sign-in would help, the page offers it and leaves only by a click', async (t) => {
  const demo = await startDemo(t, browser)
  const { sandbox } = demo
  const { publicUrl } = demo.reverseProxy
  const page = await openTab(demo, '/')
  await signInByHand(page, publicUrl)
  sandbox.faults.set({ tokenEndpoint: { mode: 'refuse', error: 'invalid_request' } })
  sandbox.expireAccessTokens()
  t.equal(await readFlux(page), 503)
  await page.locator('#notice-title', { hasText: 'You are still signed in.' }).waitFor()
  const offer = page.locator('#flux-problem .problem-sign-in')
  await offer.waitFor()
  t.equal(page.url(), `${publicUrl}/`)
  await page.locator('#site-name').fill('Typed before')
  sandbox.faults.set({ tokenEndpoint: { mode: 'ok' } })
  await offer.click()
  await decideOnPage(page, publicUrl)
  await showsState(page, 'in')
  t.equal(await page.locator('#site-name').inputValue(), 'Typed before')
  t.equal(await readFlux(page), 200)
})

t.test('the search for tokens finds one that is hidden, in each place where it looks', async (t) => {
  const demo = await startDemo(t, browser)
  const { reverseProxy, context, sandbox } = demo
  const page = await openTab(demo, '/')
  await signInByHand(page, reverseProxy.publicUrl)
  t.equal(await readFlux(page), 200)
  const read = sandbox.journal.entries({ endpoint: 'resource', outcome: 'answered' })[0]
  const token = String(read?.headers.authorization).slice(7)
  for (const padding of ['', '.', '..']) {
    await page.evaluate(`localStorage.setItem('a', btoa(${JSON.stringify(`${padding}{"a":"${token}"}`)}))`)
    t.strictSame(await findLeaks(demo, [page]), [`an access token: localStorage of ${page.url()}`])
  }
  await page.evaluate('localStorage.clear()')
  await context.addCookies([{ name: 'a', value: token, url: reverseProxy.publicUrl }])
  t.ok((await findLeaks(demo, [page])).includes('an access token: cookie a'))
  await context.clearCookies({ name: 'a' })
  sandbox.faults.set({ resourceHeaders: { etag: `"${sandbox.issueTokens('alice').access_token}"` } })
  t.equal(await readFlux(page), 200)
  // The page asks for its session each second, and may have sent the cookie.
  const found = await findLeaks(demo, [page])
  t.ok(found.includes('unused at: GET /flux/temperature'), 'nobody ever presented it')
})

const FORMATS = [
  ['json', 'application/json'],
  ['xml', 'application/xml'],
  ['csv', 'text/csv'],
  ['jsv', 'text/jsv'],
] as const

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
