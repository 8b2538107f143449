import type { Page } from 'playwright-core'
import t from 'tap'
import { launchChromium } from '../helpers/chromium.ts'
import { startRedis } from '../helpers/redis.ts'
import { untilReady } from '../helpers/system.ts'
import { findLeaks } from './leaks.ts'
import { decideOnPage, showsState, signInByHand, startWorld, type World } from './world.ts'

const browser = await launchChromium(t)
const redis = await startRedis(t)

/** A world over Redis, with a function that counts the sessions in it. */
async function startStoredWorld(t: Parameters<typeof startWorld>[0], name: string) {
  const env = { REDIS_URL: redis.url, REDIS_PREFIX: `${name}:` }
  const world = await startWorld(t, browser, { env })
  await untilReady(world.bff)
  const records = async () => {
    const keys = await redis.cli('KEYS', `${name}:s:*`)
    return keys === '' ? 0 : keys.split('\n').length
  }
  return { world, records }
}

t.test('what happens in one tab is seen in the others with no click', async (t) => {
  const { world, records } = await startStoredWorld(t, 'two')
  const { front, context } = world
  const [first, second] = await openTabs(world, 2)
  if (first === undefined || second === undefined) throw new Error('two tabs were asked for')
  await showsState(first, 'out')
  await signInByHand(second, front.publicUrl)
  await showsState(first, 'in')
  await first.locator('#session-log li.event-signed_in').waitFor()
  await first.locator('#flux-read').click()
  await first.locator('#flux-chart polyline.line').waitFor()

  await second.goto(`${front.publicUrl}/auth/login`)
  await decideOnPage(second, front.publicUrl)
  await first.locator('#session-log li.event-replaced').waitFor()
  t.equal(await records(), 1, 'a second sign-in of the same browser ends the first session')
  await first.locator('#flux-read').click()
  await first.locator('#flux-read:not([aria-busy])').waitFor()
  t.equal(await first.locator('#flux-problem').isHidden(), true, 'the first tab goes on with the new session')

  await second.locator('#sign-out').click()
  await showsState(second, 'out')
  await showsState(first, 'out')
  await first.locator('#sign-in-again').waitFor()
  t.equal(await first.locator('#flux-body').textContent(), '', 'the data has left the other tab too')
  t.strictSame(await context.cookies(), [])
  t.equal(await records(), 0)
  t.strictSame(await findLeaks(world, [first, second]), [])
  t.strictSame(world.complaints, [])
})

t.test('five tabs that start to sign in together all end signed in, whatever their order', async (t) => {
  const { world, records } = await startStoredWorld(t, 'five')
  const { front, context, sandbox } = world
  const tabs = await openTabs(world, 5)
  await Promise.all(tabs.map((tab) => showsState(tab, 'out')))
  await Promise.all(
    tabs.map(async (tab) => {
      await tab.locator('#sign-in').click()
      await tab.locator('#accept').waitFor()
    }),
  )
  t.equal((await context.cookies(front.publicUrl)).length, 5, 'each sign-in has a cookie of its own')

  for (const at of [3, 0, 4, 1, 2]) {
    const tab = tabs[at]
    if (tab === undefined) throw new Error('there are five tabs')
    await decideOnPage(tab, front.publicUrl)
    await showsState(tab, 'in')
    t.equal(tab.url(), `${front.publicUrl}/?tab=${at}`)
  }
  await Promise.all(tabs.map((tab) => showsState(tab, 'in')))
  t.equal(sandbox.journal.entries({ kind: 'authorization_code', outcome: 'granted' }).length, 5)
  t.equal(await records(), 1, 'one browser has one session')
  t.strictSame((await context.cookies()).map(({ name }) => name).sort(), ['record', 'session'])
  t.strictSame(await findLeaks(world, tabs), [])
  t.strictSame(world.complaints, [])
})

t.test('tabs that come back in the same moment all end signed in', async (t) => {
  const { world } = await startStoredWorld(t, 'same')
  const { front, sandbox } = world
  const tabs = await openTabs(world, 3)
  await Promise.all(
    tabs.map(async (tab) => {
      await tab.goto(`${front.publicUrl}/auth/login`)
      await tab.locator('#accept').waitFor()
    }),
  )
  const gate = sandbox.hold('token')
  const home = Promise.all(tabs.map((tab) => decideOnPage(tab, front.publicUrl)))
  await gate.arrivals(3)
  gate.release()
  await home
  await Promise.all(tabs.map((tab) => showsState(tab, 'in')))
  await tabs[0]?.locator('#flux-read').click()
  await tabs[0]?.locator('#flux-chart polyline.line').waitFor()
  t.strictSame(await findLeaks(world, tabs), [])
  t.strictSame(world.complaints, [])
})

t.test('Back, Forward and Reload on the way of a sign-in lead home without an error', async (t) => {
  const { world, records } = await startStoredWorld(t, 'back')
  const { front, sandbox } = world
  const [page] = await openTabs(world, 1)
  if (page === undefined) throw new Error('one tab was asked for')
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
  const { world, records } = await startStoredWorld(t, 'fail')
  const { front, sandbox } = world
  const [page] = await openTabs(world, 1)
  if (page === undefined) throw new Error('one tab was asked for')
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

/** Tabs on the demo page, each at an address of its own. */
async function openTabs({ context, front }: World, count: number): Promise<Page[]> {
  return await Promise.all(
    Array.from({ length: count }, async (_, at) => {
      const page = await context.newPage()
      await page.goto(`${front.publicUrl}/?tab=${at}`)
      return page
    }),
  )
}
