import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { build } from 'esbuild'
import t from 'tap'
import { readDeclaredOperations } from '../../sandbox/operations.ts'
import { decideOnPage } from '../browser/demo.ts'
import { launchChromium, newProfile } from '../helpers/chromium.ts'
import { tableRows } from '../helpers/documentation.ts'
import { startBff, startSandbox } from '../helpers/system.ts'
import { makeFolder } from '../helpers/watchdog.ts'
import { ROOT } from '../repository/files.ts'
import { installPackages, newerNode, run, writeFiles } from './packages.ts'

/** What a page sees of each call, through a client that does all of them right. */
const RIGHT = {
  json: 'Flux',
  /** Of three values, asked for by a free parameter. */
  free: 3,
  csv: 'id,fluxID,name,unit,date,value',
  site: 'Plant',
  list: 'ListThings',
  /** Of an operation that has CSV alone. */
  file: 'wType,operation,method,path',
  changed: 'NameThing',
  bad: 'invalid_request',
  out: 'login_required',
}

type Seen = Partial<Record<keyof typeof RIGHT, unknown>>

interface Generator {
  readonly packages: readonly string[]
  readonly command: readonly string[]
  readonly files?: Readonly<Record<string, string>>
  /** The page's own code: `use` while a user is signed in, `out` after that, each with what it saw. */
  readonly page: string
  /** Where it differs from what is right: docs/spa.md says why. */
  readonly differs?: Seen
}

/** The first line of a text, or what came in its place. */
const LINE = `const line = (text: unknown) => (typeof text === 'string' ? text.split('\\r\\n')[0] : text)\n`

const GENERATORS: Readonly<Record<string, Generator>> = {
  'openapi-typescript': {
    packages: ['openapi-typescript@7.13.0', 'openapi-fetch@0.17.0', 'typescript@5.9.3'],
    command: ['openapi-typescript', 'api.json', '-o', 'api.ts'],
    page: `import createClient from 'openapi-fetch'
import type { paths } from './api'
${LINE}
const api = createClient<paths>({ querySerializer: { object: { style: 'form', explode: true } } })
const flux = (query: paths['/flux/{fluxId}']['get']['parameters']['query'], fluxId = 'temperature') =>
  api.GET('/flux/{fluxId}', { params: { path: { fluxId }, query } })
const path = { wac: 'DEMO' }

export async function use() {
  const json = (await flux({ format: 'JSON' })).data as { wType: string }
  const free = (await flux({ format: 'JSON', parameters: { values: 3 } })).data as { values: unknown[] }
  const csv = await api.GET('/flux/{fluxId}', { params: { path: { fluxId: 'temperature' }, query: { format: 'CSV' } }, parseAs: 'text' })
  const site = await api.PUT('/site/{siteId}', { params: { path: { siteId: '42' } }, body: { name: 'Plant' } })
  const list = await api.GET('/data/{wac}/things', { params: { path, query: { take: 1 } } })
  const file = await api.GET('/data/{wac}/export', { params: { path }, parseAs: 'text' })
  const changed = await api.PUT('/data/{wac}/things/{thingId}', { params: { path: { ...path, thingId: 'a' } }, body: { name: 'Pump' } })
  return {
    json: json.wType, free: free.values.length, csv: line(csv.data), file: line(file.data),
    site: typeof site.data === 'object' ? site.data.name : site.data,
    list: (list.data as { operation?: string }).operation, changed: (changed.data as { operation?: string }).operation,
    bad: (await flux({}, 'a b')).error?.code,
  }
}
export const out = async () => ({ out: (await flux({})).error?.code })
`,
  },
  orval: {
    packages: ['orval@8.38.0'],
    command: ['orval', '--input', 'api.json', '--output', 'api.ts', '--client', 'fetch'],
    page: `import * as api from './api'
${LINE}
export async function use() {
  const json = (await api.getFlux('temperature', { format: 'JSON' })).data as { wType: string }
  const free = await api.getFlux('temperature', { format: 'JSON', parameters: { values: 3 } })
  const site = await api.updateSite('42', { name: 'Plant' })
  const bad = await api.getFlux('a b')
  return {
    json: json.wType, free: free.status === 400 ? free.data.code : free.data,
    csv: line((await api.getFlux('temperature', { format: 'CSV' })).data),
    site: site.status === 200 && typeof site.data === 'object' ? site.data.name : site.data,
    list: ((await api.listThings('DEMO', { take: 1 })).data as { operation?: string }).operation,
    file: line((await api.exportThings('DEMO')).data),
    changed: ((await api.nameThing('DEMO', 'a', { name: 'Pump' })).data as { operation?: string }).operation,
    bad: bad.status === 400 ? bad.data.code : bad.data,
  }
}
export async function out() {
  const { status, data } = await api.getFlux('temperature')
  return { out: status === 401 ? data.code : data }
}
`,
    differs: { free: 'invalid_request' },
  },
  'hey-api': {
    packages: ['@hey-api/openapi-ts@0.99.0', 'typescript@5.9.3'],
    command: ['openapi-ts', '-i', 'api.json', '-o', 'out', '-c', '@hey-api/client-fetch'],
    page: `import * as api from './out'
import { client } from './out/client.gen'
${LINE}
client.setConfig({ baseUrl: '' })
const flux = (fluxId: string, query: NonNullable<Parameters<typeof api.getFlux>[0]['query']> = {}) => api.getFlux({ path: { fluxId }, query })
export async function use() {
  const json = (await flux('temperature', { format: 'JSON' })).data as { wType: string }
  const free = (await flux('temperature', { format: 'JSON', parameters: { values: 3 } })).data as { values: unknown[] }
  const { data: site } = await api.updateSite({ path: { siteId: '42' }, body: { name: 'Plant' } })
  const { data: list } = await api.listThings({ path: { wac: 'DEMO' }, query: { take: 1 } })
  const { data: changed } = await api.nameThing({ path: { wac: 'DEMO', thingId: 'a' }, body: { name: 'Pump' } })
  return {
    json: json.wType, free: free.values.length, csv: line((await flux('temperature', { format: 'CSV' })).data),
    site: typeof site === 'object' ? site.name : site, list: (list as { operation?: string }).operation,
    file: line((await api.exportThings({ path: { wac: 'DEMO' } })).data), changed: (changed as { operation?: string }).operation,
    bad: (await flux('a b')).error?.code,
  }
}
export const out = async () => ({ out: (await flux('temperature')).error?.code })
`,
  },
  'swagger-typescript-api': {
    packages: ['swagger-typescript-api@13.13.0'],
    command: ['swagger-typescript-api', 'generate', '-p', 'api.json', '-o', '.', '-n', 'api.ts'],
    page: `import { Api, type Problem } from './api'
${LINE}
const api = new Api()
const code = (call: Promise<unknown>) => call.then(() => 'success', ({ error }: { error: Problem }) => error.code)
export async function use() {
  const json = (await api.flux.getFlux('temperature', { format: 'JSON' })).data as { wType: string }
  const { data: site } = await api.site.updateSite('42', { name: 'Plant' })
  const text = { format: 'text' } as const
  return {
    json: json.wType, free: await code(api.flux.getFlux('temperature', { parameters: { values: 3 } })),
    csv: line((await api.flux.getFlux('temperature', { format: 'CSV' }, text)).data),
    site: typeof site === 'object' ? site.name : site,
    list: ((await api.data.listThings('DEMO', { take: 1 })).data as { operation?: string }).operation,
    file: line((await api.data.exportThings('DEMO', {}, text)).data),
    changed: ((await api.data.nameThing('DEMO', 'a', { name: 'Pump' })).data as { operation?: string }).operation,
    bad: await code(api.flux.getFlux('a b')),
  }
}
export const out = async () => ({ out: await code(api.flux.getFlux('temperature')) })
`,
    differs: { free: 'invalid_request' },
  },
  oazapfts: {
    packages: ['oazapfts@7.5.0', '@oazapfts/runtime@1.2.0'],
    command: ['oazapfts', 'api.json', 'api.ts'],
    page: `import * as api from './api'
${LINE}

export async function use() {
  const json = await api.getFlux('temperature', { format: 'JSON' })
  const free = await api.getFlux('temperature', { format: 'JSON', parameters: { values: 3 } })
  const csv = await api.getFlux('temperature', { format: 'CSV' })
  const site = await api.updateSite('42', { name: 'Plant' })
  const list = await api.listThings('DEMO', { take: 1 })
  const file = await api.exportThings('DEMO', { format: 'CSV' })
  const changed = await api.nameThing('DEMO', 'a', { name: 'Pump' })
  const bad = await api.getFlux('a b')
  return {
    json: json.status === 200 && json.data.wType,
    free: free.status === 200 && free.data.values.length,
    csv: csv.status === 200 && line(csv.data),
    site: site.status === 200 && typeof site.data === 'object' && 'name' in site.data && site.data.name,
    list: list.status === 200 && 'operation' in list.data && list.data.operation,
    file: file.status === 200 && line(file.data),
    changed: changed.status === 200 && 'operation' in changed.data && changed.data.operation,
    bad: bad.status === 400 && bad.data.code,
  }
}
export async function out() {
  const response = await api.getFlux('temperature')
  return { out: response.status === 401 && response.data.code }
}
`,
  },
  'ng-openapi-gen': {
    packages: [
      ...['ng-openapi-gen@1.1.0', 'rxjs@7.8.2', 'tslib@2.8.1'],
      ...['core', 'common', 'compiler', 'platform-browser'].map((name) => `@angular/${name}@22.2.6`),
    ],
    command: ['ng-openapi-gen', '--input', 'api.json', '--output', 'out'],
    page: `import '@angular/compiler'
import { HttpClient, type HttpErrorResponse, provideHttpClient } from '@angular/common/http'
import { provideZonelessChangeDetection } from '@angular/core'
import { createApplication } from '@angular/platform-browser'
import { firstValueFrom, type Observable } from 'rxjs'
import * as api from './out/functions'
${LINE}
const app = createApplication({ providers: [provideHttpClient(), provideZonelessChangeDetection()] })
const body = async <T>(call: (http: HttpClient) => Observable<{ body: T }>): Promise<T> =>
  (await firstValueFrom(call((await app).injector.get(HttpClient)))).body
const code = (call: Promise<unknown>) => call.then(() => 'success', ({ error }: HttpErrorResponse) => error.code)
const wac = 'DEMO'

export async function use() {
  const json = (await body((http) => api.getFlux$Json(http, '', { fluxId: 'temperature' }))) as { wType: string }
  const parameters = { values: 3 }
  const free = (await body((http) => api.getFlux$Json(http, '', { fluxId: 'temperature', parameters }))) as { values: unknown[] }
  const site = await body((http) => api.updateSite$Json(http, '', { siteId: '42', body: { name: 'Plant' } }))
  const list = await body((http) => api.listThings$Json(http, '', { wac, take: 1 }))
  return {
    json: json.wType, free: free.values.length, site: site.name, list: (list as { operation?: string }).operation,
    csv: line(await body((http) => api.getFlux$Csv(http, '', { fluxId: 'temperature' }))),
    file: line(await body((http) => api.exportThings$Csv(http, '', { wac }))),
    changed: (await body((http) => api.nameThing(http, '', { wac, thingId: 'a', body: { name: 'Pump' } }))).operation,
    bad: await code(body((http) => api.getFlux$Json(http, '', { fluxId: 'a b' }))),
  }
}
export const out = async () => ({ out: await code(body((http) => api.getFlux$Json(http, '', { fluxId: 'temperature' }))) })
`,
  },
  'openapi-zod-client': {
    packages: ['openapi-zod-client@1.18.3', '@zodios/core@10.9.6', 'axios@1.21.1', 'zod@3.25.76'],
    command: ['openapi-zod-client', 'api.json', '-o', 'api.ts'],
    page: `import { isAxiosError } from 'axios'
import { createApiClient } from './api'
${LINE}
const api = createApiClient(location.origin)
const code = (call: Promise<unknown>) => call.then(() => 'success', (error: unknown) => (isAxiosError(error) ? error.response?.data.code : String(error)))
const params = { wac: 'DEMO' }
const flux = (fluxId: string, queries = {}) => api.getFlux({ params: { fluxId }, queries })
export async function use() {
  const site = await api.updateSite({ name: 'Plant' }, { params: { siteId: '42' } })
  return {
    json: (await flux('temperature', { format: 'JSON' }) as { wType: string }).wType,
    free: await code(flux('temperature', { parameters: { values: 3 } })),
    csv: line(await flux('temperature', { format: 'CSV' })), site: (site as { name: string }).name,
    list: (await api.ListThings({ params, queries: { take: 1 } }) as { operation?: string }).operation,
    file: line(await api.ExportThings({ params, queries: { format: 'CSV' } })),
    changed: (await api.NameThing({ name: 'Pump' }, { params: { ...params, thingId: 'a' } }) as { operation?: string }).operation,
    // The client itself checks what a schema says.
    bad: await code(api.updateSite({ siteID: 43 }, { params: { siteId: '42' } })),
  }
}
export const out = async () => ({ out: await code(flux('temperature')) })
`,
    differs: { free: 'invalid_request' },
  },
  kubb: {
    packages: [
      ...['cli', 'core', 'plugin-oas', 'plugin-ts', 'plugin-client'].map((name) => `@kubb/${name}@4.39.3`),
      'axios@1.21.1',
    ],
    command: ['kubb', 'generate', '--config', 'kubb.config.mjs'],
    files: {
      'kubb.config.mjs': `import { defineConfig } from '@kubb/core'
import { pluginClient } from '@kubb/plugin-client'
import { pluginOas } from '@kubb/plugin-oas'
import { pluginTs } from '@kubb/plugin-ts'
export default defineConfig({
  root: '.', input: { path: './api.json' }, output: { path: './out', format: false, lint: false },
  plugins: [pluginOas(), pluginTs(), pluginClient()],
})
`,
    },
    page: `import { isAxiosError } from 'axios'
import * as api from './out'
${LINE}
const code = (call: Promise<unknown>) => call.then(() => 'success', (error: unknown) => (isAxiosError(error) ? error.response?.data.code : String(error)))
export async function use() {
  const site = await api.updateSite('42', { name: 'Plant' })
  return {
    json: (await api.getFlux('temperature', { format: 'JSON' }) as { wType: string }).wType,
    free: await code(api.getFlux('temperature', { parameters: { values: 3 } })),
    csv: line(await api.getFlux('temperature', { format: 'CSV' })), site: (site as { name: string }).name,
    list: (await api.listThings('DEMO', { take: 1 }) as { operation?: string }).operation,
    file: line(await api.exportThings('DEMO')),
    changed: (await api.nameThing('DEMO', 'a', { name: 'Pump' }) as { operation?: string }).operation,
    bad: await code(api.getFlux('a b')),
  }
}
export const out = async () => ({ out: await code(api.getFlux('temperature')) })
`,
    differs: { free: 'invalid_request' },
  },
  'RTK Query': {
    packages: ['@rtk-query/codegen-openapi@2.2.0', '@reduxjs/toolkit@2.14.0', 'typescript@5.9.3'],
    command: ['rtk-query-codegen-openapi', 'rtk.config.json'],
    files: {
      'rtk.config.json': JSON.stringify({
        ...{ schemaFile: './api.json', apiFile: './empty.ts', apiImport: 'emptyApi' },
        ...{ outputFile: './api.ts', exportName: 'api', hooks: false },
      }),
      'empty.ts': `import { createApi, fetchBaseQuery } from '@reduxjs/toolkit/query'
const paramsSerializer = ({ parameters = {}, ...own }: Record<string, unknown>) => {
  const given = Object.entries({ ...own, ...(parameters as object) }).filter(([, value]) => value !== undefined)
  return String(new URLSearchParams(given.map(([name, value]) => [name, String(value)])))
}
const isJsonContentType = (headers: Headers) => /json/.test(headers.get('content-type') ?? '')
const baseQuery = fetchBaseQuery({ baseUrl: '/', responseHandler: 'content-type', paramsSerializer, isJsonContentType })
export const emptyApi = createApi({ baseQuery, endpoints: () => ({}) })
`,
    },
    page: `import { configureStore } from '@reduxjs/toolkit'
import { api } from './api'
${LINE}
const store = configureStore({ reducer: { [api.reducerPath]: api.reducer }, middleware: (all) => all().concat(api.middleware) })
const flux = (args: Parameters<typeof api.endpoints.getFlux.initiate>[0]) =>
  store.dispatch(api.endpoints.getFlux.initiate(args, { forceRefetch: true }))
const code = (error: unknown) => (error as { data: { code: string } }).data.code
export async function use() {
  const json = (await flux({ fluxId: 'temperature', format: 'JSON' })).data as { wType: string }
  const free = (await flux({ fluxId: 'temperature', format: 'JSON', parameters: { values: 3 } })).data as { values: unknown[] }
  const site = await store.dispatch(api.endpoints.updateSite.initiate({ siteId: '42', siteUpdate: { name: 'Plant' } }))
  const list = await store.dispatch(api.endpoints.listThings.initiate({ wac: 'DEMO', take: 1 }))
  const file = await store.dispatch(api.endpoints.exportThings.initiate({ wac: 'DEMO', format: 'CSV' }))
  const changed = await store.dispatch(api.endpoints.nameThing.initiate({ wac: 'DEMO', thingId: 'a', nameThingBody: { name: 'Pump' } }))
  return {
    json: json.wType, free: free.values.length, csv: line((await flux({ fluxId: 'temperature', format: 'CSV' })).data),
    site: typeof site.data === 'object' ? site.data.name : site.data, list: (list.data as { operation?: string }).operation,
    file: line(file.data), changed: (changed.data as { operation?: string }).operation, bad: code((await flux({ fluxId: 'a b' })).error),
  }
}
export const out = async () => ({ out: code((await flux({ fluxId: 'temperature' })).error) })
`,
  },
}

const SETTINGS = {
  ...{ strict: true, noEmit: true, skipLibCheck: true, allowImportingTsExtensions: true, types: [] },
  ...{ target: 'es2022', module: 'esnext', moduleResolution: 'bundler', experimentalDecorators: true },
  lib: ['es2023', 'dom', 'dom.iterable'],
}

const OPERATIONS_FILE = join(makeFolder('operations'), 'operations.json')
writeFileSync(
  OPERATIONS_FILE,
  JSON.stringify({
    operations: {
      ListThings: {
        ...{ method: 'GET', path: '/{wac}/things', formats: ['JSON', 'CSV'], query: { take: 'integer' } },
        response: { type: 'object', properties: { operation: { type: 'string' } } },
      },
      ExportThings: { method: 'GET', path: '/{wac}/export', formats: ['CSV'] },
      NameThing: {
        ...{ method: 'PUT', path: '/{wac}/things/{thingId}', parameters: { thingId: 'id' } },
        response: { type: 'object', properties: { operation: { type: 'string' } } },
        body: { schema: { type: 'object', required: ['name'], properties: { name: { type: 'string' } } } },
      },
    },
  }),
)

const browser = await launchChromium(t)
const sandbox = await startSandbox(t, { operations: readDeclaredOperations(OPERATIONS_FILE) })
const bff = await startBff(t, sandbox, { OPERATIONS_FILE, LOGIN_RATE_PER_MINUTE: '0' })
const document = (await bff.browser().fetch('/openapi.json')).text
const newer = await newerNode()

// Before the first test: the runner ends where none is left while a module still loads.
const installed = new Map<string, Awaited<ReturnType<typeof installPackages>>>()
for (const [name, { packages }] of Object.entries(GENERATORS))
  installed.set(name, await installPackages(packages))
// The plugins of version 5 that generate calls are not on npm: with those of version 4 it writes nothing and exits 0.
const kubb5 = await installPackages(['kubb@5.2.0'])
const env = { ...newer.env, KUBB_DISABLE_TELEMETRY: '1' }

t.test('kubb 5 takes the document for valid', { skip: newer.lacks || kubb5.lacks }, async (t) => {
  writeFiles(kubb5.folder, { 'api.json': document, 'faulty.json': document.replace('"info"', '"inof"') })
  const validate = (file: string) =>
    run(kubb5.folder, join(kubb5.folder, 'node_modules/.bin/kubb'), ['validate', file], env)
  const valid = await validate('api.json')
  t.equal(valid.status, 0, valid.output)
  t.not((await validate('faulty.json')).status, 0, 'the control')
})

t.test('docs/spa.md names each generator that sends no free parameters of a Flux', async (t) => {
  const rows = tableRows('docs/spa.md', 'Generate a client')
  const saysSo = (name: string) =>
    rows.some(([names, toKnow]) => names!.includes(name) && /no free parameters of a Flux/.test(toKnow!))
  for (const [name, { differs = {} }] of Object.entries(GENERATORS))
    t.equal(saysSo(name), 'free' in differs, name)
})

for (const [name, { command, files = {}, page, differs = {} }] of Object.entries(GENERATORS)) {
  const { folder, lacks } = installed.get(name)!
  t.test(
    `what ${name} generates compiles strictly and calls the server`,
    { skip: newer.lacks || lacks },
    async (t) => {
      writeFiles(folder, {
        ...files,
        'api.json': document,
        'page.ts': page,
        'tsconfig.json': JSON.stringify({ compilerOptions: SETTINGS, files: ['page.ts'] }),
      })
      const [program = '', ...args] = command
      const generated = await run(folder, join(folder, 'node_modules/.bin', program), args, env)
      t.equal(generated.status, 0, generated.output)
      const tsc = join(ROOT, 'node_modules/typescript/bin/tsc')
      t.equal((await run(folder, process.execPath, [tsc, '-p', '.'])).output, '')

      const { outputFiles } = await build({
        ...{ entryPoints: [join(folder, 'page.ts')], bundle: true, write: false, target: 'es2022' },
        ...{ format: 'iife', globalName: 'generated', logLevel: 'silent' },
      })
      // The policy of the page forbids what Angular's compiler and a test evaluate.
      const context = await newProfile(t, browser, { bypassCSP: true })
      const tab = await context.newPage()
      await tab.goto(`${bff.publicUrl}/auth/login?returnTo=/`)
      await decideOnPage(tab, bff.publicUrl)
      await tab.evaluate(`${outputFiles[0]!.text}; globalThis.generated = generated; null`)
      const used = await tab.evaluate<Seen>('generated.use()')
      await tab.evaluate('fetch("/auth/logout", { method: "POST" }).then(() => null)')
      t.strictSame({ ...used, ...(await tab.evaluate<Seen>('generated.out()')) }, { ...RIGHT, ...differs })
    },
  )
}
