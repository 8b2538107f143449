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

  await t.test('twenty tabs that sign in at once all end signed in, each at its own address', async (t) => {
    const { publicUrl } = reverseProxy
    await first.locator('#sign-out').click()
    await showsState(first, 'out')
    const places = Array.from({ length: 20 }, (_, at) => `${publicUrl}/?tab=${at}`)
    const twenty = await Promise.all(places.map(() => context.newPage()))
    const start = (tab: Page, at: number) =>
      tab.goto(`${publicUrl}/auth/login?returnTo=${encodeURIComponent(`/?tab=${at}`)}`)
    await Promise.all(twenty.map(start))
    const pending = (await context.cookies(publicUrl)).filter(({ name }) => name.startsWith('login-'))
    t.equal(pending.length, 20, 'each sign-in has a cookie of its own')

    await Promise.all(twenty.map((tab) => decideOnPage(tab, publicUrl)))
    await Promise.all(twenty.map((tab) => showsState(tab, 'in')))
    t.strictSame(
      twenty.map((tab) => tab.url().replace(/#_?$/, '')),
      places,
    )
    t.strictSame((await context.cookies()).map(({ name }) => name).sort(), ['record', 'session'])
    t.equal(await readFlux(twenty[0]!), 200)
    t.strictSame(demo.complaints, [])
  })
})
