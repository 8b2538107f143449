import t from 'tap'
import { launchChromium } from '../helpers/chromium.ts'
import { startRedis } from '../helpers/redis.ts'
import { decideOnPage, openTab, readFlux, showsState, signInByHand, startRedisDemo } from './demo.ts'
import { findLeaks } from './leaks.ts'

const browser = await launchChromium(t)
const redis = await startRedis(t)

t.test('other tabs follow a change in one tab without a click', async (t) => {
  const demo = await startRedisDemo(t, browser, redis, 'two')
  const { reverseProxy, context, records } = demo
  const first = await openTab(demo, '/')
  const second = await openTab(demo, '/')
  await showsState(first, 'out')
  await signInByHand(second, reverseProxy.publicUrl)
  await showsState(first, 'in')
  await first.locator('#session-log li.event-signed_in').waitFor()
  t.equal(await readFlux(first), 200)

  await second.goto(`${reverseProxy.publicUrl}/auth/login`)
  await decideOnPage(second, reverseProxy.publicUrl)
  await first.locator('#session-log li.event-replaced').waitFor()
  t.equal(await records(), 1, 'a second sign-in of the same browser ends the first session')
  t.equal(await readFlux(first), 200, 'the first tab goes on with the new session')

  await second.locator('#sign-out').click()
  await showsState(second, 'out')
  await showsState(first, 'out')
  await first.locator('#notice[data-kind="ended"]').waitFor()
  t.equal(await first.locator('#flux-body').textContent(), '', 'the data has left the other tab too')
  t.strictSame(await context.cookies(), [])
  t.equal(await records(), 0)
  t.strictSame(await findLeaks(demo, [first, second]), [])
  t.strictSame(demo.complaints, [])
})

t.test('five tabs that start to sign in together all end signed in, whatever their order', async (t) => {
  const demo = await startRedisDemo(t, browser, redis, 'five')
  const { reverseProxy, context, sandbox, records } = demo
  const tabs = await Promise.all([0, 1, 2, 3, 4].map((at) => openTab(demo, `/?tab=${at}`)))
  await Promise.all(tabs.map((tab) => showsState(tab, 'out')))
  await Promise.all(
    tabs.map(async (tab) => {
      await tab.locator('#sign-in').click()
      await tab.locator('#accept').waitFor()
    }),
  )
  t.equal((await context.cookies(reverseProxy.publicUrl)).length, 5, 'each sign-in has a cookie of its own')

  for (const at of [3, 0, 4, 1, 2]) {
    const tab = tabs[at]
    if (tab === undefined) throw new Error('there are five tabs')
    await decideOnPage(tab, reverseProxy.publicUrl)
    await showsState(tab, 'in')
    t.equal(tab.url(), `${reverseProxy.publicUrl}/?tab=${at}`)
  }
  await Promise.all(tabs.map((tab) => showsState(tab, 'in')))
  t.equal(sandbox.journal.entries({ kind: 'authorization_code', outcome: 'granted' }).length, 5)
  t.equal(await records(), 1, 'one browser has one session')
  t.strictSame((await context.cookies()).map(({ name }) => name).sort(), ['record', 'session'])
  t.strictSame(await findLeaks(demo, tabs), [])
  t.strictSame(demo.complaints, [])
})

t.test('tabs that return at the same moment all end signed in', async (t) => {
  const demo = await startRedisDemo(t, browser, redis, 'same')
  const { reverseProxy, sandbox } = demo
  const first = await openTab(demo, '/auth/login')
  const second = await openTab(demo, '/auth/login')
  const tabs = [first, second]
  const gate = sandbox.hold('token')
  const home = Promise.all(tabs.map((tab) => decideOnPage(tab, reverseProxy.publicUrl)))
  await gate.arrivals(2)
  gate.release()
  await home
  await Promise.all(tabs.map((tab) => showsState(tab, 'in')))
  t.equal(await readFlux(first), 200)
  t.strictSame(await findLeaks(demo, tabs), [])
  t.strictSame(demo.complaints, [])
})
