import t from 'tap'
import { startSilentAddress } from '../helpers/addresses.ts'
import type { Browser } from '../helpers/browser.ts'
import { freePort, portOfUrl } from '../helpers/ports.ts'
import { signIn, startBff, startSandbox } from '../helpers/system.ts'

/** Updates of one session at once. */
const SHARE = 32
/** Longer than a test lasts: by its age alone every read would prove the session. */
const LONG_TRUST = { SESSION_CACHE_MS: '10000' }

function update(browser: Browser) {
  const headers = { 'content-type': 'application/json' }
  return browser.fetch('/site/42', { method: 'PUT', headers, body: '{"name":"A"}' })
}

/** The server has handled by then what came before on other connections. */
async function handled(browser: Browser): Promise<void> {
  for (let times = 0; times < 3; times += 1) await browser.fetch('/auth/session')
}

async function signOut(browser: Browser): Promise<number> {
  return (await browser.fetch('/auth/logout', { method: 'POST' })).status
}

t.test('a call that waits for its share does not leave once its session was ended here', async (t) => {
  const sandbox = await startSandbox(t)
  const browser = (await startBff(t, sandbox, LONG_TRUST)).browser()
  await signIn(browser, sandbox)
  const gate = sandbox.hold('resource')
  const first = Array.from({ length: SHARE }, () => update(browser))
  await gate.arrivals(SHARE)
  const waits = update(browser)
  await handled(browser)
  t.equal(await signOut(browser), 204)
  gate.release()
  const { status, json } = await waits
  t.equal(status, 401)
  t.match(json(), { code: 'login_required', reason: 'logout' })
  t.strictSame(
    new Set((await Promise.all(first)).map(({ status }) => status)),
    new Set([200]),
    'what was sent',
  )
  t.equal(sandbox.journal.entries({ endpoint: 'resource' }).length, SHARE)
})

t.test('a call that waits for its connection does not leave once its session was ended here', async (t) => {
  const sandbox = await startSandbox(t)
  const silent = { host: '127.0.0.2', port: await freePort() }
  const address = await startSilentAddress(t, silent, portOfUrl(sandbox.url))
  const { pathname } = new URL(sandbox.baseUrl)
  const bff = await startBff(t, sandbox, {
    ...LONG_TRUST,
    ALLOW_INSECURE_HTTP: 'true',
    BASE_URL: `http://${silent.host}:${silent.port}${pathname.replace(/\/$/, '')}`,
    OAUTH_SCOPE: sandbox.baseUrl,
  })
  const browser = bff.browser()
  await signIn(browser, sandbox)
  // The second one is proven by what the first one asked the store.
  const waiting = [update(browser), update(browser)]
  await handled(browser)
  t.equal(await signOut(browser), 204)
  address.open()
  for (const { status, json } of await Promise.all(waiting)) {
    t.equal(status, 401)
    t.match(json(), { code: 'login_required', reason: 'logout' })
  }
  t.equal(sandbox.journal.entries({ endpoint: 'resource' }).length, 0)
})
