import t from 'tap'
import { launchChromium } from '../helpers/chromium.ts'
import { decideOnPage, openTab, showsState, signInByHand, startDemo } from './demo.ts'

const browser = await launchChromium(t)

t.test('Back, Forward and Reload during a sign-in lead home without an error', async (t) => {
  const demo = await startDemo(t, browser)
  const { reverseProxy, sandbox } = demo
  const page = await openTab(demo, '/?tab=0')

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
  t.strictSame(demo.complaints, [])
  await page.locator('#sign-out').click()
  await showsState(page, 'out')
})
