import type { Page } from 'playwright-core'
import t from 'tap'
import { launchChromium } from '../helpers/chromium.ts'
import { decideOnPage, showsState } from './demo.ts'
import { platformIsUntouched, signedInVictim, stillWorks } from './victim.ts'

const browser = await launchChromium(t)

t.test('links on another site do not use the session', async (t) => {
  const { demo, app, page, home, context, since } = await signedInVictim(t, browser, 'evil.test')
  const evil = async (): Promise<void> => void (await page.goto('https://evil.test/'))

  await t.test('a link to a flux is refused, and one to the app shows the app', async (t) => {
    await clickLink(page, `${home}/flux/temperature`)
    t.match(await page.locator('body').textContent(), /comes from another origin/)
    t.match(since().at(-1), { status: 403, requestHeaders: { 'sec-fetch-site': 'cross-site' } })
    await platformIsUntouched(t, demo, page)
    await evil()
    await clickLink(page, `${home}/`)
    await showsState(page, 'in')
  })

  await t.test('a link to sign-in shows a page with a button and sets nothing', async (t) => {
    await evil()
    const complaintsBefore = demo.complaints.length
    const before = await context.cookies()
    await clickLink(page, `${home}/auth/login?returnTo=%2F%3Ftab%3D7`)
    t.equal(page.url(), `${home}/auth/login?returnTo=%2F%3Ftab%3D7`)
    t.equal(await page.locator('h1').textContent(), 'Sign in')
    t.strictSame(await context.cookies(), before)
    t.notMatch(since().at(-1)?.headers.join('\n'), /^set-cookie$/im)
    await platformIsUntouched(t, demo, page)
    await stillWorks(t, app)

    await page.getByRole('button', { name: 'Sign in' }).click()
    await decideOnPage(page, home)
    await showsState(page, 'in')
    t.equal(page.url(), `${home}/?tab=7`)
    t.strictSame(demo.complaints.slice(complaintsBefore), [], 'the page of the server obeys its own policy')
  })
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
