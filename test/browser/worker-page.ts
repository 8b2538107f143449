// A page with a service worker, and what must work behind it, in any browser.

import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Page } from 'playwright-core'
import type { Test } from 'tap'
import { until } from '../helpers/wait.ts'
import { makeFolder } from '../helpers/watchdog.ts'
import type { DemoServers } from './demo.ts'

/** One tab of a browser. Expressions are awaited, and their values must survive JSON. */
export interface Tab {
  goto(url: string): Promise<unknown>
  evaluate<T>(expression: string): Promise<T>
  click(selector: string): Promise<void>
  fill(selector: string, text: string): Promise<void>
}

export const tabOf = (page: Page): Tab => ({
  goto: (url) => page.goto(url),
  evaluate: (expression) => page.evaluate(`(async () => await (${expression}))()`),
  click: (selector) => page.locator(selector).click(),
  fill: (selector, text) => page.locator(selector).fill(text),
})

const PAGE = `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>starting</title>
<link rel="icon" href="data:,"><script type="module" src="/page.js"></script></head>
<body><button type="button" id="sign-in">Sign in</button></body></html>
`

const SCRIPT = `import * as bff from '/auth/client.js'
const say = (text) => { document.title = text }
const fail = ({ code }) => say(String(code))
bff.cameBack()
Object.assign(window, { bff })
document.querySelector('#sign-in').onclick = () => bff.signIn().catch(fail)
bff.session().then(({ authenticated }) => say(authenticated ? 'in' : 'out'), fail)
`

/** A new folder with the page and these files. */
export function makeWorkerPage(files: Readonly<Record<string, string>> = {}): string {
  const folder = makeFolder('worker')
  for (const [path, text] of Object.entries({ 'index.html': PAGE, 'page.js': SCRIPT, ...files })) {
    mkdirSync(dirname(join(folder, path)), { recursive: true })
    writeFileSync(join(folder, path), text)
  }
  return folder
}

/** Waits until the expression is true. Between two pages there may be none that could say anything. */
async function sees(tab: Tab, expression: string): Promise<void> {
  await until(expression, () => tab.evaluate<boolean>(`!!(${expression})`).catch(() => false))
}

const says = (tab: Tab, title: string) => sees(tab, `document.title === '${title}'`)

/** Opens the page and waits until this worker controls it. */
export async function installWorker(tab: Tab, publicUrl: string, worker: string): Promise<void> {
  await tab.goto(publicUrl)
  await says(tab, 'out')
  await tab.evaluate(
    `navigator.serviceWorker.register('${worker}').then(() => navigator.serviceWorker.ready).then(() => null)`,
  )
  // Angular's answers nothing before it has read its list.
  if (worker.includes('ngsw'))
    await sees(
      tab,
      `fetch('/ngsw/state').then((state) => state.text()).then((text) => /hash: [0-9a-f]{8}/.test(text))`,
    )
  await tab.goto(publicUrl)
  await sees(tab, 'navigator.serviceWorker.controller !== null')
  await says(tab, 'out')
}

/** Behind a worker that leaves the server's paths alone: sign-in, deep links, pages of errors, sign-out. */
export async function checkBehindWorker(
  t: Test,
  tab: Tab,
  { reverseProxy: { publicUrl, passed } }: DemoServers,
): Promise<void> {
  // Of the worker, or of the server where the worker passes on an address with a dot.
  for (const path of ['/reports/7?tab=2', '/reports/v1.0']) {
    await tab.goto(publicUrl + path)
    await says(tab, 'out')
    t.equal(await tab.evaluate('navigator.serviceWorker.controller !== null'), true, path)
  }

  await tab.goto(`${publicUrl}/reports/7?tab=2`)
  await says(tab, 'out')
  await tab.click('#sign-in')
  await sees(tab, `document.querySelector('#accept')`)
  await tab.fill('#username', 'alice')
  await tab.fill('#password', 'wonderland')
  await tab.click('#accept')
  await says(tab, 'in')
  t.equal(await tab.evaluate('location.href'), `${publicUrl}/reports/7?tab=2`, 'the sign-in comes back')
  t.equal(await tab.evaluate(`bff.flux('temperature').then(({ wType }) => wType)`), 'Flux')

  for (const [path, status] of [
    ['/flux/of%3Anothing', 400],
    ['/auth/nothing', 404],
    [`/auth/callback/${'A'.repeat(43)}?code=a&code=b`, 400],
  ] as const) {
    await tab.goto(publicUrl + path)
    await sees(tab, `document.querySelector('h1') && !document.querySelector('#sign-in')`)
    t.equal(await tab.evaluate('document.contentType'), 'text/html', `${path} shows a page`)
    t.match(
      passed.findLast((exchange) => exchange.path === path),
      { status },
      'of the server',
    )
  }

  await tab.goto(publicUrl)
  await says(tab, 'in')
  await tab.evaluate('bff.signOut().then(() => null)')
  await tab.goto(publicUrl)
  await says(tab, 'out')
}

/** Behind a worker that answers the server's paths with the page: the client says so. */
export async function checkWithoutExclusion(t: Test, tab: Tab, { reverseProxy }: DemoServers): Promise<void> {
  const { publicUrl, passed } = reverseProxy
  await tab.goto(`${publicUrl}/reports/7`)
  await says(tab, 'out')
  await tab.click('#sign-in')
  await says(tab, 'answered_by_page')
  t.equal(await tab.evaluate('location.pathname'), '/auth/login', 'the button reloads the page')
  await tab.click('#sign-in')
  t.equal(await tab.evaluate('bff.signIn().catch(({ code }) => code)'), 'answered_by_page')
  t.notOk(
    passed.some(({ path }) => path.startsWith('/auth/login')),
    'no request reached the server',
  )
}
