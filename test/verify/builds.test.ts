import { join } from 'node:path'
import t from 'tap'
import { decideOnPage, openTab, startDemo } from '../browser/demo.ts'
import { launchChromium } from '../helpers/chromium.ts'
import { tableRows } from '../helpers/documentation.ts'
import { startBff, startSandbox } from '../helpers/system.ts'
import { read } from '../repository/files.ts'
import { installPackages, newerNode, run } from './packages.ts'

const CLIENT = read('client/bff-client.ts')

/** What docs/spa.md has a build set, as JSON or words between backticks. */
const NEEDS = new Map(
  tableRows('docs/spa.md', "The page's own files").map(([build = '', needs = '']) => [build, needs]),
)

const optimization = JSON.parse(`{${/`("optimization": .*?)`/.exec(NEEDS.get('Angular') ?? '')?.[1]}}`)

const BUILDS = [
  {
    name: 'Angular',
    packages: [
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
                },
              },
            },
          },
        },
        cli: { analytics: false },
      }),
      'tsconfig.json': JSON.stringify({
        compilerOptions: {
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
      'src/bff-client.ts': CLIENT,
      'src/main.ts': `import { Component, signal } from '@angular/core'
import { bootstrapApplication } from '@angular/platform-browser'
import { cameBack, flux, type Session, session, signIn } from './bff-client'

@Component({
  selector: 'app-root',
  template: \`<h1>Readings</h1><p id="notice">{{ notice() }}</p>
    @if (current()?.authenticated) { <button id="read" (click)="read()">Read</button> }
    @else { <button id="sign-in" (click)="enter()">Sign in</button> }\`,
})
class App {
  readonly notice = signal('')
  readonly current = signal<Session | undefined>(undefined)
  constructor() {
    cameBack()
    session().then((found) => this.current.set(found), this.fail)
  }
  readonly fail = (error: unknown) => this.notice.set(String(error))
  enter() {
    signIn().catch(this.fail)
  }
  read() {
    flux<{ name: string }>('temperature').then(({ name }) => this.notice.set(name), this.fail)
  }
}

bootstrapApplication(App)
`,
    },
  },
  {
    name: 'SvelteKit',
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
      'src/routes/+layout.js': 'export const ssr = false\n',
      'src/lib/bff-client.ts': CLIENT,
      'src/routes/+page.svelte': `<script>
  import { cameBack, flux, session, signIn } from '../lib/bff-client'
  let notice = $state('')
  let current = $state()
  const fail = (error) => { notice = String(error) }
  const read = () => flux('temperature').then(({ name }) => { notice = name }, fail)
  cameBack()
  session().then((found) => { current = found }, fail)
</script>

<h1>Readings</h1><p id="notice">{notice}</p>
{#if current?.authenticated}<button id="read" onclick={read}>Read</button>
{:else}<button id="sign-in" onclick={() => signIn().catch(fail)}>Sign in</button>{/if}

<style>h1 { color: rgb(1, 2, 3) }</style>
`,
    },
  },
  {
    name: 'Nuxt',
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

for (const { name, command, dist } of BUILDS) {
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
      t.strictSame(demo.complaints, [])
    },
  )
}
