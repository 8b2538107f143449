import type { Page } from 'playwright-core'
import t from 'tap'
import { request } from 'undici'
import { launchChromium } from '../helpers/chromium.ts'
import { decideOnPage, showsState, startDemo } from './demo.ts'
import { nothingHappened, signedInVictim } from './victim.ts'

const browser = await launchChromium(t)

t.test('a link on another site to a flux is refused, and one to the app shows the app', async (t) => {
  const { demo, page, home, since } = await signedInVictim(t, browser, 'evil.test')
  await clickLink(page, `${home}/flux/temperature`)
  t.match(await page.locator('body').textContent(), /comes from another origin/)
  t.match(since().at(-1), { status: 403, requestHeaders: { 'sec-fetch-site': 'cross-site' } })
  t.strictSame(demo.sandbox.journal.entries({ endpoint: 'resource' }), [])

  await page.goto('https://evil.test/')
  await clickLink(page, `${home}/`)
  await showsState(page, 'in')
})

t.test('a link on another site to sign-in shows a page with a button and sets nothing', async (t) => {
  const { demo, page, home, context, since } = await signedInVictim(t, browser, 'evil.test')
  const before = await context.cookies()
  await clickLink(page, `${home}/auth/login?returnTo=%2F%3Ftab%3D7`)
  t.equal(page.url(), `${home}/auth/login?returnTo=%2F%3Ftab%3D7`)
  t.equal(await page.locator('h1').textContent(), 'Sign in')
  t.strictSame(await context.cookies(), before)
  t.notOk(
    since()
      .at(-1)
      ?.headers.some((name) => /^set-cookie$/i.test(name)),
  )
  await nothingHappened(t, demo, page)

  await page.getByRole('button', { name: 'Sign in' }).click()
  await decideOnPage(page, home)
  await showsState(page, 'in')
  t.equal(page.url(), `${home}/?tab=7`)
  t.strictSame(demo.complaints, [], 'the page of the server obeys its own policy')
})

t.test("an attacker's code does not sign the victim in to the attacker's account", async (t) => {
  const { demo, app, page, home, context, since } = await signedInVictim(t, browser, 'evil.test')
  const { sandbox } = demo
  const start = await request(`${demo.serverUrl}/auth/login`, { headers: { host: new URL(home).host } })
  const back = await fetch(String(start.headers.location), {
    method: 'POST',
    body: new URLSearchParams({ username: 'bob', password: 'builder', decision: 'accept' }),
    redirect: 'manual',
  })
  const before = await context.cookies()
  await clickLink(page, String(back.headers.get('location')))
  t.match(page.url(), `${home}/auth/callback/`)
  t.equal(since().at(-1)?.status, 400)
  t.strictSame(await context.cookies(), before)
  t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, 1, "only the victim's own code was redeemed")
  await nothingHappened(t, demo, app)
})

async function clickLink(page: Page, address: string): Promise<void> {
  await page.evaluate(`{
    const link = document.createElement('a')
    Object.assign(link, { href: ${JSON.stringify(address)}, id: 'bait', textContent: 'Win a prize' })
    document.body.append(link)
  }`)
  await page.locator('#bait').click()
  await page.waitForURL((url) => url.host !== 'evil.test')
}

t.test('a sign-in begun under another host name ends signed in at PUBLIC_URL', async (t) => {
  const { reverseProxy, context } = await startDemo(t, browser)
  const { publicUrl, passed } = reverseProxy
  const page = await context.newPage()
  const target = '/auth/login?returnTo=%2F%3Ftab%3D1'
  for (const _time of [1, 2]) {
    await page.goto(publicUrl.replace('localhost', '127.0.0.1') + target)
    await decideOnPage(page, publicUrl)
    await showsState(page, 'in')
    t.equal(page.url(), `${publicUrl}/?tab=1`)
  }
  const started = passed.filter(({ path }) => path === target)
  t.equal(started.length, 4, 'each time by one redirect')
  t.strictSame(
    (await context.cookies()).map(({ name }) => name).sort(),
    ['record', 'session'],
    'nothing is left of the redirect',
  )
})

t.test('behind a reverse proxy that changes Host a sign-in succeeds after one redirect', async (t) => {
  const { reverseProxy, serverUrl, context } = await startDemo(t, browser)
  reverseProxy.forwardTo(Number(new URL(serverUrl).port), 'internal.test:3000')
  const page = await context.newPage()
  await page.goto(`${reverseProxy.publicUrl}/auth/login`)
  await decideOnPage(page, reverseProxy.publicUrl)
  await showsState(page, 'in')
  t.equal(reverseProxy.passed.filter(({ path }) => path === '/auth/login').length, 2)
})
