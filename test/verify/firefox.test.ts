import { createServer } from 'node:http'
import t from 'tap'
import { startDemoServers } from '../browser/demo.ts'
import { type FirefoxTab, LACKS_FIREFOX, launchFirefox } from '../helpers/firefox.ts'
import { listenOnLoopback } from '../helpers/ports.ts'
import { startReverseProxy } from '../helpers/reverse-proxy.ts'
import { until } from '../helpers/wait.ts'

const OTHER_SITE = '<!doctype html><a href="/out">Win a prize</a>'

const CALLS = [
  ['/flux/temperature', 'GET'],
  ['/auth/logout', 'POST'],
  ['/site', 'POST'],
] as const

t.test('the core journey in Firefox', { skip: LACKS_FIREFOX }, async (t) => {
  const reverseProxy = await startReverseProxy(t)
  const { sandbox } = await startDemoServers(t, reverseProxy)
  const { publicUrl, passed } = reverseProxy
  const firefox = await launchFirefox(t)
  const tab = await firefox.newTab()
  const shows = (of: FirefoxTab, state: 'in' | 'out') => of.has(`#session-pill[data-state="${state}"]`)

  await t.test('a person signs in and comes back to the same address', async (t) => {
    await tab.goto(`${publicUrl}/?tab=readings`)
    await shows(tab, 'out')
    t.strictSame(await firefox.cookies(), [], 'a visitor gets no cookie')
    await signIn(tab)
    await shows(tab, 'in')
    t.equal(await tab.evaluate('location.href'), `${publicUrl}/?tab=readings`)
    const cookies = (await firefox.cookies()).map((one) => `${one.name} ${one.httpOnly} ${one.sameSite}`)
    t.strictSame(cookies.sort(), ['record true lax', 'session true strict'])
    t.equal(await tab.evaluate('document.cookie'), '', 'no script reads them')
  })

  await t.test('a read shows what came', async (t) => {
    await tab.click('#flux-read')
    await tab.has('#flux-chart polyline.line')
    const read = passed.findLast(({ path, status }) => path.startsWith('/flux/') && status === 200)
    t.equal(await tab.evaluate('document.querySelector("#flux-body").textContent'), read?.body)
  })

  await t.test('a reload just after the sign-in keeps the session', async (t) => {
    await tab.reload()
    await shows(tab, 'in')
    t.equal(await readFlux(tab), 200)
  })

  await t.test('another site can at most begin a sign-in, which leaves the session as it is', async (t) => {
    // A click there leads to a redirect of its own without a referrer: Firefox then says that the person typed the
    // address. A version that says cross-site gets the page with a button.
    const server = createServer(({ url }, response) => {
      response.setHeader('referrer-policy', 'no-referrer').setHeader('content-type', 'text/html')
      if (url === '/out') response.writeHead(302, { location: `${publicUrl}/auth/login?returnTo=%2F` })
      response.end(url === '/' ? OTHER_SITE : '')
    })
    const otherSite = `http://127.0.0.1:${await listenOnLoopback(t, server)}/`
    const other = await firefox.newTab()
    await other.goto(otherSite)
    await other.click('a')
    await other.sees(`location.href !== '${otherSite}' && document.querySelector('h1')`)
    const place = await other.evaluate<string>('location.href')
    t.ok([publicUrl, sandbox.authUrl].includes(new URL(place).origin), place)
    await tab.reload()
    await shows(tab, 'in')

    await other.goto(otherSite)
    const before = passed.length
    for (const [path, method] of CALLS) {
      const call = `fetch('${publicUrl}${path}', { method: '${method}', mode: 'no-cors', credentials: 'include' })`
      await other.evaluate(`${call}.then(() => null, () => null)`)
    }
    const arrived = passed.slice(before).filter(({ path }) => CALLS.some(([own]) => own === path))
    t.strictSame(
      arrived.map(({ status }) => status),
      CALLS.map(() => 403),
    )
    t.equal(await readFlux(tab), 200)
  })

  await t.test('twenty tabs that sign in at once all end signed in, each at its own address', async (t) => {
    await tab.click('#sign-out')
    await shows(tab, 'out')
    const places = Array.from({ length: 20 }, (_, at) => `/?tab=${at}`)
    const tabs = await Promise.all(places.map(() => firefox.newTab()))
    await Promise.all(
      tabs.map((one, at) =>
        one.goto(`${publicUrl}/auth/login?returnTo=${encodeURIComponent(String(places[at]))}`),
      ),
    )
    // A click of a hidden window waits for its turn.
    await Promise.all(tabs.map((one) => one.evaluate('document.querySelector("#use-alice").click()')))
    await Promise.all(tabs.map((one) => shows(one, 'in')))
    const ends = await Promise.all(tabs.map((one) => one.evaluate('location.pathname + location.search')))
    t.strictSame(ends, places)
    t.equal(await readFlux(tab), 200)
    await Promise.all(tabs.map((one) => one.close()))
    await tab.reload()
    await shows(tab, 'in')
  })

  await t.test('a sign-out reaches the other tab and leaves no cookie', async (t) => {
    const second = await firefox.newTab()
    await second.goto(publicUrl)
    await shows(second, 'in')
    await tab.click('#sign-out')
    await shows(tab, 'out')
    await shows(second, 'out')
    const left = (await firefox.cookies()).filter(({ name }) => !name.startsWith('login-'))
    t.strictSame(left, [])
  })
})

t.test(
  'a page that hides its origin updates and signs out in Firefox',
  { skip: LACKS_FIREFOX },
  async (t) => {
    const reverseProxy = await startReverseProxy(t)
    await startDemoServers(t, reverseProxy, { env: { STATIC_REFERRER_POLICY: 'no-referrer' } })
    const { publicUrl, passed } = reverseProxy
    const tab = await (await launchFirefox(t)).newTab()
    const isSignedIn = () =>
      tab.evaluate('fetch("/auth/session").then((one) => one.json()).then((one) => one.authenticated)')
    const enter = async () => {
      await tab.goto(publicUrl)
      await tab.has('#session-pill[data-state="out"]')
      await signIn(tab)
      await tab.has('#session-pill[data-state="in"]')
    }

    await enter()
    const update = `fetch('/site/42', { method: 'PUT', mode: 'same-origin', headers: { 'content-type': 'application/json' },
    body: '{"name":"Plant"}' }).then(({ status }) => status)`
    t.equal(await tab.evaluate(update), 200)
    t.equal(passed.findLast(({ method }) => method === 'PUT')?.requestHeaders.origin, 'null', 'the control')

    t.equal(await tab.evaluate('navigator.sendBeacon("/auth/logout")'), true)
    await until('signed out by a beacon', async () => (await isSignedIn()) === false)

    await enter()
    await tab.evaluate(`(() => {
    const form = Object.assign(document.createElement('form'), { method: 'post', action: '/auth/logout' })
    document.body.append(form)
    form.submit()
    return null
  })()`)
    await tab.has('#session-pill[data-state="out"]')
    t.equal(await tab.evaluate('location.href'), `${publicUrl}/`)
    t.equal(await isSignedIn(), false)
  },
)

function readFlux(tab: FirefoxTab): Promise<number> {
  return tab.evaluate<number>('fetch("/flux/temperature").then(({ status }) => status)')
}

async function signIn(tab: FirefoxTab): Promise<void> {
  await tab.click('#sign-in')
  await tab.fill('#username', 'alice')
  await tab.fill('#password', 'wonderland')
  await tab.click('#accept')
}
