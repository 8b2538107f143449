import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import type { Browser } from '../helpers/browser.ts'
import { type ForeignServer, startForeignServer } from '../helpers/oidc-provider.ts'
import { listenOnLoopback } from '../helpers/ports.ts'
import { startReverseProxy } from '../helpers/reverse-proxy.ts'
import { type Bff, startBff } from '../helpers/system.ts'
import { until } from '../helpers/wait.ts'

t.jobs = 4

t.test('sign-in, calls and sign-out work with an independent authorization server', async (t) => {
  const { foreign, bff, bearers } = await startWithForeignServer(t)
  const browser = bff.browser()
  const start = await browser.navigate('/auth/login?returnTo=/app')
  const asked = new URL(String(start.headers.location)).searchParams
  t.match(Object.fromEntries(asked), {
    response_type: 'code',
    redirect_uri: `${bff.publicUrl}/auth/callback`,
    scope: 'platform',
    code_challenge: /^[\w-]{43}$/,
    code_challenge_method: 'S256',
    state: /^[\w-]{43}$/,
  })
  const cameBack = new URL(await foreign.decide(String(start.headers.location)))
  t.equal(cameBack.searchParams.get('iss'), foreign.issuer)
  t.equal(cameBack.searchParams.get('state'), asked.get('state'))
  const back = await browser.navigate(cameBack.href, { from: 'cross-site' })
  t.equal(back.status, 303, back.text)
  t.equal(back.headers.location, '/app#_')
  const session = (await browser.fetch('/auth/session')).json()
  t.match(session, { authenticated: true, flow: 'code', refreshable: true })

  t.equal((await browser.fetch('/flux/temperature')).status, 200)
  const tokens = foreign.tokenRequests[0]?.granted
  if (tokens?.refresh_token === undefined) throw new Error('no refresh token was given')
  t.strictSame(bearers, [tokens.access_token])
  t.equal(await foreign.isActive(tokens.refresh_token), true)

  t.equal((await browser.fetch('/auth/logout', { method: 'POST' })).status, 204)
  t.equal(browser.cookies.size, 0)
  await until('the token is revoked', async () => !(await foreign.isActive(tokens.access_token)))
  t.equal(await foreign.isActive(tokens.refresh_token), false, 'the provider knows neither token any more')
  t.match(await foreign.askForTokens({ grant_type: 'refresh_token', refresh_token: tokens.refresh_token }), {
    status: 400,
    body: { error: 'invalid_grant' },
  })
  t.equal((await browser.fetch('/flux/temperature')).status, 401)
})

t.test('a request whose token is about to expire is sent with a new token', async (t) => {
  const env = { REFRESH_AHEAD_SECONDS: '0' }
  const { foreign, bff, bearers } = await startWithForeignServer(t, { tokenLifeSeconds: 3, env })
  const browser = await signIn(bff, foreign)
  const statuses = new Set<number>()
  await until('a call with a new token', async () => {
    statuses.add((await browser.fetch('/flux/temperature')).status)
    return bearers.at(-1) !== bearers[0]
  })
  t.strictSame([...statuses], [200], 'no request noticed')
  // On a slow machine not the first one.
  const at = foreign.tokenRequests.findIndex(({ granted }) => granted?.access_token === bearers.at(-1))
  const [first, second] = foreign.tokenRequests.slice(at - 1)
  t.match(second, { grantType: 'refresh_token', params: { refresh_token: first?.granted?.refresh_token } })
  t.not(second?.granted?.refresh_token, first?.granted?.refresh_token, 'it rotates')
  const old = { grant_type: 'refresh_token', refresh_token: first?.granted?.refresh_token ?? '' }
  t.match(await foreign.askForTokens(old), { status: 400, body: { error: 'invalid_grant' } })
})

/** The provider, a resource server that asks it about every token, and the server between them. */
async function startWithForeignServer(t: Test, { tokenLifeSeconds = 600, env = {} } = {}) {
  // The provider must know the address to come back to before the server is there.
  const reverseProxy = await startReverseProxy(t)
  const foreign = await startForeignServer(t, {
    redirectUri: `${reverseProxy.publicUrl}/auth/callback`,
    tokenLifeSeconds,
  })
  const bearers: string[] = []
  const resource = createServer(async (request, response) => {
    const token = /^Bearer (.+)$/.exec(request.headers.authorization ?? '')?.[1] ?? ''
    bearers.push(token)
    const active = await foreign.isActive(token)
    response.writeHead(active ? 200 : 401, {
      'content-type': 'application/json',
      ...(active ? {} : { 'www-authenticate': 'Bearer error="invalid_token"' }),
    })
    response.end(active ? '{"values":[]}' : '{"error":"invalid_token"}')
  })
  const baseUrl = `http://127.0.0.1:${await listenOnLoopback(t, resource)}`
  const bff = await startBff(
    t,
    { authUrl: foreign.issuer, baseUrl },
    { ...foreign.env, PUBLIC_URL: reverseProxy.publicUrl, TRUST_PROXY: '127.0.0.1/32', ...env },
  )
  reverseProxy.forwardTo((bff.app.server.server.address() as AddressInfo).port)
  return { foreign, bff, bearers }
}

async function signIn(bff: Bff, foreign: ForeignServer): Promise<Browser> {
  const browser = bff.browser()
  const start = await browser.navigate('/auth/login')
  const cameBack = await foreign.decide(String(start.headers.location))
  const back = await browser.navigate(cameBack, { from: 'cross-site' })
  if (back.status !== 303) throw new Error(`the callback answered ${back.status}: ${back.text}`)
  return browser
}
