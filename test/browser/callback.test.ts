import t from 'tap'
import { launchChromium } from '../helpers/chromium.ts'
import { startRedis } from '../helpers/redis.ts'
import { decideOnPage, openTab, showsState, signInByHand, startRedisDemo } from './demo.ts'
import { findLeaks } from './leaks.ts'

const browser = await launchChromium(t)

t.test('a browser that comes back from the authorization server', async (t) => {
  const redis = await startRedis(t)
  const demo = await startRedisDemo(t, browser, redis, 'back')
  const { reverseProxy, sandbox, records } = demo
  const page = await openTab(demo, '/?tab=0')
  const home = `${reverseProxy.publicUrl}/?tab=0`

  await t.test('Back, Forward and Reload during a sign-in lead home without an error', async (t) => {
    await signInByHand(page, reverseProxy.publicUrl)
    const callback = reverseProxy.passed.find(({ path }) => path.startsWith('/auth/callback/'))
    if (callback === undefined) throw new Error('nobody came back')

    await page.goto(callback.url)
    t.equal(page.url(), `${reverseProxy.publicUrl}/`, 'the address of the callback once more')
    await showsState(page, 'in')

    await page.goBack()
    await page.goBack()
    await page.locator('#accept').waitFor()
    await decideOnPage(page, reverseProxy.publicUrl)
    t.equal(page.url(), `${reverseProxy.publicUrl}/`, 'accepting once more after Back')
    await showsState(page, 'in')
    await page.reload()
    await showsState(page, 'in')
    const redeemed = sandbox.journal.entries({ endpoint: 'token' })
    t.equal(redeemed.length, 1, 'nothing was redeemed a second time')
    t.equal(await records(), 1)
    t.strictSame(demo.complaints, [])
    await page.locator('#sign-out').click()
    await showsState(page, 'out')
  })

  await t.test('a failed sign-in is started again from its page', async (t) => {
    await page.goto(home)
    sandbox.faults.set({ tokenEndpoint: { mode: 'status', status: 503, times: 1 } })
    await page.locator('#sign-in').click()
    await decideOnPage(page, reverseProxy.publicUrl)
    t.match(page.url(), /\/auth\/callback\//)
    t.equal(await records(), 0)
    await page.getByRole('link', { name: 'Try again' }).click()
    await decideOnPage(page, reverseProxy.publicUrl)
    await showsState(page, 'in')
    t.equal(page.url(), home, 'it is remembered where the person was')
    t.strictSame(await findLeaks(demo, [page]), [])
  })
})
