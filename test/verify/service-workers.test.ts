import { cpSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { startDemoServers } from '../browser/demo.ts'
import {
  checkBehindWorker,
  checkWithoutExclusion,
  installWorker,
  makeWorkerPage,
  type Tab,
  tabOf,
} from '../browser/worker-page.ts'
import { launchChromium, newProfile } from '../helpers/chromium.ts'
import { LACKS_FIREFOX, launchFirefox } from '../helpers/firefox.ts'
import { startReverseProxy } from '../helpers/reverse-proxy.ts'
import { read } from '../repository/files.ts'
import { installPackages, run } from './packages.ts'

const SPA = read('docs/spa.md')
const printed = (pattern: RegExp): string => {
  const found = pattern.exec(SPA)?.[1]
  if (found === undefined) throw new Error(`docs/spa.md has no ${pattern}`)
  return found
}

/** A page with Angular's worker, made by Angular's own tool. */
async function makeAngular(packages: string, navigationUrls: string | null): Promise<string> {
  const folder = makeWorkerPage()
  const config = {
    index: '/index.html',
    assetGroups: [
      { name: 'app', installMode: 'prefetch', resources: { files: ['/index.html', '/page.js', '/*.css'] } },
    ],
    ...(navigationUrls !== null && { navigationUrls: JSON.parse(navigationUrls) }),
  }
  writeFileSync(join(folder, 'ngsw-config.json'), JSON.stringify(config))
  const modules = join(packages, 'node_modules/@angular/service-worker')
  // Both are below the folder in which it runs.
  const args = [join(modules, 'ngsw-config.js'), '.', 'ngsw-config.json']
  const { status, output } = await run(folder, process.execPath, args)
  if (status !== 0) throw new Error(output)
  cpSync(join(modules, 'ngsw-worker.js'), join(folder, 'ngsw-worker.js'))
  return folder
}

/** A page with Workbox's worker, made by vite-plugin-pwa. */
async function makeWorkbox(packages: string, denylist: string | null): Promise<string> {
  const source = makeWorkerPage()
  const folder = join(source, 'public')
  cpSync(join(source, 'page.js'), join(folder, 'page.js'))
  writeFileSync(
    join(packages, 'build.mjs'),
    `import { build } from 'vite'
     import { VitePWA } from 'vite-plugin-pwa'
     const workbox = { ${denylist ?? ''} }
     const pwa = VitePWA({ registerType: 'autoUpdate', injectRegister: null, manifest: false, workbox })
     await build({ root: ${JSON.stringify(source)}, logLevel: 'error', plugins: [pwa] })`,
  )
  const { status, output } = await run(packages, process.execPath, ['build.mjs'])
  if (status !== 0) throw new Error(output)
  return join(source, 'dist')
}

const TOOLS = [
  {
    name: 'Angular',
    packages: ['@angular/service-worker@22.2.0'],
    worker: '/ngsw-worker.js',
    make: makeAngular,
    exclusion: printed(/`"navigationUrls": (\[.*?\])`/),
  },
  {
    name: 'vite-plugin-pwa',
    packages: ['vite-plugin-pwa@2.0.0', 'workbox-build@7.4.1', 'workbox-window@7.4.1', 'vite@8.3.8'],
    worker: '/sw.js',
    make: makeWorkbox,
    exclusion: printed(/`(navigateFallbackDenylist: \[.*?\])`/),
  },
]

const BROWSERS: [name: string, lacks: string | false, open: (t: Test) => Promise<Tab>][] = [
  [
    'Chromium',
    false,
    async (t) => {
      const context = await newProfile(t, await launchChromium(t))
      return tabOf(await context.newPage())
    },
  ],
  ['Firefox', LACKS_FIREFOX, async (t) => await (await launchFirefox(t)).newTab()],
]

// Before the first test: the runner ends where none is left while a module still loads.
const installations = new Map<string, Awaited<ReturnType<typeof installPackages>>>()
for (const { name, packages } of TOOLS) installations.set(name, await installPackages(packages))

for (const { name, worker, make, exclusion } of TOOLS) {
  const installed = installations.get(name)!
  for (const [browser, lacks, open] of BROWSERS) {
    t.test(`the worker of ${name} in ${browser}`, { skip: installed.lacks || lacks }, async (t) => {
      for (const [what, excluded, check] of [
        ['people sign in, and links and errors come as pages', exclusion, checkBehindWorker],
        ['the client reports a worker without the exclusion', null, checkWithoutExclusion],
      ] as const) {
        await t.test(what, async (t) => {
          const STATIC_DIR = await make(installed.folder, excluded)
          const servers = await startDemoServers(t, await startReverseProxy(t), { env: { STATIC_DIR } })
          const tab = await open(t)
          await installWorker(tab, servers.reverseProxy.publicUrl, worker)
          await check(t, tab, servers)
        })
      }
    })
  }
}
