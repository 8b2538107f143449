import type { Page } from 'playwright-core'
import t from 'tap'
import { launchChromium } from '../helpers/chromium.ts'
import { showsState } from './demo.ts'
import { platformIsUntouched, SESSION, signedInVictim, stillWorks } from './victim.ts'

const browser = await launchChromium(t)

/** Pages that wish the user harm, and whether browsers count them to the same site as the app. */
const ATTACKERS = [
  { host: 'evil.test', site: 'cross-site', strictCookieTravels: false },
  { host: 'other.bff.example', site: 'same-site', strictCookieTravels: true },
]

for (const { host, site, strictCookieTravels } of ATTACKERS) {
  t.test(`a page of ${host} (${site}) has no power over the session`, async (t) => {
    const { demo, app, page, home, context, since } = await signedInVictim(t, browser, host)

    await t.test('its scripts and forms read nothing and change nothing', async (t) => {
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
      await platformIsUntouched(t, demo, page)
    })

    await t.test('neither a window nor a cookie gives it access', async (t) => {
      const opened = page.waitForEvent('popup')
      await page.evaluate(`void (globalThis.victim = window.open(${JSON.stringify(`${home}/`)}, 'victim'))`)
      const popup = await opened
      await showsState(popup, 'in')
      t.equal(await page.evaluate('victim.closed'), true, 'the opener has lost it')
      t.equal(await popup.evaluate('window.opener'), null)
      await popup.close()

      const before = (await context.cookies(home)).map(({ name, value }) => ({ name, value }))
      await page.goto(`https://${host}/set-cookies`)
      for (const name of [SESSION, '__Host-Http-record', 'session', 'record']) {
        await page.evaluate(`document.cookie = '${name}=forged; Domain=bff.example; Path=/; Secure'`)
      }
      const after = (await context.cookies(home)).map(({ name, value }) => ({ name, value }))
      t.strictSame(
        after.filter(({ name }) => name.startsWith('__Host-')),
        before,
      )
      await platformIsUntouched(t, demo, page)
      await app.reload()
      await stillWorks(t, app)
    })
  })
}

/** Static pages and session facts: they answer, and the browser keeps the answer from the page that asked. */
const OPEN_PATHS = /^\/(?:auth\/(?:session|login)|openapi\.json|main\.js|favicon\.svg)?(?:\?|$)/

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
