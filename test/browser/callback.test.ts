import t from 'tap'
import { launchChromium } from '../helpers/chromium.ts'
import { startRedis } from '../helpers/redis.ts'
import { findLeaks } from './leaks.ts'
import { decideOnPage, openTab, showsState, signInByHand, startStoredWorld } from './world.ts'

const browser = await launchChromium(t)
const redis = await startRedis(t)

t.test('Back, Forward and Reload on the way of a sign-in lead home without an error', async (t) => {
  const world = await startStoredWorld(t, browser, redis, 'back')
  const { front, sandbox, records } = world
  const page = await openTab(world, '/')
  await signInByHand(page, front.publicUrl)
  const callback = front.passed.find(({ path }) => path.startsWith('/auth/callback/'))
  if (callback === undefined) throw new Error('nobody came back')

  await page.goto(callback.url)
  t.equal(page.url(), `${front.publicUrl}/`, 'the address of the callback once more')
  await showsState(page, 'in')

  await page.goBack()
  await page.goBack()
  await page.locator('#accept').waitFor()
  await decideOnPage(page, front.publicUrl)
  t.equal(page.url(), `${front.publicUrl}/`, 'accepting once more after Back')
  await showsState(page, 'in')
  await page.reload()
  await showsState(page, 'in')
  t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, 1, 'nothing was redeemed a second time')
  t.equal(await records(), 1)
  t.strictSame(world.complaints, [])
})

t.test('a sign-in that failed on the way can be reloaded, and started again from its page', async (t) => {
  const world = await startStoredWorld(t, browser, redis, 'fail')
  const { front, sandbox, records } = world
  const page = await openTab(world, '/?tab=0')
  sandbox.faults.set({ tokenEndpoint: { mode: 'status', status: 503, times: 1 } })
  await page.locator('#sign-in').click()
  await decideOnPage(page, front.publicUrl)
  t.match(page.url(), /\/auth\/callback\//)
  t.match(await page.locator('h1').textContent(), /\w/)
  const failed = front.passed.findLast(({ path }) => path.startsWith('/auth/callback/'))
  t.equal(failed?.status, 503)

  const reloaded = await page.reload()
  t.equal(reloaded?.status(), 400, 'the code is not presented again')
  t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, 1)
  t.equal(await records(), 0)
  await page.goBack()
  await page.locator('#accept').waitFor()
  await page.goto(`${front.publicUrl}/?tab=0`)
  await signInByHand(page, front.publicUrl)
  t.equal(await records(), 1)

  // From the page that tells of a failure, by its own link.
  await page.locator('#sign-out').click()
  await showsState(page, 'out')
  sandbox.faults.set({ tokenEndpoint: { mode: 'status', status: 503, times: 1 } })
  await page.locator('#sign-in').click()
  await decideOnPage(page, front.publicUrl)
  await page.getByRole('link', { name: 'Try again' }).click()
  await decideOnPage(page, front.publicUrl)
  await showsState(page, 'in')
  t.equal(page.url(), `${front.publicUrl}/?tab=0`, 'it is remembered where the person was')
  t.strictSame(await findLeaks(world, [page]), [])
})
