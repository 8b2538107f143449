import t, { type Test } from 'tap'
import { type Browser, createBrowser, isProblem } from '../helpers/browser.ts'
import {
  createDevice,
  type Device,
  refreshChallenge,
  refreshDevice,
  registrationChallenge,
} from '../helpers/device.ts'
import { freePort } from '../helpers/ports.ts'
import { CLIENT, metricsOf, signIn, startBff, startSandbox } from '../helpers/system.ts'

const ORIGIN = 'https://app.example.com'
const DEVICE_COOKIE = '__Host-device'
const SESSION_COOKIE = '__Host-Http-session'

/** A server that browsers reach by https. */
async function start(t: Test, env: Record<string, string> = {}) {
  const sandbox = await startSandbox(t, { client: { ...CLIENT, callback: `${ORIGIN}/auth/callback` } })
  const port = await freePort()
  const options = { PUBLIC_URL: ORIGIN, PORT: String(port), SESSION_CACHE_MS: '10000', ...env }
  const bff = await startBff(t, sandbox, options)
  const browser = (): Browser => createBrowser(ORIGIN, { port })
  return { sandbox, bff, browser, options }
}

type System = Awaited<ReturnType<typeof start>>

/** A browser that has signed in and registered this device; with `proves` it has refreshed once, so the session is bound. */
async function signedIn({ sandbox, browser: create }: System, { proves = true } = {}) {
  const browser = create()
  const device = createDevice()
  const signedIn = await signIn(browser, sandbox)
  const token = device.registration(registrationChallenge(signedIn))
  const registered = await register(browser, token)
  if (proves) await refreshDevice(browser, device)
  return { browser, device, token, registered, signedIn }
}

/** As Chromium sends it where the authorization server's page began the navigation: without cookies. */
function register({ fetch }: Browser, token: string) {
  return fetch('/auth/device', { method: 'POST', headers: { 'secure-session-response': token, cookie: '' } })
}

/** Another client with a copy of the session cookie alone. */
function thiefOf({ browser: create }: System, victim: Browser): Browser {
  const thief = create()
  thief.cookies.set(SESSION_COOKIE, victim.cookies.get(SESSION_COOKIE)!)
  return thief
}

t.test(
  'a session is bound from the first proof of its device on, and a copied cookie reads nothing',
  async (t) => {
    const system = await start(t)
    const { browser, device, registered } = await signedIn(system, { proves: false })
    t.equal(registered.status, 200)
    t.match(registered.json(), {
      session_identifier: 'app.example.com',
      refresh_url: '/auth/device/refresh',
      credentials: [{ type: 'cookie', name: DEVICE_COOKIE }],
    })
    t.match(
      registered.setCookies[0],
      /^__Host-device=[^;]+; Max-Age=60; Path=\/; HttpOnly; Secure; SameSite=Strict$/,
    )

    const thief = thiefOf(system, browser)
    t.equal((await thief.fetch('/flux/temperature')).status, 200, 'not bound yet')
    t.match((await browser.fetch('/auth/session')).json(), { authenticated: true, bound: false })

    const refreshed = await refreshDevice(browser, device)
    t.equal(refreshed.status, 200)
    t.match(refreshed.setCookies[0], /^__Host-device=[^;]+; Max-Age=600; /)
    isProblem(t, await thief.fetch('/flux/temperature'), 401, 'login_required', 'from now on')
    t.equal((await thief.fetch('/flux/temperature')).json().reason, 'device')
    const update = { method: 'PUT', headers: { 'content-type': 'application/json' }, body: '{"name":"A"}' }
    isProblem(t, await thief.fetch('/site/1', update), 401, 'login_required', 'login_required')
    const seen = (await thief.fetch('/auth/session')).json()
    t.strictSame(
      seen,
      { authenticated: false, loginUrl: '/auth/login', reason: 'device' },
      'nothing of the user',
    )
    isProblem(
      t,
      await thief.fetch('/auth/session', { method: 'POST' }),
      401,
      'login_required',
      'login_required',
    )

    t.equal((await browser.fetch('/flux/temperature')).status, 200, 'its own browser is not disturbed')
    t.equal((await browser.fetch('/flux/temperature')).status, 200, 'from the cache')
    t.match((await browser.fetch('/auth/session')).json(), { authenticated: true, bound: true })
    t.match(system.bff.log(), /"event":"device\.bound"/)
    const metrics = await metricsOf(system.bff)
    t.match(metrics, /^bff_sessions_bound_total 1$/m)
    t.match(metrics, /^bff_device_refresh_total\{outcome="granted"\} 1$/m)
    t.match(metrics, /^bff_device_refresh_total\{outcome="challenged"\} 1$/m)
  },
)

t.test('a thief cannot register, refresh or replay', async (t) => {
  const system = await start(t)
  const { browser, device, token } = await signedIn(system)
  const thief = thiefOf(system, browser)
  const own = createDevice()
  const replayed = await register(thief, token)
  t.equal(replayed.status, 200, 'a repeated registration changes nothing')
  t.strictSame(replayed.setCookies, [], 'and gives no cookie once the session is bound')
  const challenged = await thief.fetch('/auth/device/refresh', { method: 'POST' })
  t.equal(challenged.status, 403)
  const challenge = refreshChallenge(challenged)
  const mallory = await signedIn(system)
  const ofMallory = refreshChallenge(await mallory.browser.fetch('/auth/device/refresh', { method: 'POST' }))
  const unsigned = own.proof(challenge).replace(/[^.]*$/, '')
  for (const [what, headers] of Object.entries({
    'another key': { 'secure-session-response': own.proof(challenge) },
    'another key in the header': { 'secure-session-response': own.registration(challenge) },
    "the device's key in the header": {
      'secure-session-response': own.token({ jwk: device.jwk }, { jti: challenge }),
    },
    'another algorithm': { 'secure-session-response': own.token({ alg: 'none' }, { jti: challenge }) },
    'no signature': { 'secure-session-response': unsigned },
    'a signature of zeros': { 'secure-session-response': unsigned + 'A'.repeat(86) },
    'another type': { 'secure-session-response': device.token({ typ: 'JWT' }, { jti: challenge }) },
    'the challenge of another session': { 'secure-session-response': device.proof(ofMallory) },
    'the proof of another session': { 'secure-session-response': mallory.device.proof(ofMallory) },
    'the registration of the device': { 'secure-session-response': token },
    'the spelling of older drafts': { 'sec-session-response': device.proof(challenge) },
  })) {
    const again = await thief.fetch('/auth/device/refresh', { method: 'POST', headers })
    t.strictSame([again.status, again.setCookies], [403, []], what)
  }
  const cookie = (text: string) => thief.fetch('/flux/temperature', { headers: { cookie: text } })
  const session = `${SESSION_COOKIE}=${browser.cookies.get(SESSION_COOKIE)!.value}`
  const [until, signature] = browser.cookies.get(DEVICE_COOKIE)!.value.split('.') as [string, string]
  const proven = `${DEVICE_COOKIE}=${until}.${signature}`
  t.equal((await cookie(`${session}; ${proven}`)).status, 200, 'the control')
  for (const [what, text] of Object.entries({
    'the cookie of another device': `${DEVICE_COOKIE}=${mallory.browser.cookies.get(DEVICE_COOKIE)!.value}`,
    'a later instant': `${DEVICE_COOKIE}=${Number(until) + 600}.${signature}`,
    'an empty one': `${DEVICE_COOKIE}=`,
    'a repeated one': `${proven}; ${proven}`,
    'a name in other letters': proven.replace('Host', 'host'),
  }))
    isProblem(t, await cookie(`${session}; ${text}`), 401, 'login_required', what)
  isProblem(t, await thief.fetch('/flux/temperature'), 401, 'login_required', 'login_required')
  t.equal((await refreshDevice(browser, device)).status, 200, 'the owner goes on')
  t.equal((await browser.fetch('/flux/temperature')).status, 200)
})

t.test('a second device is refused, and a faulty registration leaves a session that works', async (t) => {
  const system = await start(t)
  const { browser, signedIn: answer } = await signedIn(system, { proves: false })
  const second = createDevice().registration(registrationChallenge(answer))
  isProblem(t, await register(browser, second), 400, 'invalid_request', 'it has a device')
  isProblem(t, await register(browser, 'a.b.c'), 400, 'invalid_request', 'invalid_request')
  isProblem(
    t,
    await browser.fetch('/auth/device', { method: 'POST' }),
    400,
    'invalid_request',
    'invalid_request',
  )
  t.equal((await browser.fetch('/flux/temperature')).status, 200)
  const other = system.browser()
  t.equal((await other.fetch('/auth/device/refresh', { method: 'POST' })).status, 401, 'without a session')
  const unregistered = system.browser()
  await signIn(unregistered, system.sandbox)
  t.equal(
    (await unregistered.fetch('/auth/device/refresh', { method: 'POST' })).status,
    401,
    'without a device',
  )
  t.equal((await unregistered.fetch('/flux/temperature')).status, 200, 'it stays unbound')
})

t.test('a refresh of a session that has ended says why', async (t) => {
  const system = await start(t)
  const { browser, device } = await signedIn(system)
  const copy = thiefOf(system, browser)
  const challenge = refreshChallenge(await copy.fetch('/auth/device/refresh', { method: 'POST' }))
  t.equal((await browser.fetch('/auth/logout', { method: 'POST' })).status, 204)
  const headers = { 'secure-session-response': device.proof(challenge) }
  const answer = await copy.fetch('/auth/device/refresh', { method: 'POST', headers })
  isProblem(t, answer, 401, 'login_required', 'signing out')
  t.equal(answer.json().reason, 'logout')
})

t.test('a thief does not keep the owner out, and is no activity of the session', async (t) => {
  const system = await start(t)
  const { browser, device } = await signedIn(system)
  const thief = thiefOf(system, browser)
  const own = createDevice()
  const before = (await browser.fetch('/auth/session')).json().idleExpiresAt
  for (let times = 0; times < 50; times += 1) {
    const challenged = await thief.fetch('/auth/device/refresh', { method: 'POST' })
    const headers = { 'secure-session-response': own.proof(refreshChallenge(challenged)) }
    await thief.fetch('/auth/device/refresh', { method: 'POST', headers })
    await register(thief, own.registration(refreshChallenge(challenged)))
    await thief.fetch('/flux/temperature')
  }
  t.equal((await browser.fetch('/auth/session')).json().idleExpiresAt, before)
  t.equal((await refreshDevice(browser, device)).status, 200)
  t.equal((await browser.fetch('/flux/temperature')).status, 200)
})

t.test("another session's registration does not replace that of a browser with a device", async (t) => {
  const system = await start(t)
  const { browser } = await signedIn(system)
  const mallory = await signedIn(system, { proves: false })
  // As another host of the site could have it sent from here: a registration of that host's own session.
  const headers = { 'secure-session-response': mallory.token }
  const foreign = await browser.fetch('/auth/device', { method: 'POST', headers })
  isProblem(t, foreign, 400, 'invalid_request', 'beside the cookie of a session with a device')
  t.strictSame(foreign.setCookies, [])
  const fresh = system.browser()
  await signIn(fresh, system.sandbox)
  t.equal((await fresh.fetch('/auth/device', { method: 'POST', headers })).status, 200, 'of one without')
})

t.test('only a callback offers a registration, over https, unless SESSION_BINDING is off', async (t) => {
  const system = await start(t)
  const { browser, signedIn: answer } = await signedIn(system)
  t.match(answer.headers['secure-session-registration'], /^\(ES256\);path="\/auth\/device";challenge="/)
  for (const path of ['/auth/session', '/flux/temperature', '/auth/login'])
    t.equal((await browser.fetch(path)).headers['secure-session-registration'], undefined, path)

  const off = await start(t, { SESSION_BINDING: 'off' })
  const unbound = off.browser()
  t.equal((await signIn(unbound, off.sandbox)).headers['secure-session-registration'], undefined)
  isProblem(t, await unbound.fetch('/auth/device', { method: 'POST' }), 404, 'not_found', 'not_found')
  const sandbox = await startSandbox(t)
  const plain = await startBff(t, sandbox)
  const answered = await signIn(plain.browser(), sandbox)
  t.equal(answered.headers['secure-session-registration'], undefined, 'without https')
})

t.test(
  'without a device cookie an outage is 503, a page asks again from its own origin, and then it is 401',
  async (t) => {
    const system = await start(t)
    const { browser } = await signedIn(system)
    browser.cookies.delete(DEVICE_COOKIE)
    const headers = { 'secure-session-skipped': 'server_error' }
    const skipped = await browser.fetch('/flux/temperature', { headers })
    isProblem(t, skipped, 503, 'store_unavailable', 'store_unavailable')
    t.ok(skipped.headers['retry-after'])
    isProblem(
      t,
      await browser.fetch('/auth/session', { headers }),
      503,
      'store_unavailable',
      'store_unavailable',
    )

    const opened = await browser.navigate('/flux/temperature')
    t.equal(opened.status, 200)
    t.match(opened.text, /<meta http-equiv="refresh" content="0">/)
    t.match(opened.headers['cache-control'], /no-store/)
    const again = await browser.navigate('/flux/temperature', {
      headers: { 'sec-fetch-site': 'same-origin' },
    })
    t.equal(again.status, 401)
    t.match(again.text, '/auth/login')
    t.notMatch(again.text, 'http-equiv')

    t.equal(
      (await browser.fetch('/auth/logout', { method: 'POST' })).status,
      204,
      'signing out needs no device',
    )
    t.match((await browser.fetch('/auth/session')).json(), { authenticated: false })
  },
)

t.test(
  'the origin check holds for both routes, but for a registration that says nothing of its origin',
  async (t) => {
    const system = await start(t)
    const { browser } = await signedIn(system)
    const foreign = { 'sec-fetch-site': 'cross-site' }
    for (const path of ['/auth/device', '/auth/device/refresh'])
      isProblem(t, await browser.fetch(path, { method: 'POST', headers: foreign }), 403, 'cross_origin', path)
    const { signedIn: answer } = await signedIn(system, { proves: false })
    const bare = await fetch(`http://127.0.0.1:${system.options.PORT}/auth/device`, {
      method: 'POST',
      headers: { 'secure-session-response': createDevice().registration(registrationChallenge(answer)) },
    })
    t.equal(bare.status, 400, 'it is read: the session has another device')
    t.equal(((await bare.json()) as { code: string }).code, 'invalid_request')
  },
)

t.test('a second sign-in of the same browser binds its own session', async (t) => {
  const system = await start(t)
  const { browser, device } = await signedIn(system)
  const answer = await signIn(browser, system.sandbox)
  t.equal((await browser.fetch('/flux/temperature')).status, 200, 'the new session is not bound yet')
  t.equal((await refreshDevice(browser, device)).status, 401, 'and has no device')
  const next: Device = createDevice()
  t.equal((await register(browser, next.registration(registrationChallenge(answer)))).status, 200)
  t.equal((await refreshDevice(browser, next)).status, 200)
  t.equal((await browser.fetch('/flux/temperature')).status, 200)
  isProblem(
    t,
    await thiefOf(system, browser).fetch('/flux/temperature'),
    401,
    'login_required',
    'login_required',
  )
})
