import { join } from 'node:path'
import type { Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { type Demo, decideOnPage, openTab, startDemo } from '../browser/demo.ts'
import { ANGULAR_SWITCHES } from '../helpers/angular.ts'
import { launchChromium } from '../helpers/chromium.ts'
import { tableRows } from '../helpers/documentation.ts'
import { startBff, startSandbox } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { filesBelow, read } from '../repository/files.ts'
import { installPackages, newerNode, run } from './packages.ts'

const CLIENT = read('client/bff-client.ts')

/** What docs/spa.md has a build set, as JSON or words between backticks. */
const NEEDS = new Map(
  tableRows('docs/spa.md', "The page's own files").map(([build = '', needs = '']) => [build, needs]),
)

/** The client and the recipes that docs/spa.md tells to copy, in this folder. */
const copied = (folder: string) =>
  Object.fromEntries(
    ['client/bff-client.ts', ...filesBelow('examples/recipes', '.ts')].map((path) => [
      `${folder}/${path.split('/').at(-1)}`,
      read(path),
    ]),
  )

const navigationUrls = /`("navigationUrls": .*?\])`/.exec(read('docs/spa.md'))?.[1]
const WARNING = read('examples/recipes/warn.html')

const optimization = JSON.parse(`{${/`("optimization": .*?)`/.exec(NEEDS.get('Angular') ?? '')?.[1]}}`)

const BUILDS = [
  {
    name: 'Angular',
    isWhole: true,
    packages: [
      '@angular/service-worker@22.2.0',
      ...['cli', 'build'].map((name) => `@angular/${name}@22.2.7`),
      ...['core', 'common', 'compiler', 'compiler-cli', 'platform-browser'].map(
        (name) => `@angular/${name}@22.2.6`,
      ),
      ...['rxjs@7.8.2', 'tslib@2.8.1', 'typescript@6.0.3'],
    ],
    command: ['ng', 'build'],
    dist: 'dist/browser',
    files: {
      'angular.json': JSON.stringify({
        version: 1,
        projects: {
          app: {
            ...{ projectType: 'application', root: '', sourceRoot: 'src' },
            architect: {
              build: {
                builder: '@angular/build:application',
                options: {
                  ...{ browser: 'src/main.ts', index: 'src/index.html', tsConfig: 'tsconfig.json' },
                  ...{ styles: ['src/styles.css'], outputPath: 'dist', ...optimization },
                  serviceWorker: 'ngsw-config.json',
                },
              },
            },
          },
        },
        cli: { analytics: false },
      }),
      'ngsw-config.json': `{"index": "/index.html", ${navigationUrls},
        "assetGroups": [{ "name": "app", "installMode": "prefetch", "resources": { "files": ["/index.html", "/*.css", "/*.js"] } }] }`,
      'tsconfig.json': JSON.stringify({
        compilerOptions: {
          ...ANGULAR_SWITCHES,
          ...{
            strict: true,
            target: 'ES2022',
            module: 'preserve',
            moduleResolution: 'bundler',
            skipLibCheck: true,
          },
          ...{ experimentalDecorators: true, importHelpers: true, types: [] },
        },
        files: ['src/main.ts'],
      }),
      'src/index.html':
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>app</title><base href="/"><link rel="icon" href="data:,"></head><body><app-root></app-root></body></html>',
      'src/styles.css': 'h1 { color: rgb(1, 2, 3) }',
      ...copied('src'),
      'src/main.ts': `import { afterNextRender, Component, signal } from '@angular/core'
import { bootstrapApplication } from '@angular/platform-browser'
import { provideServiceWorker } from '@angular/service-worker'
import { cameBack, flux, type Session, session, signIn, updateSite } from './bff-client'
import { download } from './download'
import { poll } from './poll'
import { warnBeforeEnd } from './warn'

@Component({
  selector: 'app-root',
  template: \`<h1>Readings</h1><p id="notice">{{ notice() }}</p>
    @if (current()?.authenticated) {
      <button id="read" (click)="read()">Read</button> <button id="csv" (click)="download()">Download</button>
      <svg><polyline id="chart" [attr.points]="points()" /></svg>
      <form (submit)="save($event)"><input name="name"><button id="save">Save</button></form>
    } @else { <button id="sign-in" (click)="enter()">Sign in</button> }
    ${WARNING}\`,
})
class App {
  readonly notice = signal('')
  readonly points = signal('')
  readonly current = signal<Session | undefined>(undefined)
  constructor() {
    cameBack()
    session().then((found) => this.start(found), this.fail)
    afterNextRender(() => warnBeforeEnd(document.querySelector('dialog')!, document.querySelector('#stay')!))
  }
  start(found: Session) {
    this.current.set(found)
    if (found.authenticated)
      poll<{ values: { value: number }[] }>('temperature', 1, ({ values }) =>
        this.points.set(values.map(({ value }, at) => at + ',' + value).join(' ')), this.fail)
  }
  save(event: Event) {
    event.preventDefault()
    const name = String(new FormData(event.target as HTMLFormElement).get('name'))
    updateSite(42, { name, description: 'Laboratory', code: 'LAB-42', parentInfrastructureID: null })
      .then((site) => this.notice.set('Saved as ' + site.name), this.fail)
  }
  download() {
    download('temperature').catch(this.fail)
  }
  readonly fail = (error: unknown) => this.notice.set(String(error))
  enter() {
    signIn().catch(this.fail)
  }
  read() {
    flux<{ name: string }>('temperature').then(({ name }) => this.notice.set(name), this.fail)
  }
}

bootstrapApplication(App, { providers: [provideServiceWorker('ngsw-worker.js')] })
`,
    },
  },
  {
    name: 'SvelteKit',
    isWhole: true,
    packages: [
      ...[
        '@sveltejs/kit@3.2.0',
        '@sveltejs/adapter-static@4.0.1',
        '@sveltejs/vite-plugin-svelte@7.3.1',
        'svelte@5.57.3',
      ],
      'vite@8.3.8',
    ],
    command: ['vite', 'build'],
    dist: 'build',
    files: {
      'vite.config.js': `import adapter from '@sveltejs/adapter-static'
import { sveltekit } from '@sveltejs/kit/vite'
export default { plugins: [sveltekit({ adapter: adapter({ fallback: 'index.html' }) })] }
`,
      'src/app.html':
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><link rel="icon" href="data:,">%sveltekit.head%</head><body><div>%sveltekit.body%</div></body></html>',
      // The build runs the page once without a browser.
      'src/routes/+layout.js': 'export const prerender = true\n',
      'src/service-worker.js': read('examples/recipes/sw.js'),
      'src/hooks.client.js':
        "import { cameBack } from './lib/bff-client'\nexport const signInError = cameBack()\n",
      ...copied('src/lib'),
      'src/routes/+page.svelte': `<script>
  import { onMount } from 'svelte'
  import { flux, session, signIn, updateSite } from '../lib/bff-client'
  import { download } from '../lib/download'
  import { explain } from '../lib/explain'
  import { poll } from '../lib/poll'
  import { warnBeforeEnd } from '../lib/warn'
  let notice = $state('')
  let current = $state()
  let points = $state('')
  const fail = (error) => { notice = String(error); explain(error) }
  const read = () => flux('temperature').then(({ name }) => { notice = name }, fail)
  const draw = ({ values }) => { points = values.map(({ value }, at) => at + ',' + value).join(' ') }
  const save = (event) => {
    event.preventDefault()
    const name = new FormData(event.target).get('name')
    updateSite(42, { name, description: 'Laboratory', code: 'LAB-42', parentInfrastructureID: null })
      .then((site) => { notice = 'Saved as ' + site.name }, fail)
  }
  onMount(() => {
    session().then((found) => {
      current = found
      if (found.authenticated) poll('temperature', 1, draw, fail)
    }, fail)
    return warnBeforeEnd(document.querySelector('dialog'), document.querySelector('#stay'))
  })
</script>

<h1>Readings</h1><p id="notice">{notice}</p>
{#if current?.authenticated}
  <button id="read" onclick={read}>Read</button> <button id="csv" onclick={() => download('temperature').catch(fail)}>Download</button>
  <svg><polyline id="chart" points={points} /></svg>
  <form onsubmit={save}><input name="name"><button id="save">Save</button></form>
{:else}<button id="sign-in" onclick={() => signIn().catch(fail)}>Sign in</button>{/if}
${WARNING}

<style>h1 { color: rgb(1, 2, 3) }</style>
`,
    },
  },
  {
    name: 'Nuxt',
    isWhole: false,
    packages: ['nuxt@4.5.2', 'vue@3.5.45', 'typescript@5.9.3'],
    command: ['nuxt', 'generate'],
    dist: '.output/public',
    files: {
      'nuxt.config.ts': `export default defineNuxtConfig({ ssr: false, compatibilityDate: '2026-01-01', telemetry: false, app: { head: { link: [{ rel: 'icon', href: 'data:,' }] } } })
`,
      'app/bff-client.ts': CLIENT,
      'app/app.vue': `<script setup>
import { cameBack, flux, session, signIn } from './bff-client'
const notice = ref('')
const current = ref()
const fail = (error) => { notice.value = String(error) }
const read = () => flux('temperature').then(({ name }) => { notice.value = name }, fail)
const enter = () => signIn().catch(fail)
cameBack()
session().then((found) => { current.value = found }, fail)
</script>

<template>
  <div><h1>Readings</h1><p id="notice">{{ notice }}</p>
  <button v-if="current?.authenticated" id="read" @click="read">Read</button>
  <button v-else id="sign-in" @click="enter">Sign in</button></div>
</template>

<style>h1 { color: rgb(1, 2, 3) }</style>
`,
    },
  },
]

const browser = await launchChromium(t)
const newer = await newerNode()

// Before the first test: the runner ends where none is left while a module still loads.
const installed = new Map<string, Awaited<ReturnType<typeof installPackages>>>()
for (const { name, packages, files } of BUILDS) installed.set(name, await installPackages(packages, files))

for (const { name, isWhole, command, dist } of BUILDS) {
  const { folder, lacks } = installed.get(name)!
  t.test(
    `what ${name} builds works under the policy of the page`,
    { skip: newer.lacks || lacks },
    async (t) => {
      const [program = '', ...args] = command
      const { status, output } = await run(
        folder,
        join(folder, 'node_modules/.bin', program),
        args,
        newer.env,
      )
      t.equal(status, 0, output)
      const STATIC_DIR = join(folder, dist)
      const { log } = await startBff(t, await startSandbox(t), { STATIC_DIR })
      const hashes = [...log().matchAll(/add script-src ('sha256-[^']*') to STATIC_CSP/g)].map(
        ([, hash]) => hash,
      )
      t.equal(hashes.length > 0, NEEDS.get(name) === undefined, 'a hash where the table says so')
      const STATIC_CSP = `script-src ${hashes.join(' ')}`
      const env = { STATIC_DIR, ...(hashes.length > 0 && { STATIC_CSP }) }
      const demo = await startDemo(t, browser, { env })
      const tab = await openTab(demo, '/')
      await tab.locator('#sign-in').click()
      await decideOnPage(tab, demo.reverseProxy.publicUrl)
      await tab.locator('#read').click()
      await tab.locator('#notice', { hasText: 'emperature' }).waitFor()
      t.equal(await tab.evaluate('getComputedStyle(document.querySelector("h1")).color'), 'rgb(1, 2, 3)')
      if (isWhole) await useWhole(t, demo, tab)
      t.strictSame(demo.complaints, [])
      if (!isWhole) return
      await demo.context.setOffline(true)
      await tab.locator('#read').click()
      await tab.locator('#notice', { hasText: 'The server cannot be reached.' }).waitFor()
    },
  )
}

/** A chart that polls, a form and a download, behind the worker of the build. */
async function useWhole(t: Test, { reverseProxy }: Demo, tab: Page) {
  await tab.evaluate('navigator.serviceWorker.ready.then(() => null)')
  await tab.reload()
  t.type(await tab.evaluate('navigator.serviceWorker.controller?.scriptURL'), 'string', 'the worker is there')
  await tab.locator('#chart[points*=","]').waitFor({ state: 'attached' })
  const polls = () =>
    reverseProxy.passed.filter(({ requestHeaders }) => requestHeaders['x-activity'] === 'none').length
  const before = polls()
  await until('it polls in the background', () => polls() > before)
  await tab.locator('[name=name]').fill('Hall 7')
  await tab.locator('#save').click()
  await tab.locator('#notice', { hasText: 'Saved as Hall 7' }).waitFor()
  const [download] = await Promise.all([tab.waitForEvent('download'), tab.locator('#csv').click()])
  t.equal(download.suggestedFilename(), 'temperature.csv')
}
