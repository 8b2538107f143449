import { lookup } from 'node:dns/promises'
import { createServer } from 'node:net'
import t from 'tap'
import { request } from 'undici'
import { type Browser, createBrowser } from '../helpers/browser.ts'
import { type Teardown, waitForOutput } from '../helpers/child.ts'
import { listenOnLoopback } from '../helpers/ports.ts'
import { startBuilt } from '../helpers/server-process.ts'

async function startDemo(t: Teardown, env: Record<string, string> = {}) {
  const demo = startBuilt(t, 'demo.js', { PORT: '0', ...env })
  // A demo that is ended by the teardown's SIGKILL would leave its two servers behind.
  t.teardown(() => demo.stop('SIGTERM'))
  const text = await waitForOutput(demo, (output) =>
    /Open +(http:\/\/localhost:\d+)[\s\S]*Ctrl-C/.exec(output),
  )
  if (text === null) throw new Error(`the demo ended:\n${demo.output()}`)
  const port = new URL(text[1] ?? '').port
  const metricsUrl = /http:\/\/localhost:\d+\/metrics/.exec(demo.output())?.[0] ?? ''
  const sandboxUrl = /platform is at (\S+)/.exec(demo.output())?.[1] ?? ''
  return { demo, port, metricsUrl, sandboxUrl }
}

t.test(
  'the demo serves its page on every address of localhost and sends a sign-in to its sandbox',
  async (t) => {
    // As for the server, an empty variable is one that is not set.
    const empty = { STATIC_DIR: '', PUBLIC_URL: '', OPS_PORT: '', SERVER_URL: '' }
    const { port, metricsUrl, sandboxUrl } = await startDemo(t, empty)
    for (const { address, family } of await lookup('localhost', { all: true })) {
      const host = family === 6 ? `[${address}]` : address
      const page = await fetch(`http://${host}:${port}/`, { headers: { accept: 'text/html' } })
      t.equal(page.status, 200, host)
      t.match(page.headers.get('content-type'), /^text\/html/)
    }
    t.equal((await fetch(metricsUrl)).status, 200)

    // Not fetch: it says of itself that it is no navigation.
    const login = await request(`http://localhost:${port}/auth/login?returnTo=/`, {
      headers: { 'sec-fetch-mode': 'navigate', 'sec-fetch-site': 'same-origin' },
    })
    t.equal(login.statusCode, 303)
    const target = String(login.headers.location)
    t.ok(target.startsWith(`${sandboxUrl}/oauth/authorize?`), target)
    t.equal((await fetch(target)).status, 200, 'the sandbox knows the client and the callback')
  },
)

async function signedIn(port: string): Promise<Browser> {
  const browser = createBrowser(`http://localhost:${port}`)
  const login = await browser.navigate('/auth/login')
  const body = new URLSearchParams({ username: 'alice', password: 'wonderland', decision: 'accept' })
  const accepted = await fetch(String(login.headers.location), { method: 'POST', body, redirect: 'manual' })
  await browser.navigate(String(accepted.headers.get('location')), { from: 'cross-site' })
  return browser
}

t.test('the demo gives the file of operations to the server and to the sandbox', async (t) => {
  const operations = { GetThing: { method: 'GET', path: '/{wac}/things' } }
  const folder = t.testdir({ 'operations.json': JSON.stringify({ operations }) })
  const { port } = await startDemo(t, { OPERATIONS_FILE: `${folder}/operations.json` })
  const answer = await (await signedIn(port)).fetch('/data/DEMO/things')
  t.equal(answer.status, 200, answer.text)
  t.match(answer.json(), { wType: 'Echo', operation: 'GetThing' })
})

t.test('the demo passes the limits of a session on', async (t) => {
  const { port, demo } = await startDemo(t, { SESSION_IDLE_SECONDS: '130', SESSION_MAX_SECONDS: '600' })
  t.match(demo.output(), 'The page shows where they are')
  const browser = await signedIn(port)
  const found = (await browser.fetch('/auth/session')).json()
  const [created, idle, absolute] = ['createdAt', 'idleExpiresAt', 'expiresAt'].map((name) =>
    Date.parse(String(found[name])),
  )
  t.equal(idle! - created!, 130_000)
  t.equal(absolute! - created!, 600_000)
})

t.test('for the page of a development server the demo does not describe its own page', async (t) => {
  const { demo } = await startDemo(t, { PUBLIC_URL: 'http://localhost:5173' })
  t.match(demo.output(), 'Open        http://localhost:5173')
  t.notMatch(demo.output(), 'The page shows')
})

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  t.test(`${signal} ends the demo and both of its processes with code 0`, async (t) => {
    const { demo, port, sandboxUrl } = await startDemo(t)
    t.equal((await demo.stop(signal)).code, 0)
    await t.rejects(fetch(`http://localhost:${port}/`), 'the server is gone')
    await t.rejects(fetch(sandboxUrl), 'the sandbox is gone')
  })
}

t.test('a port in use gives one sentence and exit code 1', async (t) => {
  const port = String(await listenOnLoopback(t, createServer()))

  const demo = startBuilt(t, 'demo.js', { PORT: port })
  t.equal((await demo.ended).code, 1)
  t.match(demo.output(), new RegExp(`^Port ${port} is taken\\. .*npm run demo\n$`))
})

t.test('an invalid port gives one sentence and exit code 1', async (t) => {
  const demo = startBuilt(t, 'demo.js', { PORT: 'front' })
  t.equal((await demo.ended).code, 1)
  t.equal(demo.output(), 'PORT must be a port number, but is "front".\n')
})

t.test(
  'one of the two addresses of running programs without the other gives one sentence and exit code 1',
  async (t) => {
    for (const name of ['SERVER_URL', 'SANDBOX_URL']) {
      const demo = startBuilt(t, 'demo.js', { PORT: '0', [name]: 'http://127.0.0.1:9' })
      t.teardown(() => demo.stop('SIGTERM'))
      await waitForOutput(demo, (text) => /\n/.exec(text))
      t.equal(demo.output(), 'SERVER_URL and SANDBOX_URL belong together: set both, or neither.\n')
      t.equal((await demo.stop('SIGTERM')).code, 1)
    }
  },
)
