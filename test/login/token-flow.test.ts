import t from 'tap'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import { counted } from '../flows/load.ts'
import { type Browser, isProblem } from '../helpers/browser.ts'
import { shared, signedIn } from '../helpers/shared.ts'
import { startBff, startSandbox } from '../helpers/system.ts'
import { type Arrival, arrivalAt, begin, comeBack, postFragment, signedInOverRedis } from './sign-ins.ts'

const PERMITTED = { OAUTH_FLOWS: 'code,token' }

/** A sign-in up to the return from the authorization server; the page's script has not run yet. */
async function arrive(
  browser: Browser,
  sandbox: Sandbox,
  decision: 'accept' | 'refuse' = 'accept',
): Promise<Arrival> {
  const query = '?flow=token&returnTo=%2Fapp%3Fa%3D1'
  return arrivalAt(await begin(browser, sandbox, { query, decision }))
}

t.test('flow=token requests a token without a code challenge', async (t) => {
  const { sandbox, bff } = await shared(PERMITTED)
  const ask = async (query: string) => {
    const { headers } = await bff.browser().navigate(`/auth/login${query}`)
    return new URL(String(headers.location)).searchParams
  }
  const asked = await ask('?flow=token')
  const { state, ...parameters } = Object.fromEntries(asked)
  t.strictSame(parameters, {
    response_type: 'token',
    client_id: 'test-client',
    scope: sandbox.baseUrl,
    redirect_uri: `${bff.publicUrl}/auth/callback/${state}`,
  })
  t.equal((await ask('')).get('response_type'), 'code', 'the code flow stays the usual one')
  t.equal((await ask('?flow=code')).get('response_type'), 'code')
  const crossing = await bff.browser().navigate('/auth/login?flow=token', { from: 'cross-site' })
  t.match(crossing.text, 'href="/auth/login?returnTo=%2F&#38;flow=token"', 'the button keeps the flow')
  const alone = (await shared({ OAUTH_FLOWS: 'token' })).bff.browser()
  const { location } = (await alone.navigate('/auth/login')).headers
  t.match(location, 'response_type=token', 'the token flow alone needs no parameter')
  t.equal((await alone.navigate('/auth/login?flow=code')).status, 400)
})

t.test('the page sends the fragment, and the session lasts as long as its token', async (t) => {
  const { sandbox, bff } = await shared(PERMITTED)
  sandbox.faults.set({ tokenLifeSeconds: 900 })
  const browser = bff.browser()
  const arrival = await arrive(browser, sandbox)

  const page = await comeBack(browser, arrival.path)
  t.equal(page.status, 200)
  t.match(page.headers['content-type'], /^text\/html/)
  t.equal(page.headers['cache-control'], 'no-store')
  t.match(
    page.headers['content-security-policy'],
    /^default-src 'none'; .*script-src 'sha256-[^']+'; connect-src 'self';.*frame-ancestors 'none'/,
  )
  t.strictSame(page.setCookies, [], 'nothing has happened yet')

  const answer = await postFragment(browser, arrival)
  t.equal(answer.status, 200)
  t.equal(answer.headers.location, '/app?a=1#_')
  const session = await browser.fetch('/auth/session')
  t.strictSame({ ...answer.json(), now: '' }, { ...session.json(), now: '' }, 'the body of /auth/session')
  const facts = answer.json()
  t.match(facts, { authenticated: true, flow: 'token', refreshable: false, wac: 'DEMO' })
  t.equal(facts.expiresAt, facts.accessTokenExpiresAt)
  const lives = Date.parse(String(facts.expiresAt)) - Date.parse(String(facts.createdAt))
  t.ok(lives <= 900_000 && lives > 890_000, `${lives} ms`)
  t.notMatch(answer.text, arrival.members.access_token!)

  t.ok((await counted([bff], 'bff_sessions_started_total{flow="token"}')) > 0)
  t.equal((await browser.fetch('/flux/a')).status, 200)
  const [call] = sandbox.journal.entries({ endpoint: 'resource' })
  t.equal(call?.headers.authorization, `Bearer ${arrival.members.access_token}`)
  t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, 0, 'nothing to redeem')
  t.notMatch(bff.log(), arrival.members.access_token!)

  isProblem(t, await postFragment(browser, arrival), 400, 'login_failed', 'once only')
  const reloaded = await browser.navigate(arrival.path)
  t.equal(reloaded.status, 303, 'reloaded')
  t.equal(reloaded.headers.location, '/#_')
})

t.test('a fragment is accepted only unaltered, from the browser that began the sign-in', async (t) => {
  const { sandbox, bff, browser } = await signedIn(PERMITTED)
  const before = browser.cookies.get('session')!.value
  const arrival = await arrive(browser, sandbox)
  const { access_token, ...rest } = arrival.members
  const other = bff.browser()
  await other.navigate('/auth/login?flow=token')

  isProblem(t, await postFragment(bff.browser(), arrival), 400, 'login_failed', 'no login cookie')
  isProblem(t, await postFragment(other, arrival), 400, 'login_failed', 'a login cookie of another sign-in')
  for (const [members, code, what] of [
    [{ ...arrival.members, state: 'evil' }, 'login_failed', 'another state'],
    [{ ...rest }, 'invalid_request', 'no token'],
    [{ ...rest, access_token: '' }, 'invalid_request', 'an empty token'],
    [{ ...arrival.members, error: 'access_denied' }, 'invalid_request', 'a token and an error'],
    [{ ...rest, access_token: [access_token, 'x'] }, 'invalid_request', 'two tokens'],
    [{ ...arrival.members, access_token: 'tök en' }, 'login_failed', 'a token that fits no header'],
    [{ ...arrival.members, token_type: 'mac' }, 'login_failed', 'a token of another kind'],
    [{ ...arrival.members, expires_in: '0' }, 'login_failed', 'a token that is due at once'],
    [{ ...arrival.members, expires_in: 'soon' }, 'login_failed', 'a token of an unreadable life'],
    [[], 'invalid_request', 'no object'],
  ] as const) {
    const changed = { path: arrival.path, members: members as Arrival['members'] }
    const answer = await postFragment(browser, changed)
    isProblem(t, answer, 400, code, what)
    t.strictSame(answer.setCookies, [], what)
  }
  t.equal(browser.cookies.get('session')!.value, before, 'the session before lives on')
  t.equal((await browser.fetch('/flux/a')).status, 200)

  t.equal((await postFragment(browser, arrival)).status, 200, 'and then the right one')
  t.not(browser.cookies.get('session')!.value, before)
})

t.test('neither flow accepts the response of the other', async (t) => {
  const { sandbox, bff } = await shared(PERMITTED)
  const browser = bff.browser()
  const back = new URL(await begin(browser, sandbox))
  const handed = await postFragment(browser, { path: back.pathname, members: { access_token: 'stolen' } })
  isProblem(t, handed, 400, 'login_failed', 'a token for a sign-in by code')
  t.equal((await comeBack(browser, back.pathname)).status, 400, 'no page for it')

  const arrival = await arrive(browser, sandbox)
  t.equal((await comeBack(browser, `${arrival.path}?code=stolen`)).status, 400)
  t.equal(sandbox.journal.entries({ endpoint: 'token' }).length, 0)
  t.notOk(browser.cookies.has('session'))
})

t.test('the faults of a fragment are reported in the documented order', async (t) => {
  const { bff } = await shared(PERMITTED)
  const browser = bff.browser()
  const post = (nonce: string, headers: Record<string, string>, body: string) =>
    browser.fetch(`/auth/callback/${nonce}`, { method: 'POST', headers, body })
  const nonce = 'A'.repeat(43)
  const json = { 'content-type': 'application/json' }
  const long = JSON.stringify({ access_token: 'x'.repeat(20_000) })
  for (const [answer, status, code] of [
    [await post('evil', { 'sec-fetch-site': 'cross-site' }, long), 403, 'cross_origin'],
    [await post('evil', { 'content-type': 'text/plain' }, long), 400, 'login_failed'],
    [await post(nonce, { 'content-type': 'text/plain' }, long), 415, 'unsupported_media_type'],
    [await post(nonce, json, long), 413, 'payload_too_large'],
    [await post(nonce, json, '{'), 400, 'invalid_request'],
    [await post(nonce, json, '{"access_token":"x"}'), 400, 'login_failed'],
  ] as const) {
    isProblem(t, answer, status, code, code)
  }
  const page = await post(nonce, { 'sec-fetch-mode': 'navigate', accept: 'text/html' }, '')
  t.equal(page.status, 415)
  t.match(page.headers['content-type'], /^text\/html/)
})

t.test('a refusal in the fragment returns to the app with login_error', async (t) => {
  const sandbox = await startSandbox(t)
  const bff = await startBff(t, sandbox, PERMITTED)
  const browser = bff.browser()
  const arrival = await arrive(browser, sandbox, 'refuse')
  const refused = await postFragment(browser, arrival)
  isProblem(t, refused, 400, 'login_failed', 'refused')
  t.equal(refused.headers.location, '/app?a=1&login_error=access_denied#_')
  t.equal(browser.cookies.size, 0, 'the login cookie is used up')

  const { path } = await arrive(browser, sandbox)
  const odd = await postFragment(browser, { path, members: { error: 'evil\nthing' } })
  t.equal(odd.headers.location, '/app?a=1&login_error=server_error#_')
  for (const reason of ['refused', 'server_error'])
    t.equal(await counted([bff], `bff_sign_in_failures_total{reason="${reason}"}`), 1, reason)
  t.equal(await counted([bff], 'bff_sign_in_failures_total{reason="login_failed"}'), 0, 'counted once')
})

t.test('with OAUTH_REDIRECT=fixed the state in the fragment names the sign-in', async (t) => {
  const { sandbox, bff } = await shared({ ...PERMITTED, OAUTH_REDIRECT: 'fixed' })
  sandbox.faults.set({ state: 'echo' })
  const browser = bff.browser()
  const early = await comeBack(browser, '/auth/callback')
  t.equal(early.status, 400, 'no sign-in expects a fragment')
  const arrival = await arrive(browser, sandbox)
  t.equal(arrival.path, '/auth/callback')
  const page = await comeBack(browser, arrival.path)
  t.equal(page.status, 200)
  t.match(page.text, '<script>')
  const { state, ...stateless } = arrival.members
  const path = `/auth/callback/${state}`
  isProblem(t, await postFragment(browser, { path, members: stateless }), 400, 'login_failed', 'no state')
  const answer = await postFragment(browser, { path, members: arrival.members })
  t.equal(answer.status, 200)
  t.match(answer.json(), { authenticated: true, flow: 'token' })
})

t.test('a token that cannot be stored is revoked and starts no session', async (t) => {
  const { sandbox, redis, bff } = await signedInOverRedis(t, PERMITTED)
  const browser = bff.browser()
  const arrival = await arrive(browser, sandbox)
  await redis.stop()
  const failed = await postFragment(browser, arrival)
  isProblem(t, failed, 503, 'store_unavailable', 'the store is down')
  t.ok(failed.headers['retry-after'])
  t.equal(failed.json().loginUrl, '/auth/login?returnTo=%2Fapp%3Fa%3D1&flow=token')
  t.strictSame(failed.setCookies, [])
  const [revoked] = await sandbox.journal.until({ endpoint: 'revoke' })
  t.equal(revoked?.form?.token, arrival.members.access_token)
})
