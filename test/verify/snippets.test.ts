import { cpSync, readFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { decideOnPage, openTab, startDemo } from '../browser/demo.ts'
import { startChild, waitForOutput } from '../helpers/child.ts'
import { launchChromium, newProfile } from '../helpers/chromium.ts'
import { codeBlock } from '../helpers/documentation.ts'
import { freePort } from '../helpers/ports.ts'
import { CLIENT, startBff, startSandbox } from '../helpers/system.ts'
import { filesBelow, ROOT, read } from '../repository/files.ts'
import { installPackages, run, writeFiles } from './packages.ts'

const browser = await launchChromium(t)
const printed = (heading: string, language = 'ts') => codeBlock('docs/spa.md', heading, language)

/** What docs/spa.md tells to copy. */
const COPIED = Object.fromEntries(
  ['client/bff-client.ts', 'client/react.ts', ...filesBelow('examples/recipes', '.ts')].map((path) => [
    path.split('/').at(-1)!,
    read(path),
  ]),
)

/** What `npm create vite` makes of a template, with its packages and these files in `src`. */
async function createProject(template: string, files: Readonly<Record<string, string>>, more: string[] = []) {
  const source = join(ROOT, 'node_modules/create-vite', template)
  const manifest = readFileSync(join(source, 'package.json'), 'utf8')
  const { folder, lacks } = await installPackages(more, { 'package.json': manifest })
  cpSync(source, folder, { recursive: true, filter: (path) => !path.endsWith('/package.json') })
  const inSource = Object.entries(files).map(([name, text]) => [`src/${name}`, text])
  writeFiles(folder, Object.fromEntries(inSource))
  return { folder, lacks }
}

/** `npm run build`, and the folder for STATIC_DIR. */
async function build(t: Test, folder: string): Promise<string> {
  const { status, output } = await run(folder, 'npm', ['run', 'build'])
  t.equal(status, 0, output)
  return join(folder, 'dist')
}

const { 'react.ts': hook = '', ...vanilla } = COPIED
const plain = await createProject('template-vanilla-ts', {
  ...vanilla,
  'main.ts': printed('Sign in'),
  'data.ts': printed('Read and change data'),
})

const react = await createProject(
  'template-react-ts',
  {
    ...vanilla,
    'react.ts': hook,
    'App.tsx': printed('React and Vue', 'tsx'),
    'query.ts': printed('Read with TanStack Query, SWR or a timer'),
  },
  ['@tanstack/react-query@5.108.0', 'swr@2.5.1'],
)

t.test('the code of docs/spa.md in a fresh Vite project', { skip: plain.lacks }, async (t) => {
  const { folder } = plain

  await t.test('the first example signs in, as it is printed', async (t) => {
    const STATIC_DIR = await build(t, folder)
    const demo = await startDemo(t, browser, { env: { STATIC_DIR } })
    const tab = await openTab(demo, '/reports/7?tab=2')
    await decideOnPage(tab, demo.reverseProxy.publicUrl, 'refuse')
    await tab.locator('p', { hasText: 'You are signed out (access_denied)' }).waitFor()
    await tab.locator('button', { hasText: 'Sign in' }).click()
    await decideOnPage(tab, demo.reverseProxy.publicUrl)
    await tab.locator('p', { hasText: 'You are signed in.' }).waitFor()
    t.match(tab.url(), '/reports/7?tab=2')
    t.strictSame(demo.complaints, [])
  })

  await t.test('npx vite with the printed configuration: sign-in at one address', async (t) => {
    const { publicUrl, tab } = await develop(t, folder, { withProxy: true })
    await tab.goto(publicUrl)
    await decideOnPage(tab, publicUrl)
    await tab.locator('p', { hasText: 'You are signed in.' }).waitFor()
  })

  await t.test('npx vite without it: the page says that it answered itself', async (t) => {
    const { publicUrl, tab } = await develop(t, folder, { withProxy: false })
    await tab.goto(publicUrl)
    await tab.locator('p', { hasText: 'This page is out of date' }).waitFor()
  })

  await t.test('the other examples read, change, save and poll', async (t) => {
    const names = ['data', 'download', 'explain', 'poll', 'popup', 'warn']
    const all = names.map((name) => `import * as ${name} from './${name}'\nObject.assign(window, ${name})\n`)
    writeFiles(folder, { 'src/main.ts': all.join('') })
    const STATIC_DIR = await build(t, folder)
    const demo = await startDemo(t, browser, { env: { STATIC_DIR } })
    const tab = await openTab(demo, '/auth/login?returnTo=/')
    await decideOnPage(tab, demo.reverseProxy.publicUrl)
    await tab.evaluate('readAndRename("Bench").catch(explain)')
    await tab.locator('p', { hasText: 'Bench, changed' }).waitFor()
    const downloading = tab.waitForEvent('download')
    await tab.evaluate('download("temperature").catch(explain)')
    t.equal((await downloading).suggestedFilename(), 'temperature.csv')
    const polled = await tab.evaluate(`new Promise((resolve, reject) => {
      const stop = poll('temperature', 30, ({ wType }) => { stop(); resolve(wType) }, reject)
    })`)
    t.equal(polled, 'Flux')
    await tab.evaluate('fetch("/auth/logout", { method: "POST" })')
    await tab.evaluate('readAndRename("Bench").catch(explain)')
    await tab.locator('button', { hasText: 'Sign in' }).waitFor()
  })
})

/** Vite's development server in front of the server, at one address. */
async function develop(t: Test, folder: string, { withProxy }: { withProxy: boolean }) {
  const vitePort = await freePort()
  const publicUrl = `http://localhost:${vitePort}`
  const sandbox = await startSandbox(t, { client: { ...CLIENT, callback: `${publicUrl}/registered` } })
  const bff = await startBff(t, sandbox, { PUBLIC_URL: publicUrl })
  const { port } = bff.app.server.server.address() as AddressInfo
  const text = printed('Develop with Vite').replace('5173', String(vitePort))
  const config = text.replace(/localhost:3000/, `127.0.0.1:${port}`)
  writeFiles(folder, {
    'vite.config.ts': withProxy ? config : text.replace(/ {4}proxy: \{.*?\n {4}\},\n/s, ''),
  })
  const { PATH = '', HOME = '' } = process.env
  const options = { cwd: folder, env: { PATH, HOME } }
  const vite = startChild(t, process.execPath, ['node_modules/vite/bin/vite.js'], options)
  await waitForOutput(vite, (output) => /Local:/.exec(output))
  const context = await newProfile(t, browser)
  return { publicUrl, tab: await context.newPage() }
}

const { SWR: swr = '' } = /^With SWR: `(?<SWR>\{.*\})`/m.exec(read('docs/spa.md'))?.groups ?? {}

/** Each library reads a Flux and shows its error. */
const QUERIES = `import { QueryClient, QueryClientProvider, useQuery } from '@tanstack/react-query'
import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import useSWR from 'swr'
import { type BffError, flux, shouldRetry } from './bff-client'
import { defaultOptions } from './query'

function ByQuery() {
  const { error } = useQuery<unknown, BffError>({ queryKey: ['a'], queryFn: ({ signal }) => flux('temperature', { signal }) })
  return <p id="query">{error?.code}</p>
}

function BySwr() {
  const { error } = useSWR<unknown, BffError>('power', (id: string) => flux(id), ${swr})
  return <p id="swr">{error?.code}</p>
}

createRoot(document.getElementById('root')!).render(
  <StrictMode>
    <QueryClientProvider client={new QueryClient({ defaultOptions })}><ByQuery /><BySwr /></QueryClientProvider>
  </StrictMode>,
)
`

// Only where npm cannot install React and the two libraries: the skipped test says so.
t.test('the code of docs/spa.md in a fresh Vite project with React', { skip: react.lacks }, async (t) => {
  const { folder } = react

  await t.test('the component signs in and reads, as it is printed', async (t) => {
    const demo = await startDemo(t, browser, { env: { STATIC_DIR: await build(t, folder) } })
    const tab = await openTab(demo, '/')
    await tab.locator('button', { hasText: 'Sign in' }).click()
    await decideOnPage(tab, demo.reverseProxy.publicUrl)
    await tab.locator('button', { hasText: 'Read' }).click()
    await tab.locator('p', { hasText: 'emperature' }).waitFor()
    t.strictSame(demo.complaints, [])
  })

  await t.test('TanStack Query and SWR do not repeat a 401', async (t) => {
    writeFiles(folder, { 'src/main.tsx': QUERIES })
    const demo = await startDemo(t, browser, { env: { STATIC_DIR: await build(t, folder) } })
    const tab = await openTab(demo, '/')
    for (const library of ['query', 'swr'])
      await tab.locator(`#${library}`, { hasText: 'login_required' }).waitFor()
    const asked = (path: string) => demo.reverseProxy.passed.filter((one) => one.path.startsWith(path)).length
    t.strictSame([asked('/flux/temperature'), asked('/flux/power')], [1, 1])
  })
})
