import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import type { Page } from 'playwright-core'
import t from 'tap'
import { launchChromium } from '../helpers/chromium.ts'
import { codeBlock } from '../helpers/documentation.ts'
import { until } from '../helpers/wait.ts'
import { makeFolder } from '../helpers/watchdog.ts'
import { type Demo, decideOnPage, openTab, startDemo } from './demo.ts'

const browser = await launchChromium(t)
const CLIENT = fileURLToPath(new URL('../../client/bff-client.ts', import.meta.url))
const recipe = (name: string) =>
  readFileSync(new URL(`../../examples/recipes/${name}`, import.meta.url), 'utf8')
const printed = (heading: string, language = 'ts') => codeBlock('docs/spa.md', heading, language)

// What the printed code leaves to the page, and which of it runs at which address.
const VIEW = `
const show = (text) => { document.querySelector('h1').textContent = text }
export const texts = []
export const showNotice = (text) => {
  texts.push(text)
  show('notice: ' + text)
}
export const showPage = () => show('in')
export const showSignInButton = (error) => show('out: ' + error)
export const offerSignIn = (text) => show('offer: ' + text)
Object.assign(window, { show, texts })
`
const ENTRY = `
import { texts } from './page'
const find = (selector) => document.querySelector(selector)
if (location.pathname === '/expiry' || location.pathname === '/polls')
  import('./warn').then(({ warnBeforeEnd }) => warnBeforeEnd(find('#expiry'), find('#stay')))
if (location.pathname === '/polls')
  import('./poll').then(({ poll }) => poll('temperature', 0.2, () => texts.push('read'), () => {}))
else if (location.pathname === '/expiry') {}
else if (location.pathname === '/readme') import('./readme')
else {
  import('./popup').then(({ openSignIn }) => { window.openSignIn = openSignIn })
  import('./download').then(({ download }) => { find('#download').onclick = () => download('temperature') })
  if (location.pathname !== '/signed-in') import('./sign-in')
  Promise.all([import('./data'), import('./explain')]).then(([{ readAndRename }, { explain }]) => {
    window.readAndRename = (name) => readAndRename(name).catch(explain)
  })
}
`

/** The page that docs/spa.md prints, in pieces. */
async function buildPage(): Promise<string> {
  const folder = makeFolder('documented-page')
  const files = {
    'src/entry.ts': ENTRY,
    'src/sign-in.ts': printed('Sign in'),
    'src/data.ts': printed('Read and change data'),
    'src/explain.ts': recipe('explain.ts'),
    'src/poll.ts': recipe('poll.ts'),
    'src/page.ts': VIEW,
    'src/popup.ts': recipe('popup.ts'),
    'src/download.ts': recipe('download.ts'),
    'src/readme.ts': codeBlock('README.md', 'From the page', 'ts'),
    'src/warn.ts': recipe('warn.ts'),
    'page/sw.js': recipe('sw.js'),
    'page/index.html': `<!doctype html><link rel="icon" href="data:,"><h1></h1>
      <button type="button" id="download">Download</button> ${recipe('warn.html')}
      <script type="module" src="/entry.js"></script>`,
  }
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true })
    writeFileSync(join(folder, name), text)
  }
  copyFileSync(CLIENT, join(folder, 'src/bff-client.ts'))
  await build({
    entryPoints: [join(folder, 'src/entry.ts')],
    outdir: join(folder, 'page'),
    bundle: true,
    splitting: true,
    format: 'esm',
  })
  return join(folder, 'page')
}

const page = await buildPage()

/** The warning comes two minutes before the end: three seconds after the last activity. */
const WARNS_SOON = '123'

async function says(tab: Page, text: string): Promise<void> {
  await tab.locator('h1', { hasText: text }).waitFor()
}

function signIns({ reverseProxy }: Demo): number {
  return reverseProxy.passed.filter(({ path }) => path.startsWith('/auth/login')).length
}

/** How often pages asked whether somebody is signed in. */
function asked({ reverseProxy }: Demo): number {
  return reverseProxy.passed.filter(({ path }) => path === '/auth/session').length
}

t.test('the code of docs/spa.md in a page', async (t) => {
  const demo = await startDemo(t, browser, { env: { STATIC_DIR: page, OAUTH_FLOWS: 'code,password' } })
  const { context, reverseProxy, sandbox } = demo
  const { publicUrl } = reverseProxy
  const tab = await context.newPage()

  await t.test('the sign-in by password signs in', async (t) => {
    await tab.goto(`${publicUrl}/signed-in`)
    const byPassword = await tab.evaluate(`(async () => {
      const username = 'alice', password = 'wonderland'
      ${printed('Sign in by password', 'js')}
      return (await response.json()).authenticated
    })()`)
    t.equal(byPassword, true)
  })

  await t.test('it signs in, reads and changes data, and explains a failure', async (t) => {
    await tab.evaluate('fetch("/auth/logout", { method: "POST" })')
    const before = signIns(demo)
    await tab.goto(`${publicUrl}/reports/7?tab=2#x`)
    await decideOnPage(tab, publicUrl, 'refuse')
    await says(tab, 'out: access_denied')
    t.equal(tab.url(), `${publicUrl}/reports/7?tab=2#x`)
    t.equal(signIns(demo), before + 1, 'no second sign-in')

    await tab.evaluate('{ window.open = () => null; openSignIn() }')
    await decideOnPage(tab, publicUrl, 'refuse')
    await says(tab, 'out: access_denied')
    t.equal(signIns(demo), before + 2, 'a blocked popup leads to a sign-in in the page')

    const openPopup = async () => {
      const opened = context.waitForEvent('page')
      await tab.evaluate('openSignIn()')
      return await opened
    }
    await tab.evaluate('show("waiting")')
    const refused = await openPopup()
    const over = refused.waitForEvent('close')
    await refused.locator('#refuse').click({ noWaitAfter: true })
    await over
    await says(tab, 'out: access_denied')

    const popup = await openPopup()
    await popup.locator('#username').fill('alice')
    await popup.locator('#password').fill('wonderland')
    const closed = popup.waitForEvent('close')
    await popup.locator('#accept').click({ noWaitAfter: true })
    await closed
    await says(tab, 'in')

    await tab.evaluate('readAndRename("Bench")')
    const texts = await tab.evaluate<string[]>('texts')
    const id = /^\d+/m.exec(texts[1]!.split('\n')[1]!)?.[0]
    t.match(texts[0], /: 100 values$/)
    t.equal(texts[2], `Every digit: ${id}`, 'as in the CSV')
    t.match(texts[3], /^Bench, changed /)

    const downloading = tab.waitForEvent('download')
    await tab.locator('#download').click()
    const download = await downloading
    t.equal(download.suggestedFilename(), 'temperature.csv')
    t.equal(await download.failure(), null)

    // Longer than a read waits.
    const headers = { 'content-type': 'application/json', 'retry-after': '60' }
    const body = '{"error":"invalid_request"}'
    sandbox.faults.set({ tokenEndpoint: { mode: 'status', status: 400, headers, body } })
    sandbox.expireAccessTokens()
    await tab.evaluate('readAndRename("Bench")')
    await says(tab, 'offer: Try again in 60 seconds, or sign in again.')
    sandbox.faults.set({ tokenEndpoint: { mode: 'ok' } })

    await tab.evaluate('fetch("/auth/logout", { method: "POST" })')
    await tab.evaluate('readAndRename("Bench")')
    await says(tab, 'out: ')
    t.strictSame(await context.cookies(), [])

    await tab.evaluate(
      'navigator.serviceWorker.register("/sw.js").then(() => navigator.serviceWorker.ready).then(() => {})',
    )
    const signInsBefore = signIns(demo)
    await tab.goto(`${publicUrl}/reports/8`)
    await decideOnPage(tab, publicUrl)
    await says(tab, 'in')
    t.equal(signIns(demo), signInsBefore + 1, 'with one sign-in')
    t.equal(await tab.evaluate('navigator.serviceWorker.controller !== null'), true)
    t.equal(tab.url(), `${publicUrl}/reports/8`, 'a sign-in passes the service worker')
  })
})

t.test('the code of the README reads, updates and signs out', async (t) => {
  const demo = await startDemo(t, browser, { env: { STATIC_DIR: page } })
  const tab = await openTab(demo, '/auth/login?returnTo=/readme')
  const printing = demo.context.waitForEvent('console', (message) => message.type() === 'log')
  await decideOnPage(tab, demo.reverseProxy.publicUrl)
  t.match((await printing).text(), / \d{4}-\d{2}-\d{2}T/)
  await until('signed out', async () => (await demo.context.cookies()).length === 0)
  t.strictSame(demo.complaints, [])
})

t.test('the warning of docs/spa.md appears before the session ends, and extends it', async (t) => {
  const demo = await startDemo(t, browser, { env: { STATIC_DIR: page, SESSION_IDLE_SECONDS: WARNS_SOON } })
  const tab = await openTab(demo, '/auth/login?returnTo=/expiry')
  await decideOnPage(tab, demo.reverseProxy.publicUrl)
  const warning = tab.locator('#expiry[open]')
  await warning.waitFor()
  const timeLeft = warning.getByRole('timer')
  const before = (await timeLeft.textContent()) ?? ''
  t.match(before, /^[12]:\d\d$/, 'the time that is left')
  await timeLeft.filter({ hasNotText: before }).waitFor()
  t.match(await timeLeft.textContent(), /^[12]:\d\d$/, 'it counts down')
  t.equal(await timeLeft.getAttribute('aria-live'), 'off', 'a screen reader does not say each second')
  const border = await tab.evaluate('getComputedStyle(document.querySelector("#expiry")).borderTopWidth')
  t.equal(border, '0px', 'it has a style')
  await tab.locator('#stay').click()
  await warning.waitFor({ state: 'detached' })
  await warning.waitFor()
  // As when the tab is shown again: the page asks at once.
  await tab.evaluate(
    'fetch("/auth/logout", { method: "POST" }).then(() => document.dispatchEvent(new Event("visibilitychange")))',
  )
  await warning.waitFor({ state: 'detached' })
  t.strictSame(demo.complaints, [])
})

t.test('a page that polls is warned before its session ends all the same', async (t) => {
  const demo = await startDemo(t, browser, { env: { STATIC_DIR: page, SESSION_IDLE_SECONDS: WARNS_SOON } })
  const tab = await openTab(demo, '/auth/login?returnTo=/polls')
  await decideOnPage(tab, demo.reverseProxy.publicUrl)
  await tab.locator('#expiry[open]').waitFor()
  t.ok(Number(await tab.evaluate('texts.length')) > 0, 'it has read meanwhile')
  await tab.close()
})

t.test('a session of 30 days does not make the page of the warning ask without end', async (t) => {
  const month = '2592000'
  const env = { STATIC_DIR: page, SESSION_IDLE_SECONDS: month, SESSION_MAX_SECONDS: month }
  const demo = await startDemo(t, browser, { env })
  const tab = await openTab(demo, '/auth/login?returnTo=/expiry')
  await decideOnPage(tab, demo.reverseProxy.publicUrl)
  await setTimeout(1_000)
  t.ok(asked(demo) < 5, `${asked(demo)} questions for the session`)
  t.equal(await tab.locator('#expiry[open]').count(), 0)
})
