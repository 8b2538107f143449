import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { launchChromium } from '../helpers/chromium.ts'
import { makeFolder } from '../helpers/watchdog.ts'
import { type Demo, decideOnPage, startDemo } from './demo.ts'

const browser = await launchChromium(t)
const documentation = readFileSync(new URL('../../docs/pages.md', import.meta.url), 'utf8')

/** The functions that the printed code leaves to the page. */
const VIEW = `
const show = (text) => { document.querySelector('h1').textContent = text }
const showNotice = (text) => show('notice: ' + text)
const showPage = () => show('in')
const showSignInButton = (error) => show('out: ' + error)
const showFlux = (flux) => show('flux: ' + Object.keys(flux).length)
`

/** The first block of JavaScript below a heading of docs/pages.md. */
function printed(heading: string): string {
  const from = documentation.indexOf(`\n## ${heading}\n`)
  const code = /```js\n(.*?)```/s.exec(documentation.slice(from))?.[1]
  if (from < 0 || code === undefined) throw new Error(`docs/pages.md has no code below "${heading}"`)
  return code
}

async function startPage(t: Test): Promise<{ demo: Demo; open: (path: string) => Promise<Page> }> {
  const folder = makeFolder('documented-page')
  mkdirSync(join(folder, 'js'))
  writeFileSync(
    join(folder, 'index.html'),
    '<!doctype html><h1></h1><script type="module" src="/js/page.js"></script>',
  )
  // The call is inside a function, since both blocks declare the same names.
  const call = `document.querySelector('h1').onclick = async () => {\n${printed('Call the platform')}\n}\n`
  writeFileSync(join(folder, 'js/page.js'), `${VIEW}\n${printed('Sign in')}\n${call}`)
  const demo = await startDemo(t, browser, { env: { STATIC_DIR: folder } })
  const tab = await demo.context.newPage()
  return {
    demo,
    async open(path) {
      await tab.goto(demo.reverseProxy.publicUrl + path)
      return tab
    },
  }
}

async function says(tab: Page, text: string): Promise<void> {
  await tab.locator('h1', { hasText: text }).waitFor()
}

t.test('the sign-in code of docs/pages.md returns to the very address, with one sign-in', async (t) => {
  const { demo, open } = await startPage(t)
  const { publicUrl, passed } = demo.reverseProxy
  const tab = await open('/reports/7?tab=2&q=a%20b#x')
  await decideOnPage(tab, publicUrl)
  await says(tab, 'in')
  t.equal(tab.url(), `${publicUrl}/reports/7?tab=2&q=a%20b#x`)
  t.equal(passed.filter(({ path }) => path.startsWith('/auth/login')).length, 1)

  await tab.locator('h1').click()
  await says(tab, 'flux: ')
})

t.test('the sign-in code of docs/pages.md lets the user refuse, and cleans the address', async (t) => {
  const { demo, open } = await startPage(t)
  const { publicUrl, passed } = demo.reverseProxy
  const tab = await open('/reports')
  await decideOnPage(tab, publicUrl, 'refuse')
  await says(tab, 'out: access_denied')
  t.equal(tab.url(), `${publicUrl}/reports`)
  t.equal(passed.filter(({ path }) => path.startsWith('/auth/login')).length, 1, 'no second sign-in')
})
