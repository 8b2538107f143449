import { spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t from 'tap'
import { decideOnPage, openTab, startDemo } from '../browser/demo.ts'
import { launchChromium } from '../helpers/chromium.ts'
import { makeFolder } from '../helpers/watchdog.ts'
import { ROOT } from '../repository/files.ts'

const browser = await launchChromium(t)

/** `@types/react-dom` is not among the packages of the root. */
const REACT_DOM =
  "declare module 'react-dom/client' { export function createRoot(place: Element): { render(node: unknown): void } }\n"

function run(folder: string, command: string, ...args: string[]): string {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd: folder, encoding: 'utf8' })
  if (status !== 0) throw new Error(`${command} ${args.join(' ')}: ${stdout}${stderr}`)
  return stdout
}

/** The example with its packages: the client as `npm pack` makes it, `vue` by the part that it exports. */
function installExample(): string {
  const folder = join(makeFolder('package'), 'example')
  const ours = (path: string) => !/\/(node_modules|dist)$/.test(path)
  cpSync(join(ROOT, 'examples/package'), folder, { recursive: true, filter: ours })
  const [{ filename }] = JSON.parse(run(folder, 'npm', 'pack', join(ROOT, 'dist/client'), '--json'))
  const client = join(folder, 'node_modules/token-handler-bff-client')
  mkdirSync(client, { recursive: true })
  run(folder, 'tar', '-xzf', filename, '--strip-components=1', '-C', client)
  const packages = ['react', 'react-dom', 'scheduler', '@types/react', 'typescript', 'vite']
  for (const [name, own] of [...packages.map((each) => [each, each]), ['vue', '@vue/runtime-dom']]) {
    mkdirSync(dirname(join(folder, 'node_modules', name!)), { recursive: true })
    symlinkSync(join(ROOT, 'node_modules', own!), join(folder, 'node_modules', name!))
  }
  writeFileSync(join(folder, 'src/react-dom.d.ts'), REACT_DOM)
  return folder
}

t.test('examples/package uses all modules of the packed client: types, build and browser', async (t) => {
  const folder = installExample()
  const { scripts, dependencies } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
  t.equal(dependencies['token-handler-bff-client'], 'file:../../dist/client')
  for (const command of scripts.build.split(' && ')) {
    const [name = '', ...args] = command.split(' ')
    run(folder, join(ROOT, 'node_modules/.bin', name), ...args)
  }
  const demo = await startDemo(t, browser, { env: { STATIC_DIR: join(folder, 'dist') } })
  const tab = await openTab(demo, '/')
  await tab.locator('#vue', { hasText: 'Not signed in' }).waitFor()
  await tab.locator('#react button', { hasText: 'Sign in' }).click()
  await decideOnPage(tab, demo.reverseProxy.publicUrl)
  await tab.locator('#vue', { hasText: 'Signed in until' }).waitFor()
  await tab.locator('#react button', { hasText: 'Read' }).click()
  await tab.locator('#react p', { hasText: 'emperature' }).waitFor()
  await tab.locator('#react button', { hasText: 'Sign out' }).click()
  await tab.locator('#vue', { hasText: 'Not signed in' }).waitFor()
  t.strictSame(demo.complaints, [])
})
