import type { Page } from 'playwright-core'
import t from 'tap'
import { launchChromium } from '../helpers/chromium.ts'
import { startRedis } from '../helpers/redis.ts'
import { untilReady } from '../helpers/system.ts'
import { decideOnPage, openTab, readFlux, showsState, startDemo } from './demo.ts'
import { findLeaks } from './leaks.ts'

const browser = await launchChromium(t)

t.test('several tabs of one browser', async (t) => {
  const redis = await startRedis(t)
  const demo = await startDemo(t, browser, { env: { REDIS_URL: redis.url } })
  await untilReady(demo.bff)
  const { reverseProxy, context, sandbox } = demo
  const tabs = await Promise.all([0, 1, 2].map((at) => openTab(demo, `/?tab=${at}`)))
  const [first, second] = tabs as [Page, Page]
  await Promise.all(tabs.map((tab) => showsState(tab, 'out')))

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
    t.match(await redis.cli('KEYS', 'bff:s:*'), /^\S+$/, 'one browser has one session')
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
