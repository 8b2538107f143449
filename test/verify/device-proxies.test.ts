import { createHash, X509Certificate } from 'node:crypto'
import t, { type Test } from 'tap'
import { decideOnPage } from '../browser/demo.ts'
import { isProblem } from '../helpers/browser.ts'
import { launchBindingChromium, newProfile } from '../helpers/chromium.ts'
import { createDevice, refreshDevice, registrationChallenge } from '../helpers/device.ts'
import { type Front, LACKS_FRONTS, withEachFront } from '../helpers/fronts.ts'
import { NAME, ORIGIN, type Proxied, startProxied } from '../helpers/proxied.ts'
import { signIn } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'
import { findTool } from '../setup/tools.mjs'

const SESSION = '__Host-Http-session'
const DEVICE = '__Host-device'

t.test('behind the reverse proxies of deploy/', { skip: LACKS_FRONTS }, async (t) => {
  const system = await startProxied(t, [1, 2], ['nginx', 'haproxy'])
  await withEachFront(t, system.fronts, 'passes on what binds a session', (t, front) =>
    bindsClient(t, system, front),
  )
  const lacks = findTool('chromium-whole') === null && 'needs a whole Chromium (Debian: the package chromium)'
  await t.test('a Chromium binds its session', { skip: lacks }, async (t) => {
    await withEachFront(t, system.fronts, 'in between', (t, front) => bindsChromium(t, system, front))
  })
})

/** Another client with a copy of the session cookie alone. */
async function readsWithCopy({ browserAt }: Proxied, front: Front, value: string) {
  const thief = browserAt(front)
  thief.cookies.set(SESSION, { value, strict: true })
  return await thief.fetch('/flux/temperature')
}

/** A client with a key, which does what a browser does. */
async function bindsClient(t: Test, system: Proxied, front: Front): Promise<void> {
  const browser = system.browserAt(front)
  const device = createDevice()
  const signedIn = await signIn(browser, system.sandbox)
  const headers = { 'secure-session-response': device.registration(registrationChallenge(signedIn)) }
  t.equal((await browser.fetch('/auth/device', { method: 'POST', headers })).status, 200)
  t.equal((await refreshDevice(browser, device)).status, 200, 'the challenge and its proof pass')
  t.match((await browser.fetch('/auth/session')).json(), { authenticated: true, bound: true })
  t.equal((await browser.fetch('/flux/temperature')).status, 200)
  const copied = await readsWithCopy(system, front, browser.cookies.get(SESSION)!.value)
  isProblem(t, copied, 401, 'login_required', 'a copied session cookie')
  browser.cookies.delete(DEVICE)
  const skipped = { headers: { 'secure-session-skipped': 'unreachable' } }
  isProblem(t, await browser.fetch('/flux/temperature', skipped), 503, 'store_unavailable', 'what it skipped')
  t.equal((await refreshDevice(browser, device)).status, 200)
  t.equal((await browser.fetch('/flux/temperature')).status, 200)
}

async function bindsChromium(t: Test, system: Proxied, front: Front): Promise<void> {
  const publicKey = new X509Certificate(system.ca).publicKey.export({ type: 'spki', format: 'der' })
  const hash = createHash('sha256').update(publicKey).digest('base64')
  const rule = `--host-resolver-rules=MAP ${NAME}:443 127.0.0.1:${front.httpsPort}`
  const chromium = await launchBindingChromium(t, [hash], [rule])
  const context = await newProfile(t, chromium)
  const page = await context.newPage()
  const ask = (path: string): Promise<{ status: number; bound?: boolean }> =>
    page.evaluate(
      `fetch('${path}').then(async (response) => ({ status: response.status, ...await response.json() }))`,
    )
  await page.goto(`${ORIGIN}/auth/login`)
  await decideOnPage(page, ORIGIN)
  await until('the session is bound', async () => (await ask('/auth/session')).bound === true)
  const session = (await context.cookies()).find(({ name }) => name === SESSION)
  const copied = await readsWithCopy(system, front, session!.value)
  isProblem(t, copied, 401, 'login_required', 'a copied session cookie')
  await context.clearCookies({ name: DEVICE })
  t.equal((await ask('/flux/temperature')).status, 200, 'it refreshes when the device cookie has expired')
  t.ok((await context.cookies()).some(({ name }) => name === DEVICE))
}
