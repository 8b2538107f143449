import { readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { createConfig, lintFromString } from '@redocly/openapi-core'
import openapiTS, { astToString } from 'openapi-typescript'
import t from 'tap'
import ts from 'typescript'
import { readDeclaredOperations } from '../../sandbox/operations.ts'
import { configOf } from '../config/environment.ts'
import { cookieHeader } from '../helpers/browser.ts'
import { codeBlock } from '../helpers/documentation.ts'
import { checkResponsesOf } from '../helpers/documented.ts'
import { listenOnLoopback, portOfUrl } from '../helpers/ports.ts'
import { shared } from '../helpers/shared.ts'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'
import { portOf, readAnswers } from './wire.ts'

/** A declaration whose body has this schema. */
function writing(path: string, schema: object, parameters = {}) {
  const body = { schema: { type: 'object', ...schema } }
  return { method: 'PUT', path: `/{wac}/${path}`, parameters, body }
}

const TEXT = { type: 'string' }
const take = { integer: [1, 9] }
const ListThings = {
  ...{ method: 'GET', path: '/{wac}/things', formats: ['JSON', 'CSV'] },
  query: { skip: 'integer', take, order: { enum: ['up'] }, search: 'text', deep: 'boolean' },
}
const NAME = { $ref: '#/definitions/name' }
const TREE = { $ref: '#/$defs/tree' }
const BRANCH = { type: 'object', properties: { child: TREE } }
const parts = { type: 'array', items: { $ref: '#' } }

/** A file of operations with everything that the document shows of one. */
const OPERATIONS = JSON.stringify({
  operations: {
    ListThings,
    ListWUMs: { method: 'GET', path: '/WUM', account: 'none', application: true },
    SendThing: { method: 'POST', path: '/json/reply/Send', account: 'body', body: 'any' },
    DeleteThing: {
      method: 'DELETE',
      path: '/{wac}/things/{thingId}',
      parameters: { thingId: { enum: ['a'] } },
    },
    // Called as the schemas of UpdateSite.
    SiteUpdate: writing('a', { properties: { name: NAME }, definitions: { name: TEXT } }),
    SiteUpdateIn: writing('b', { properties: { tree: TREE }, $defs: { tree: BRANCH } }),
    SiteUpdateWithTarget: writing('c', { properties: { again: { $ref: '#' }, parts } }),
  },
})

const PART = { $ref: '#/$defs/part' }
const NAMED = { required: ['name'], properties: { name: TEXT } }

/** Those that the page below calls. */
const CALLED = JSON.stringify({
  operations: {
    ListThings,
    NameThing: writing('things/{thingId}', NAMED, { thingId: 'id' }),
    GetThing: {
      ...{ method: 'GET', path: '/{wac}/things/{thingId}', parameters: { thingId: 'id' } },
      response: {
        ...{ type: 'object', required: ['parts'], properties: { parts: { type: 'array', items: PART } } },
        $defs: { part: { type: 'object', properties: { size: { type: 'integer' } } } },
      },
    },
  },
})

const CLIENT = new URL('../../client/bff-client.ts', import.meta.url)

/** What an author of a page writes against the generated types. Returns what it saw. */
const PAGE = `import createClient from 'openapi-fetch'
import type { paths } from './api.js'
import type { Session, Site, SiteChanges } from './bff-client.js'

export async function usePage(baseUrl: string, headers: Record<string, string>) {
  const api = createClient<paths>({ baseUrl, headers, querySerializer: { object: { style: 'form', explode: true } } })
  const session = (await api.GET('/auth/session')).data
  if (session?.authenticated !== true) throw new Error('not signed in')
  const flow: 'code' | 'token' | 'password' = session.flow
  const flux = await api.GET('/flux/{fluxId}', {
    params: { path: { fluxId: 'temperature' }, query: { format: 'JSON', parameters: { values: 3, from: 'a b' } } },
  })
  const site = await api.PUT('/site/{siteId}', {
    params: { path: { siteId: '7' } },
    body: { name: 'Plant', parentInfrastructureID: null },
  })
  const name = typeof site.data === 'string' ? undefined : site.data?.name
  const things = await api.GET('/data/{wac}/things', { params: { path: { wac: 'DEMO' }, query: { take: 3, order: 'up' } } })
  const written = await api.PUT('/data/{wac}/things/{thingId}', {
    params: { path: { wac: 'DEMO', thingId: 'a.b' } },
    body: { name: 'Pump' },
  })
  const wrong = await api.POST('/auth/session', { headers: { 'X-CSRF': null, Origin: 'https://other.example' } })
  const code: string | undefined = wrong.error?.code
  const refused = flux.error?.code === 'login_required'
  const end = await api.POST('/auth/logout')
  const ended = await api.GET('/flux/{fluxId}', { params: { path: { fluxId: 'a' } } })
  return {
    flow, refused, flux: flux.response.status, name, things: things.response.status, written: written.response.status, code,
    end: end.response.status, ended: ended.response.status,
  }
}

/** The types of the browser client, which are written by hand, are those of the document. */
export async function compare(baseUrl: string, changes: SiteChanges & { parentInfrastructureID: number | null | '' }) {
  const api = createClient<paths>({ baseUrl })
  const session: Session | undefined = (await api.GET('/auth/session')).data
  const site: Site | undefined = (await api.PUT('/site/{siteId}', { params: { path: { siteId: '7' } }, body: changes })).data as Exclude<paths['/site/{siteId}']['put']['responses'][200]['content']['application/json'], string>
  const thing = await api.GET('/data/{wac}/things/{thingId}', { params: { path: { wac: 'DEMO', thingId: 'a' } } })
  const size: number | undefined = thing.data?.parts[0]?.size
  // @ts-expect-error -- the response has no such member
  const none = thing.data?.others
  return { session, site, size, none }
}

export async function misuse(baseUrl: string) {
  const api = createClient<paths>({ baseUrl })
  // @ts-expect-error -- a declared parameter has its type
  await api.GET('/data/{wac}/things', { params: { path: { wac: 'DEMO' }, query: { order: 'down' } } })
  // @ts-expect-error -- as have the members of a declared body
  await api.PUT('/data/{wac}/things/{thingId}', { params: { path: { wac: 'A', thingId: 'b' } }, body: { name: 1 } })
}
`

t.test('a generated openapi-fetch client compiles and works, declared operations included', async (t) => {
  const folder = t.testdir({
    'page.ts': PAGE,
    'bff-client.d.ts': ts.transpileDeclaration(readFileSync(CLIENT, 'utf8'), {}).outputText,
    'documented.ts': codeBlock('docs/spa.md', 'Generate a client', 'tsx'),
    'package.json': '{"type":"module"}',
    'operations.json': CALLED,
  })
  const OPERATIONS_FILE = `${folder}/operations.json`
  const sandbox = await startSandbox(t, { operations: readDeclaredOperations(OPERATIONS_FILE) })
  const bff = await startBff(t, sandbox, { OPERATIONS_FILE })
  const browser = bff.browser()
  await signIn(browser, sandbox)
  const document = (await browser.fetch('/openapi.json')).text

  writeFileSync(join(folder, 'api.d.ts'), astToString(await openapiTS(document)))
  const program = ts.createProgram([join(folder, 'page.ts'), join(folder, 'documented.ts')], {
    strict: true,
    skipLibCheck: true,
    exactOptionalPropertyTypes: true,
    target: ts.ScriptTarget.ES2022,
    module: ts.ModuleKind.NodeNext,
    types: [],
    // Without the types of the DOM, which nothing here depends on: to read them takes a second.
    lib: ['lib.es2022.d.ts'],
  })
  const faults = ts
    .getPreEmitDiagnostics(program)
    .map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, '\n'))
  t.strictSame(faults, [])
  program.emit()

  const { usePage } = await import(pathToFileURL(join(folder, 'page.js')).href)
  const cookie = cookieHeader(browser)
  const address = `http://127.0.0.1:${portOf(bff)}`
  t.strictSame(await usePage(address, { cookie, 'X-CSRF': '1' }), {
    flow: 'code',
    refused: false,
    flux: 200,
    name: 'Plant',
    things: 200,
    written: 200,
    code: 'cross_origin',
    end: 204,
    ended: 401,
  })
  const [read] = sandbox.journal.entries({ endpoint: 'resource' })
  t.strictSame(read?.query, { format: 'JSON', values: '3', from: 'a b' })
})

t.test('a linter finds nothing in the description', async (t) => {
  // Without `servers` a client calls the origin of its page.
  const config = await createConfig({ extends: ['recommended'], rules: { 'no-empty-servers': 'off' } })
  for (const env of [
    { OAUTH_FLOWS: 'code,token,password' },
    {
      ...{ OAUTH_REDIRECT: 'fixed', OAUTH_FLOWS: 'code,client', CLIENT_FLUX_ALLOWED: '*' },
      OPERATIONS_FILE: `${t.testdir({ 'operations.json': OPERATIONS })}/operations.json`,
    },
  ] as Record<string, string>[]) {
    const { bff } = await shared(env)
    const source = (await bff.browser().fetch('/openapi.json')).text
    const found = await lintFromString({ source, absoluteRef: 'openapi.json', config })
    t.strictSame(
      found.map(({ severity, ruleId }) => `${severity} ${ruleId}`),
      [],
    )
    const { components } = JSON.parse(source)
    for (const name of ['SiteUpdate', 'SiteUpdateIn', 'SiteUpdateWithTarget'])
      t.equal(`${name}Body` in components.schemas, 'OPERATIONS_FILE' in env, name)
  }
})

t.test('a test fails if a server responds otherwise than documented', async (t) => {
  const { app } = (await shared()).bff
  const server = createServer((_request, response) => void response.writeHead(418).end())
  const url = `http://127.0.0.1:${await listenOnLoopback(t, server)}`
  const logOut = () => fetch(`${url}/auth/logout`, { method: 'POST' })
  t.equal((await logOut()).status, 418, 'a server that is not ours')
  checkResponsesOf(t, portOfUrl(url), configOf({}), () => app.server.swagger())
  await t.rejects(logOut(), /not as documented: POST \/auth\/logout 418/)
  const problem = (members: object): string =>
    JSON.stringify({
      ...{ type: 'urn:a', title: 'A', status: 503, detail: 'A.', code: 'store_unavailable', requestId: 'a' },
      ...members,
    })
  for (const [members, seconds, says] of [
    [{ reason: 'mood' }, '1', /Problem: .*reason/],
    [{}, '-1', /Retry-After: -1: /],
    [{}, 'soon', /Retry-After: soon: /],
    [{}, '0', null],
  ] as const) {
    const body = problem(members)
    const head = `HTTP/1.1 503 No\r\nContent-Type: application/problem+json\r\nX-Request-Id: a\r\nRetry-After: ${seconds}\r\n`
    const received = Buffer.from(`${head}Content-Length: ${body.length}\r\n\r\n${body}`)
    const read = () => readAnswers(portOfUrl(url), 'GET /auth/session HTTP/1.1\r\nHost: a\r\n\r\n', received)
    if (says === null) t.equal(read().answers.length, 1)
    else t.throws(read, says)
  }
  const json = 'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}'
  const asked = 'GET /auth/session HTTP/1.1\r\nHost: a\r\n\r\n'
  t.throws(() => readAnswers(portOfUrl(url), asked, Buffer.from(json)), /GET \/auth\/session 200: Session/)
})
