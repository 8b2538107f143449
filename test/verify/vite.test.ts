import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { BrowserContext, Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { decideOnPage, openTab, startDemo } from '../browser/demo.ts'
import { type Child, startChild, waitForOutput } from '../helpers/child.ts'
import { launchChromium, newProfile } from '../helpers/chromium.ts'
import { codeBlock, codeBlocks } from '../helpers/documentation.ts'
import { freePort } from '../helpers/ports.ts'
import { makeFolder } from '../helpers/watchdog.ts'
import { ROOT } from '../repository/files.ts'

const browser = await launchChromium(t)

/** A copy of examples/vite that a test may edit, in a tree like that of the repository. */
function copyExample(): string {
  const root = makeFolder('vite')
  const folder = join(root, 'examples/vite')
  mkdirSync(folder, { recursive: true })
  const ours = (path: string) => !/\/(node_modules|dist)$/.test(path)
  cpSync(join(ROOT, 'examples/vite'), folder, { recursive: true, filter: ours })
  cpSync(join(ROOT, 'client'), join(root, 'client'), { recursive: true })
  for (const name of ['node_modules', 'dist']) symlinkSync(join(ROOT, name), join(root, name))
  return folder
}

function start(t: Test, cwd: string, command: string[], env: Record<string, string> = {}): Child {
  const [program = '', ...args] = command
  const { PATH = '', HOME = '' } = process.env
  return startChild(t, program, args, { cwd, env: { PATH, HOME, ...env } })
}

async function newTab(t: Test): Promise<{ context: BrowserContext; tab: Page }> {
  const context = await newProfile(t, browser)
  return { context, tab: await context.newPage() }
}

async function says(tab: Page, text: string): Promise<void> {
  await tab.locator('#status', { hasText: text }).waitFor()
}

function edit(file: string, from: string, to: string): void {
  const text = readFileSync(file, 'utf8')
  if (!text.includes(from)) throw new Error(`${file} has no "${from}"`)
  writeFileSync(file, text.replace(from, to))
}

const folder = copyExample()

t.test('npm run dev of examples/vite: sign-in, hot reload, update, sign-out at one address', async (t) => {
  const publicUrl = `http://localhost:${await freePort()}`
  const env = { PUBLIC_URL: publicUrl, PORT: String(await freePort()) }
  const dev = start(t, folder, ['npm', 'run', 'dev'], env)
  // A SIGKILL of npm would leave the servers behind.
  t.teardown(() => dev.stop('SIGTERM'))
  await waitForOutput(dev, (output) => /Ctrl-C/.exec(output))

  const { context, tab } = await newTab(t)
  const signIns: string[] = []
  tab.on('request', (request) => {
    if (request.url().includes('/auth/login')) signIns.push(request.url())
  })
  await tab.goto(publicUrl)
  await says(tab, 'Sign in to read')
  await tab.locator('#sign-in').click()
  await decideOnPage(tab, publicUrl)
  await says(tab, 'Signed in until')
  const idleLimit = await tab.evaluate<string>(`fetch('/auth/session')
      .then((response) => response.json())
      .then(({ idleExpiresAt }) => new Date(idleExpiresAt).toLocaleTimeString())`)
  await says(tab, `Signed in until ${idleLimit}`)
  await tab.locator('#temperature', { hasText: '°C' }).waitFor()
  t.equal(tab.url(), `${publicUrl}/`, 'the sign-in returns to Vite')

  await tab.evaluate('window.marker = true')
  edit(join(folder, 'src/style.css'), '40rem', '500px')
  await tab.waitForFunction('getComputedStyle(document.body).maxWidth === "500px"')
  t.equal(await tab.evaluate('window.marker'), true, 'a change of the style needs no reload')
  edit(join(folder, 'src/words.ts'), 'Signed in until', 'You may work until')
  await says(tab, 'You may work until')
  t.equal(signIns.length, 1, 'the session outlives a change of the code')

  await tab.locator('[name=name]').fill('Roof')
  await tab.locator('#site button').click()
  await says(tab, 'Saved as Roof')
  await tab.locator('#sign-out').click()
  await says(tab, 'Not signed in')
  t.strictSame(await context.cookies(), [])
  t.equal((await context.request.get(`${publicUrl}/openapi.json`)).status(), 200)

  await dev.stop('SIGTERM')
  await t.rejects(fetch(publicUrl), 'Vite has ended')
})

t.test('npm run build of examples/vite makes a page that STATIC_DIR serves under its policy', async (t) => {
  t.equal((await start(t, folder, ['npm', 'run', 'build']).ended).code, 0)
  const demo = await startDemo(t, browser, { env: { STATIC_DIR: join(folder, 'dist') } })
  const tab = await openTab(demo, '/')
  await tab.locator('#sign-in').click()
  await decideOnPage(tab, demo.reverseProxy.publicUrl)
  await tab.locator('#temperature', { hasText: '°C' }).waitFor()
  t.match(await tab.evaluate('getComputedStyle(document.body).maxWidth'), /px$/, 'with its style')
  t.strictSame(demo.complaints, [])
})

t.test('the commands and the page of docs/getting-started.md work as printed', async (t) => {
  const page = 'docs/getting-started.md'
  const root = makeFolder('getting-started')
  const checkout = join(root, 'checkout')
  mkdirSync(checkout)
  for (const name of ['dist', 'node_modules', 'package.json'])
    symlinkSync(join(ROOT, name), join(checkout, name))
  const sh = (heading: string, env: Record<string, string> = {}) => {
    const code = codeBlock(page, heading, 'sh').trim()
    // A signal must reach npm, so no shell may stay above a single command.
    const script = code.includes('\n') ? `set -e\n${code}` : `exec env ${code}`
    return start(t, checkout, ['sh', '-c', script], env)
  }
  t.equal((await sh('2. Make a page').ended).code, 0)
  writeFileSync(join(root, 'my-page/index.html'), codeBlock(page, '2. Make a page', 'html'))
  writeFileSync(join(root, 'my-page/page.js'), codeBlock(page, '2. Make a page', 'js'))
  const port = String(await freePort())
  const demo = sh('3. Run it', { PORT: port })
  t.teardown(() => demo.stop('SIGTERM'))
  await waitForOutput(demo, (output) => /Ctrl-C/.exec(output))

  const { context, tab } = await newTab(t)
  await tab.goto(`http://localhost:${port}/`)
  await says(tab, 'You are signed out.')
  await tab.locator('#sign').click()
  await decideOnPage(tab, `http://localhost:${port}`, 'refuse')
  await says(tab, 'You did not accept, so you are not signed in.')
  await tab.goto(`http://localhost:${port}/?login_error=server_error`)
  await says(tab, 'The platform could not sign you in.')
  await tab.locator('#sign').click()
  await decideOnPage(tab, `http://localhost:${port}`)
  await says(tab, 'values')
  await tab.locator('[name=name]').fill('Roof')
  await tab.locator('#site button').click()
  await says(tab, 'Saved as Roof.')
  await tab.locator('#sign').click()
  await says(tab, 'You are signed out.')

  await context.route('**/auth/session', (route) => route.abort())
  await tab.reload()
  await says(tab, 'The server cannot be reached. Reload to try again.')
  t.equal(await tab.locator('#sign').isVisible(), false, 'no button without a handler')
  t.equal(await tab.locator('#site').isVisible(), false)

  // The test above runs these, and `npm ci` has made what it runs.
  const others = codeBlocks(page)
    .filter(({ language }) => language === 'sh')
    .map(({ code }) => code.trim())
  t.strictSame(
    others.filter((code) => !code.includes('my-page')),
    ['npm ci', 'cd examples/vite\nnpm run dev', 'PUBLIC_URL=http://localhost:5173 npm run demo'],
  )
})
