import { lookup } from 'node:dns/promises'
import { createServer as createHttpServer } from 'node:http'
import { createServer } from 'node:net'
import t from 'tap'
import { createBrowser } from '../helpers/browser.ts'
import { type Teardown, waitForOutput } from '../helpers/child.ts'
import { listenOnLoopback } from '../helpers/ports.ts'
import { runBuilt, startBuilt } from '../helpers/server-process.ts'
import { signIn } from '../helpers/system.ts'

async function startDemo(t: Teardown, env: Record<string, string> = {}) {
  const demo = startBuilt(t, 'demo.js', { PORT: '0', ...env })
  // A demo that is ended by the teardown's SIGKILL would leave its two servers behind.
  t.teardown(() => demo.stop('SIGTERM'))
  const text = await waitForOutput(demo, (output) =>
    /Open +(http:\/\/localhost:\d+)[\s\S]*Ctrl-C/.exec(output),
  )
  if (text === null) throw new Error(`the demo ended:\n${demo.output()}`)
  const metricsUrl = /http:\/\/localhost:\d+\/metrics/.exec(demo.output())?.[0] ?? ''
  const sandboxUrl = /platform is at (\S+)/.exec(demo.output())?.[1] ?? ''
  return { demo, url: text[1] ?? '', metricsUrl, sandboxUrl }
}

t.test('the demo serves its page on all addresses of localhost and signs in at its sandbox', async (t) => {
  const operations = {
    GetThing: { method: 'GET', path: '/{wac}/things' },
    ListWUMs: { method: 'GET', path: '/WUM', account: 'none' },
  }
  const folder = t.testdir({ 'operations.json': JSON.stringify({ operations }) })
  const { demo, url, metricsUrl, sandboxUrl } = await startDemo(t, {
    // As for the server, an empty variable is one that is not set.
    ...{ STATIC_DIR: '', PUBLIC_URL: '', OPS_PORT: '', SERVER_URL: '' },
    ...{ SESSION_IDLE_SECONDS: '130', SESSION_MAX_SECONDS: '600' },
    OPERATIONS_FILE: `${folder}/operations.json`,
  })
  t.match(demo.output(), 'The page shows where they are')
  for (const { address, family } of await lookup('localhost', { all: true })) {
    const host = family === 6 ? `[${address}]` : address
    const page = await fetch(url.replace('localhost', host), { headers: { accept: 'text/html' } })
    t.equal(page.status, 200, host)
    t.match(page.headers.get('content-type'), /^text\/html/)
  }
  t.equal((await fetch(metricsUrl)).status, 200)

  const browser = createBrowser(url)
  const login = await browser.navigate('/auth/login')
  t.match(login.headers.location, `${sandboxUrl}/oauth/authorize?`)
  await signIn(browser, { url: sandboxUrl })
  const answer = await browser.fetch('/data/DEMO/things')
  t.match(answer.json(), { wType: 'Echo', operation: 'GetThing' }, 'both have the file of operations')
  t.equal((await browser.fetch('/data/WUM')).status, 200, 'an operation without an account')
  const found = (await browser.fetch('/auth/session')).json()
  const [created, idle, absolute] = ['createdAt', 'idleExpiresAt', 'expiresAt'].map((name) =>
    Date.parse(String(found[name])),
  )
  t.strictSame([idle! - created!, absolute! - created!], [130_000, 600_000], 'the limits are passed on')

  t.equal((await demo.stop('SIGINT')).code, 0)
  await t.rejects(fetch(url), 'the server is gone')
  await t.rejects(fetch(sandboxUrl), 'the sandbox is gone')
})

t.test('with SANDBOX_PROFILE=keycloak a sign-out leads there and back to the page', async (t) => {
  const { url, sandboxUrl } = await startDemo(t, { SANDBOX_PROFILE: 'keycloak' })
  const browser = createBrowser(url)
  await signIn(browser, { url: sandboxUrl })
  t.equal((await browser.fetch('/flux/temperature')).status, 200)
  const { endSessionUrl } = (await browser.fetch('/auth/logout', { method: 'POST' })).json()
  t.match(endSessionUrl, `${sandboxUrl}/realms/REALM/`)
  const { status, headers } = await fetch(String(endSessionUrl), { redirect: 'manual' })
  t.strictSame([status, headers.get('location')], [302, `${url}/`])
})

t.test('the demo starts with a file that has everything, and serves its operations', async (t) => {
  const building = {
    path: '/{wac}/Infrastructure/Building/{buildingId}',
    parameters: { buildingId: 'integer' },
  }
  const schema = {
    type: 'object',
    additionalProperties: false,
    required: ['name'],
    properties: { name: { type: 'string' } },
  }
  const operations = {
    ListFluxes: {
      ...{ method: 'GET', path: '/{wac}/flux', formats: ['JSON', 'CSV'] },
      query: { skip: 'integer', take: { integer: [1, 1000] }, search: 'text' },
    },
    GetSite: {
      method: 'GET',
      path: '/{wac}/Infrastructure/Site/{siteId}',
      parameters: { siteId: 'integer' },
    },
    ListWUMs: { method: 'GET', path: '/WUM', account: 'none', application: true },
    GetMe: { method: 'GET', path: '/{wac}/User/me' },
    UpdateBuilding: {
      ...{ method: 'PUT', ...building },
      body: { set: { wType: 'UpdateBuilding', buildingID: '{buildingId}', wac: '{wac}' }, schema },
    },
  }
  const identity = { operation: 'GetMe', id: '/id', name: '/name' }
  const folder = t.testdir({ 'operations.json': JSON.stringify({ operations, identity }) })
  const { url, sandboxUrl } = await startDemo(t, { OPERATIONS_FILE: `${folder}/operations.json` })
  const browser = createBrowser(url)
  t.equal((await browser.fetch('/data/WUM')).status, 200, 'without a session')
  await signIn(browser, { url: sandboxUrl })
  t.match((await browser.fetch('/auth/session')).json(), { user: { name: 'alice' } })
  const headers = { 'content-type': 'application/json' }
  for (const [path, options] of [
    ['/data/DEMO/flux?take=2', {}],
    ['/data/DEMO/Infrastructure/Site/42', {}],
    ['/data/DEMO/Infrastructure/Building/7', { method: 'PUT', headers, body: '{"name":"Hall 2"}' }],
  ] as const)
    t.equal((await browser.fetch(path, options)).status, 200, path)
  t.match((await browser.fetch('/flux/OTHER/temperature')).json(), { code: 'wac_not_allowed' })
})

t.test('the demo says which inline script of a page is blocked, and takes its hash', async (t) => {
  const folder = t.testdir({ 'index.html': '<!doctype html><title>page</title><script>start()</script>' })
  const { demo } = await startDemo(t, { STATIC_DIR: folder })
  const hash = /add (script-src 'sha256-\S+') to STATIC_CSP/.exec(demo.output())?.[1] ?? ''
  t.match(hash, /./, demo.output())
  const second = await startDemo(t, { STATIC_DIR: folder, STATIC_CSP: hash })
  t.notMatch(second.demo.output(), /STATIC_CSP/)
  const page = await fetch(second.url, { headers: { accept: 'text/html' } })
  t.ok(page.headers.get('content-security-policy')?.includes(hash.split(' ')[1]!), 'the policy has it')
})

t.test('for the page of a development server the demo does not describe its own page', async (t) => {
  const { demo, sandboxUrl } = await startDemo(t, { PUBLIC_URL: 'http://localhost:5173' })
  t.match(demo.output(), 'Open        http://localhost:5173')
  t.notMatch(demo.output(), 'The page shows')
  t.equal((await demo.stop('SIGHUP')).code, 0, 'as a closing terminal ends it')
  await t.rejects(fetch(sandboxUrl), 'the sandbox is gone')
})

t.test('a copied cookie gets the status of the answer, and the reason of a problem', async (t) => {
  const answers = [
    ['application/problem+json; charset=utf-8', 401, '{"reason":"device"}'],
    ['text/plain', 502, 'Bad Gateway'],
  ] as const
  let count = 0
  const server = createHttpServer((_request, response) => {
    const [type, status, body] = answers[count++]!
    response.writeHead(status, { 'content-type': type }).end(body)
  })
  const serverUrl = `http://127.0.0.1:${await listenOnLoopback(t, server)}`
  const front = startBuilt(t, 'demo.js', { PORT: '0', SERVER_URL: serverUrl, SANDBOX_URL: serverUrl })
  const found = await waitForOutput(front, (output) => /is on (http:\/\/localhost:\d+)/.exec(output))
  const copy = async (): Promise<unknown> => {
    const headers = { 'sec-fetch-site': 'same-origin', cookie: 'session=x' }
    return (await fetch(`${found?.[1]}/_demo/copied-cookie`, { method: 'POST', headers })).json()
  }
  t.strictSame(await copy(), { status: 401, reason: 'device' })
  t.strictSame(await copy(), { status: 502, reason: null })
})

t.test('a demo that cannot start says why in one sentence, with exit code 1', async (t) => {
  const taken = String(await listenOnLoopback(t, createServer()))
  for (const [env, says] of [
    [{ PORT: taken }, new RegExp(`^Port ${taken} is taken\\. .*npm run demo\n$`)],
    [{ PORT: 'front' }, /^PORT must be a port number, but is "front"\.\n$/],
    [
      { PORT: '0', SERVER_URL: 'http://127.0.0.1:9' },
      /^SERVER_URL and SANDBOX_URL .*set both, or neither\.\n$/,
    ],
  ] as const) {
    const { code, stdout, stderr } = await runBuilt(t, 'demo.js', env)
    t.equal(code, 1)
    t.match(stdout + stderr, says)
  }
})
