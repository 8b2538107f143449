import type { Page } from 'playwright-core'
import t from 'tap'
import { launchChromium } from '../helpers/chromium.ts'
import { startRedis } from '../helpers/redis.ts'
import { decideOnPage, openTab, readFlux, showsState, signInByHand, startRedisDemo } from './demo.ts'
import { findLeaks } from './leaks.ts'

const browser = await launchChromium(t)

t.test('several tabs of one browser', async (t) => {
  const redis = await startRedis(t)
  const demo = await startRedisDemo(t, browser, redis, 'tabs')
  const { reverseProxy, context, sandbox, records } = demo
  const tabs = await Promise.all([0, 1, 2].map((at) => openTab(demo, `/?tab=${at}`)))
  const [first, second] = tabs as [Page, Page]
  await Promise.all(tabs.map((tab) => showsState(tab, 'out')))

  await t.test('other tabs follow a change in one tab without a click', async (t) => {
    await signInByHand(second, reverseProxy.publicUrl)
    await showsState(first, 'in')
    await first.locator('#session-log li.event-signed_in').waitFor()
    t.equal(await readFlux(first), 200)

    await second.goto(`${reverseProxy.publicUrl}/auth/login?returnTo=%2F%3Ftab%3D1`)
    await decideOnPage(second, reverseProxy.publicUrl)
    // A look after the end of the old session and before the new cookie shows an end, and then a beginning.
    const begunAgain = 'li.event-replaced, li.event-signed_in ~ li.event-signed_in'
    await first.locator('#session-log').locator(begunAgain).first().waitFor()
    t.equal(await records(), 1, 'a second sign-in of the same browser ends the first session')
    t.equal(await readFlux(first), 200, 'the first tab goes on with the new session')

    await second.locator('#sign-out').click()
    await Promise.all(tabs.map((tab) => showsState(tab, 'out')))
    await first.locator('#notice[data-kind="ended"]').waitFor()
    t.equal(await first.locator('#flux-body').textContent(), '', 'the data has left the other tab too')
    t.strictSame(await context.cookies(), [])
    t.equal(await records(), 0)
    t.strictSame(await findLeaks(demo, [first, second]), [])
  })

  await t.test('tabs that start to sign in together all end signed in, whatever their order', async (t) => {
    const signIns = () => sandbox.journal.entries({ kind: 'authorization_code', outcome: 'granted' }).length
    const before = signIns()
    await Promise.all(
      tabs.map(async (tab) => {
        await tab.locator('#sign-in').click()
        await tab.locator('#accept').waitFor()
      }),
    )
    t.equal((await context.cookies(reverseProxy.publicUrl)).length, 3, 'each sign-in has a cookie of its own')

    for (const at of [2, 0, 1]) {
      const tab = tabs[at]!
      await decideOnPage(tab, reverseProxy.publicUrl)
      await showsState(tab, 'in')
      t.equal(tab.url(), `${reverseProxy.publicUrl}/?tab=${at}`)
    }
    await Promise.all(tabs.map((tab) => showsState(tab, 'in')))
    t.equal(signIns(), before + 3)
    t.equal(await records(), 1, 'one browser has one session')
    t.strictSame((await context.cookies()).map(({ name }) => name).sort(), ['record', 'session'])
    t.strictSame(await findLeaks(demo, tabs), [])
  })

  await t.test('tabs that return at the same moment all end signed in', async (t) => {
    const pair = [first, second]
    await Promise.all(pair.map((tab) => tab.goto(`${reverseProxy.publicUrl}/auth/login`)))
    const gate = sandbox.hold('token', { only: 'authorization_code' })
    const home = Promise.all(pair.map((tab) => decideOnPage(tab, reverseProxy.publicUrl)))
    await gate.arrivals(2)
    gate.release()
    await home
    await Promise.all(tabs.map((tab) => showsState(tab, 'in')))
    t.equal(await readFlux(first), 200)
    t.strictSame(await findLeaks(demo, pair), [])
    t.strictSame(demo.complaints, [])
  })
})
