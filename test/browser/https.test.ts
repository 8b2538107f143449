import t from 'tap'
import { launchChromium } from '../helpers/chromium.ts'
import { startRedis } from '../helpers/redis.ts'
import type { Passed } from '../helpers/reverse-proxy.ts'
import { metricsOf, untilReady } from '../helpers/system.ts'
import { decideOnPage, readFlux, showsState, signInByHand, startHttpsDemo } from './demo.ts'
import { findLeaks } from './leaks.ts'

const HOST = 'bff.example'
const SESSION = '__Host-Http-session'
const RECORD = '__Host-Http-record'

const browser = await launchChromium(t)

t.test('a session on https', async (t) => {
  const redis = await startRedis(t)
  const demo = await startHttpsDemo(t, browser, HOST, { env: { REDIS_URL: redis.url } })
  await untilReady(demo.bff)
  const { reverseProxy, context } = demo
  const page = await context.newPage()
  await page.goto(reverseProxy.publicUrl)
  await signInByHand(page, reverseProxy.publicUrl)

  await t.test('it is a __Host-Http- cookie that the browser keeps and sends', async (t) => {
    const cookies = (await context.cookies()).sort((a, b) => (a.name < b.name ? -1 : 1))
    // Without a dot in front: it is for this host alone.
    const common = { domain: HOST, path: '/', expires: -1, httpOnly: true, secure: true }
    t.match(cookies, [
      { name: RECORD, sameSite: 'Lax', ...common },
      { name: SESSION, sameSite: 'Strict', ...common },
    ])
    t.equal(cookies.length, 2)
    t.equal(await page.evaluate('document.cookie'), '')

    t.equal(await readFlux(page), 200)
    const read = reverseProxy.passed.findLast(({ path }) => path.startsWith('/flux/'))
    t.strictSame(cookieNames(read), [RECORD, SESSION])
    t.match(read?.requestHeaders, { 'sec-fetch-site': 'same-origin' })
    t.strictSame(demo.complaints, [])
  })

  await t.test('a callback ends it although the browser sends no Strict cookie', async (t) => {
    const [old] = (await context.cookies()).filter(({ name }) => name === SESSION)
    const [record] = (await redis.cli('KEYS', 'bff:s:*')).split('\n')

    await page.goto(`${reverseProxy.publicUrl}/auth/login`)
    await decideOnPage(page, reverseProxy.publicUrl)
    await showsState(page, 'in')
    const back = reverseProxy.passed.findLast(({ path }) => path.startsWith('/auth/callback/'))
    t.match(back?.requestHeaders, { 'sec-fetch-site': 'cross-site' })
    const [login, ...others] = cookieNames(back)
    t.match(login, /^__Host-Http-login-/)
    t.strictSame(others, [RECORD], 'no session cookie came along')

    const records = (await redis.cli('KEYS', 'bff:s:*')).split('\n')
    t.equal(records.length, 1)
    t.not(records[0], record, 'the new session has a record of its own')
    const [renewed] = (await context.cookies()).filter(({ name }) => name === SESSION)
    t.not(renewed?.value, old?.value)
    t.match(await metricsOf(demo.bff), /reason="replaced"\} 1\b/)
    t.strictSame(await findLeaks(demo, [page]), [])
  })

  await t.test('the browser drops it at sign-out', async (t) => {
    await page.locator('#sign-out').click()
    await showsState(page, 'out')
    t.strictSame(await context.cookies(), [])
    t.strictSame(await findLeaks(demo, [page]), [])
    t.strictSame(demo.complaints, [])
  })
})

/** Names of the cookies that a request carried, sorted. */
function cookieNames(exchange: Passed | undefined): string[] {
  const pairs = (exchange?.requestHeaders.cookie ?? '').split('; ')
  return pairs.map((pair) => pair.split('=')[0] ?? '').sort()
}
