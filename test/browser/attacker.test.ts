import type { Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { request } from 'undici'
import { launchChromium } from '../helpers/chromium.ts'
import type { Passed } from '../helpers/front.ts'
import { findLeaks } from './leaks.ts'
import { decideOnPage, showsState, signInByHand, startHttpsWorld } from './world.ts'

const APP = 'app.bff.example'
const SESSION = '__Host-Http-session'
const browser = await launchChromium(t)

/** Pages that wish the user harm, and whether browsers count them to the same site as the app. */
const ATTACKERS = [
  { host: 'evil.test', site: 'cross-site', strictCookieTravels: false },
  { host: 'other.bff.example', site: 'same-site', strictCookieTravels: true },
]

for (const { host, site, strictCookieTravels } of ATTACKERS) {
  t.test(`scripts and forms on ${host} (${site}) read nothing and change nothing`, async (t) => {
    const { world, page, home, since } = await signedInVictim(t, host)
    for (const [what, code] of Object.entries(readings(home))) {
      t.equal(await page.evaluate(code), 'refused', what)
    }
    for (const [what, code] of Object.entries(writings(home))) {
      t.equal(await page.evaluate(code), 'refused', what)
    }
    for (const action of ['/auth/logout', '/site', '/site/1', '/auth/session', '/flux/temperature']) {
      await submitForm(page, home + action)
    }
    for (const path of ['/flux/temperature', '/', '/auth/session', '/auth/login', '/openapi.json']) {
      t.equal(await framed(page, home + path), 'refused', `a frame of ${path}`)
    }

    const arrived = since()
    t.ok(arrived.length >= 15, `${arrived.length} requests came as far as the server`)
    for (const { method, path, status, requestHeaders } of arrived) {
      t.equal(requestHeaders['sec-fetch-site'], site, `${method} ${path} says where it is from`)
      if (OPEN_PATHS.test(path)) continue
      t.ok(status === 403 || status === 405 || status === 404, `${method} ${path} is refused: ${status}`)
    }
    const carried = arrived.some(({ requestHeaders }) => requestHeaders.cookie?.includes(`${SESSION}=`))
    t.equal(carried, strictCookieTravels, 'the session cookie travels only within the site')
    t.notOk(arrived.some(({ headers }) => /^access-control-/im.test(headers.join('\n'))))
    await nothingHappened(t, world, page)
  })

  t.test(`a window that ${host} opens on the app is out of its reach`, async (t) => {
    const { world, page, home } = await signedInVictim(t, host)
    const opened = page.waitForEvent('popup')
    await page.evaluate(`void (globalThis.victim = window.open(${JSON.stringify(`${home}/`)}, 'victim'))`)
    const popup = await opened
    await showsState(popup, 'in')
    t.equal(await page.evaluate('victim.closed'), true, 'the opener has lost it')
    t.equal(await popup.evaluate('window.opener'), null)
    await nothingHappened(t, world, page)
  })

  t.test(`${host} cannot put cookies of its own in the place of ours`, async (t) => {
    const { world, home, app, context } = await signedInVictim(t, host)
    const before = (await context.cookies(home)).map(({ name, value }) => ({ name, value }))
    const page = await context.newPage()
    await page.goto(`https://${host}/set-cookies`)
    for (const name of [SESSION, '__Host-Http-record', 'session', 'record']) {
      await page.evaluate(`document.cookie = '${name}=forged; Domain=bff.example; Path=/; Secure'`)
    }
    const after = (await context.cookies(home)).map(({ name, value }) => ({ name, value }))
    t.strictSame(
      after.filter(({ name }) => name.startsWith('__Host-')),
      before,
    )
    await readsFlux(app)
    await app.reload()
    await showsState(app, 'in')
    t.strictSame(world.sandbox.journal.entries({ endpoint: 'revoke' }), [])
  })
}

t.test('a link on another site to a flux is refused, and one to the app shows the app', async (t) => {
  const { world, page, home, since } = await signedInVictim(t, 'evil.test')
  await clickLink(page, `${home}/flux/temperature`)
  t.match(await page.locator('body').textContent(), /cross_origin/)
  t.match(since().at(-1), { status: 403, requestHeaders: { 'sec-fetch-site': 'cross-site' } })
  t.strictSame(world.sandbox.journal.entries({ endpoint: 'resource' }), [])

  await page.goto('https://evil.test/')
  await clickLink(page, `${home}/`)
  await showsState(page, 'in')
})

t.test('a link on another site to sign-in shows a page with a button and sets nothing', async (t) => {
  const { world, page, home, context, since } = await signedInVictim(t, 'evil.test')
  const before = await context.cookies()
  await clickLink(page, `${home}/auth/login?returnTo=%2F%3Ftab%3D7`)
  t.equal(page.url(), `${home}/auth/login?returnTo=%2F%3Ftab%3D7`)
  t.equal(await page.locator('h1').textContent(), 'Sign in')
  t.strictSame(await context.cookies(), before)
  t.notOk(
    since()
      .at(-1)
      ?.headers.some((name) => /^set-cookie$/i.test(name)),
  )
  await nothingHappened(t, world, page)

  await page.getByRole('link', { name: 'Sign in' }).click()
  await decideOnPage(page, home)
  await showsState(page, 'in')
  t.equal(page.url(), `${home}/?tab=7`)
  t.strictSame(world.complaints, [], 'the page of the server obeys its own policy')
})

t.test("an attacker's code does not sign the victim in to the attacker's account", async (t) => {
  const { world, app, page, home, context, since } = await signedInVictim(t, 'evil.test')
  const { sandbox } = world
  const start = await request(`${world.serverUrl}/auth/login`)
  const back = await fetch(String(start.headers.location), {
    method: 'POST',
    body: new URLSearchParams({ username: 'bob', password: 'builder', decision: 'accept' }),
    redirect: 'manual',
  })
  const before = await context.cookies()
  await clickLink(page, String(back.headers.get('location')))
  t.match(page.url(), `${home}/auth/callback/`)
  t.equal(since().at(-1)?.status, 400)
  t.strictSame(await context.cookies(), before)
  t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, 1, "only the victim's own code was redeemed")
  await nothingHappened(t, world, app)
})

/** Static pages and session facts: they answer, and the browser keeps the answer from the page that asked. */
const OPEN_PATHS = /^\/(?:auth\/(?:session|login)|openapi\.json|main\.js|favicon\.svg)?(?:\?|$)/

/** Somebody who is signed in and then opens a page of `host`; `since` tells what came from there. */
async function signedInVictim(t: Test, host: string) {
  const world = await startHttpsWorld(t, browser, APP)
  const { front, context } = world
  front.addHost(host, (request, response) => {
    if (request.url === '/set-cookies') {
      const forged = (name: string) => `${name}=forged; Domain=bff.example; Path=/; Secure; HttpOnly`
      response.setHeader('set-cookie', [SESSION, '__Host-Http-record', 'session'].map(forged))
    }
    response.setHeader('content-type', 'text/html').end('<!doctype html><title>harmless</title><body>')
  })
  const app = await context.newPage()
  await app.goto(front.publicUrl)
  await signInByHand(app, front.publicUrl)
  const page = await context.newPage()
  await page.goto(`https://${host}/`)
  const before = front.passed.length
  const since = (): Passed[] =>
    front.passed
      .slice(before)
      .filter(({ requestHeaders }) => requestHeaders['sec-fetch-site'] !== 'same-origin')
  return { world, app, page, context, home: front.publicUrl, since }
}

/** The session lives, the sandbox was not called, and the site is as it was. */
async function nothingHappened(t: Test, world: Awaited<ReturnType<typeof startHttpsWorld>>, page: Page) {
  const { sandbox, front } = world
  t.strictSame(sandbox.journal.entries({ endpoint: 'resource' }), [], 'no call reached the platform')
  t.strictSame(sandbox.journal.entries({ endpoint: 'revoke' }), [], 'nobody was signed out')
  t.strictSame(await findLeaks(world, [page]), [])
  const own = await page.context().newPage()
  await own.goto(front.publicUrl)
  await showsState(own, 'in')
  await readsFlux(own)
}

async function readsFlux(page: Page): Promise<void> {
  await page.locator('#flux-read').click()
  await page.locator('#flux-chart polyline.line').waitFor()
}

/** Ways to read; each expression comes to `refused` or to what it got hold of. */
function readings(home: string): Record<string, string> {
  const flux = `${home}/flux/temperature?format=JSON`
  return {
    'fetch with credentials': attempt(`(await fetch('${flux}', { credentials: 'include' })).text()`),
    'fetch with a header': attempt(
      `(await fetch('${flux}', { credentials: 'include', headers: { 'X-CSRF': '1' } })).text()`,
    ),
    'opaque fetch': attempt(`(await fetch('${flux}', { credentials: 'include', mode: 'no-cors' })).type`),
    'session facts': attempt(`(await fetch('${home}/auth/session', { credentials: 'include' })).text()`),
    'start of a sign-in': attempt(
      `(await fetch('${home}/auth/login', { credentials: 'include', redirect: 'manual' })).text()`,
    ),
    image: included('img', 'src', flux),
    script: included('script', 'src', flux),
    'script with a callback': included('script', 'src', `${home}/flux/temperature?callback=steal`),
    'script of the app': included('script', 'src', `${home}/main.js`),
    'style sheet': included('link', 'href', `${home}/flux/temperature?format=CSV`),
    object: included('object', 'data', flux),
  }
}

/** Ways to change something; an answer that cannot be read is `refused` here, what it did is looked at later. */
function writings(home: string): Record<string, string> {
  const body = `JSON.stringify({ siteID: 1, wac: 'DEMO', name: 'stolen' })`
  const simple = `credentials: 'include', mode: 'no-cors', method: 'POST'`
  return {
    PUT: attempt(
      `(await fetch('${home}/site/1', { method: 'PUT', credentials: 'include', body: ${body} })).text()`,
    ),
    'POST of JSON': attempt(
      `(await fetch('${home}/site', { method: 'POST', credentials: 'include', body: ${body}, headers: { 'Content-Type': 'application/json' } })).text()`,
    ),
    'POST of text': attempt(`(await fetch('${home}/site', { ${simple}, body: ${body} })).type`),
    'sign-out': attempt(`(await fetch('${home}/auth/logout', { ${simple} })).type`),
    beacon: `(navigator.sendBeacon('${home}/auth/logout', 'x'), 'refused')`,
  }
}

function attempt(expression: string): string {
  return `(async () => ${expression})().catch(() => 'refused')`
}

function included(element: string, attribute: string, address: string): string {
  return `new Promise((resolve) => {
    const element = document.createElement('${element}')
    element.rel = 'stylesheet'
    element.onload = () => resolve('loaded')
    element.onerror = () => resolve('refused')
    element.${attribute} = '${address}'
    document.body.append(element)
  })`
}

/** Posts a form as text that reads as JSON, into a frame, and waits for the answer to that. */
async function submitForm(page: Page, action: string): Promise<void> {
  const answered = page.waitForResponse((response) => response.url() === action)
  await page.evaluate(`{
    const frame = document.createElement('iframe')
    frame.name = 'target' + document.querySelectorAll('iframe').length
    const form = document.createElement('form')
    Object.assign(form, { method: 'post', enctype: 'text/plain', action: '${action}', target: frame.name })
    const field = document.createElement('input')
    Object.assign(field, { name: '{"siteID":1,"wac":"DEMO","name":"stolen","code":"', value: '"}' })
    form.append(field)
    document.body.append(frame, form)
    form.submit()
  }`)
  await answered
}

/** What became of a frame: `refused` when the browser shows its own error page in it. */
async function framed(page: Page, address: string): Promise<string> {
  const attached = page.waitForEvent('frameattached')
  await page.evaluate(`new Promise((resolve) => {
    const frame = document.createElement('iframe')
    frame.onload = resolve
    frame.src = '${address}'
    document.body.append(frame)
  })`)
  const frame = await attached
  await frame.waitForURL((url) => url.protocol !== 'about:', { waitUntil: 'commit' })
  return frame.url().startsWith('chrome-error:') ? 'refused' : frame.url()
}

async function clickLink(page: Page, address: string): Promise<void> {
  await page.evaluate(`{
    const link = document.createElement('a')
    Object.assign(link, { href: ${JSON.stringify(address)}, id: 'bait', textContent: 'Win a prize' })
    document.body.append(link)
  }`)
  await page.locator('#bait').click()
  await page.waitForURL((url) => url.host !== 'evil.test')
}
