import { createHash } from 'node:crypto'
import t, { type Test } from 'tap'
import { environmentFor } from '../../sandbox/profile.ts'
import { PROFILES } from '../../sandbox/profiles.ts'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import { CLIENT, errorOf, getFlux, startSandbox, tokensOf } from './started.ts'

/** An answer as `status error`, `status empty` or `status text`. */
type Said = string

interface Facts {
  /** A refresh token that was never issued; and with a wrong secret. */
  unknown: Said
  wrongSecret: Said
  /** A wrong secret with an unknown code. */
  wrongSecretCode: Said
  /** The refresh token that a refresh has used. */
  used: Said
  withdrawn: Said
  /** The access token from before a refresh. */
  oldAccess: 'lives' | 'ends'
  /** A code presented twice: the tokens of the first use. */
  codeTwice: 'first lives' | 'first ends'
  /** What a revocation of the one does to the other; null: there is no endpoint. */
  revokedAccess: 'refresh lives' | 'refresh ends' | null
  revokedRefresh: 'access lives' | 'access ends' | null
  /** An expired token at the guard, and what its challenge says. */
  expired: [Said, RegExp]
  /** A callback with a longer path: the step that refuses it, and the status. */
  longerCallback: string
  /** An unregistered scope: the step and the error at the callback, or the scope that was granted. */
  unknownScope: string
  refusal: string
}

/** Measured, see the version in the profile. */
const FACTS: Record<string, Facts> = {
  'django-oauth-toolkit': {
    ...{ unknown: '400 invalid_grant', wrongSecret: '401 invalid_client', used: '400 invalid_grant' },
    ...{ wrongSecretCode: '401 invalid_client', withdrawn: '500 text', oldAccess: 'ends' },
    ...{ codeTwice: 'first lives', revokedAccess: 'refresh ends', revokedRefresh: 'access ends' },
    ...{ expired: ['403 empty', /^$/], longerCallback: 'sign-in 400' },
    ...{ unknownScope: 'sign-in invalid_scope', refusal: 'access_denied' },
  },
  doorkeeper: {
    ...{ unknown: '400 invalid_grant', wrongSecret: '400 invalid_grant', used: '200 granted' },
    ...{ wrongSecretCode: '401 invalid_client', withdrawn: '400 invalid_grant', oldAccess: 'ends' },
    ...{ codeTwice: 'first lives', revokedAccess: 'refresh ends', revokedRefresh: 'access ends' },
    ...{ expired: ['401 empty', /error="invalid_token"/], longerCallback: 'sign-in 200' },
    ...{ unknownScope: 'sign-in 200', refusal: 'access_denied' },
  },
  'lemonldap-ng': {
    ...{ unknown: '400 invalid_request', wrongSecret: '400 invalid_client', used: '200 granted' },
    ...{ wrongSecretCode: '400 invalid_client', withdrawn: '400 invalid_grant', oldAccess: 'lives' },
    ...{ codeTwice: 'first lives', revokedAccess: null, revokedRefresh: null },
    ...{ expired: ['401 empty', /^error=invalid_request/], longerCallback: 'sign-in 200' },
    ...{ unknownScope: 'sign-in 200', refusal: 'consent_required' },
  },
  glewlwyd: {
    ...{ unknown: '400 empty', wrongSecret: '400 empty', used: '200 granted', withdrawn: '400 empty' },
    ...{ wrongSecretCode: '403 unauthorized_client', oldAccess: 'lives', codeTwice: 'first lives' },
    ...{ revokedAccess: 'refresh lives', revokedRefresh: 'access lives' },
    ...{ expired: ['401 empty', /^$/], longerCallback: 'request 403' },
    ...{ unknownScope: 'sign-in invalid_scope', refusal: '200' },
  },
  'oidc-provider': {
    ...{ unknown: '400 invalid_grant', wrongSecret: '401 invalid_client', used: '200 granted' },
    ...{ wrongSecretCode: '401 invalid_client', withdrawn: '400 invalid_grant', oldAccess: 'lives' },
    ...{ codeTwice: 'first ends', revokedAccess: 'refresh ends', revokedRefresh: 'access ends' },
    ...{ expired: ['401 invalid_token', /error="invalid_token"/], longerCallback: 'request 400' },
    ...{ unknownScope: 'sign-in access_denied', refusal: 'access_denied' },
  },
  'node-oauth2-server': {
    ...{ unknown: '400 invalid_grant', wrongSecret: '400 invalid_client', used: '400 invalid_grant' },
    ...{ wrongSecretCode: '400 invalid_client', withdrawn: '400 invalid_grant', oldAccess: 'lives' },
    ...{ codeTwice: 'first lives', revokedAccess: null, revokedRefresh: null },
    ...{ expired: ['401 empty', /error="invalid_token"/], longerCallback: 'request 400' },
    ...{ unknownScope: 'request invalid_scope', refusal: 'access_denied' },
  },
  oauth2orize: {
    ...{ unknown: '403 invalid_grant', wrongSecret: '401 text', used: '403 invalid_grant' },
    ...{ wrongSecretCode: '401 text', withdrawn: '403 invalid_grant', oldAccess: 'lives' },
    ...{ codeTwice: 'first lives', revokedAccess: null, revokedRefresh: null },
    ...{ expired: ['401 empty', /^$/], longerCallback: 'request 403' },
    ...{ unknownScope: 'granted no-such-scope', refusal: 'access_denied' },
  },
  keycloak: {
    ...{ unknown: '400 invalid_grant', wrongSecret: '401 unauthorized_client', used: '200 granted' },
    ...{ wrongSecretCode: '401 unauthorized_client', withdrawn: '400 invalid_grant', oldAccess: 'lives' },
    ...{ codeTwice: 'first ends', revokedAccess: 'refresh lives', revokedRefresh: 'access ends' },
    ...{ expired: ['401 empty', /error="invalid_token"/], longerCallback: 'request 400' },
    ...{ unknownScope: 'request invalid_scope', refusal: 'access_denied' },
  },
  hydra: {
    ...{ unknown: '400 invalid_grant', wrongSecret: '401 invalid_client', used: '400 invalid_grant' },
    ...{ wrongSecretCode: '401 invalid_client', withdrawn: '400 invalid_grant', oldAccess: 'ends' },
    ...{ codeTwice: 'first ends', revokedAccess: 'refresh ends', revokedRefresh: 'access ends' },
    ...{ expired: ['401 invalid_token', /error="invalid_token"/], longerCallback: 'request 500' },
    ...{ unknownScope: 'request invalid_scope', refusal: 'access_denied' },
  },
  'spring-authorization-server': {
    ...{ unknown: '400 invalid_grant', wrongSecret: '401 invalid_client', used: '200 granted' },
    ...{ wrongSecretCode: '401 invalid_client', withdrawn: '400 invalid_grant', oldAccess: 'ends' },
    ...{ codeTwice: 'first ends', revokedAccess: 'refresh lives', revokedRefresh: 'access ends' },
    ...{ expired: ['401 empty', /error="invalid_token"/], longerCallback: 'sign-in 500' },
    ...{ unknownScope: 'request invalid_scope', refusal: 'access_denied' },
  },
  'django-oauth-toolkit-3': {
    ...{ unknown: '400 invalid_grant', wrongSecret: '401 invalid_client', used: '400 invalid_grant' },
    ...{ wrongSecretCode: '401 invalid_client', withdrawn: '400 invalid_grant', oldAccess: 'ends' },
    ...{ codeTwice: 'first lives', revokedAccess: 'refresh ends', revokedRefresh: 'access ends' },
    ...{ expired: ['403 empty', /^$/], longerCallback: 'sign-in 400' },
    ...{ unknownScope: 'sign-in invalid_scope', refusal: 'access_denied' },
  },
  authlib: {
    ...{ unknown: '400 invalid_grant', wrongSecret: '401 invalid_client', used: '400 invalid_grant' },
    ...{ wrongSecretCode: '401 invalid_client', withdrawn: '400 invalid_grant', oldAccess: 'ends' },
    ...{ codeTwice: 'first lives', revokedAccess: 'refresh ends', revokedRefresh: 'access ends' },
    ...{ expired: ['401 invalid_token', /error="invalid_token"/], longerCallback: 'request 400' },
    ...{ unknownScope: 'granted ', refusal: 'access_denied' },
  },
  canaille: {
    ...{ unknown: '400 invalid_grant', wrongSecret: '401 invalid_client', used: '400 invalid_grant' },
    ...{ wrongSecretCode: '401 invalid_client', withdrawn: '400 invalid_grant', oldAccess: 'ends' },
    ...{ codeTwice: 'first lives', revokedAccess: 'refresh ends', revokedRefresh: 'access ends' },
    ...{ expired: ['401 invalid_token', /error="invalid_token"/], longerCallback: 'sign-in 400' },
    ...{ unknownScope: 'granted ', refusal: 'access_denied' },
  },
  dex: {
    ...{ unknown: '400 invalid_request', wrongSecret: '401 invalid_client', used: '400 invalid_request' },
    ...{ wrongSecretCode: '401 invalid_client', withdrawn: '400 invalid_request', oldAccess: 'lives' },
    ...{ codeTwice: 'first lives', revokedAccess: null, revokedRefresh: null },
    ...{ expired: ['403 access_denied', /^$/], longerCallback: 'page 400' },
    ...{ unknownScope: 'page invalid_scope', refusal: '500' },
  },
}

const VERIFIER = 'a-verifier-of-more-than-forty-three-characters-00'
const MOST_STEPS = 4

t.test('every measured server has a profile', async (t) => {
  t.strictSame(Object.keys(PROFILES).sort(), Object.keys(FACTS).sort())
  for (const { version, measuredOn } of Object.values(PROFILES)) {
    t.match(version, /^\d+\.\d+\.\d+$/)
    t.match(measuredOn, /^\d{4}-\d{2}-\d{2}$/)
  }
})

for (const [name, facts] of Object.entries(FACTS)) {
  t.test(`the profile ${name} answers as it was measured`, async (t) => {
    const client = await clientOf(t, name)
    const { sandbox, signIn, refresh, said } = client

    t.equal(await said(refresh('never-issued')), facts.unknown)
    t.equal(await said(refresh('never-issued', { client_secret: 'wrong' })), facts.wrongSecret)
    const code = { grant_type: 'authorization_code', code: 'never-issued', redirect_uri: CLIENT.callback }
    t.equal(await said(client.ask({ ...code, client_secret: 'wrong' })), facts.wrongSecretCode)

    const first = await signIn()
    const second = await tokensOf(await refresh(first.refresh_token))
    t.equal((await getFlux(sandbox, second.access_token)).status, 200)
    t.equal(await lives(sandbox, first.access_token), facts.oldAccess === 'lives', 'the old access token')

    const third = await signIn()
    t.ok((await refresh(third.refresh_token)).ok)
    t.equal(await said(refresh(third.refresh_token)), facts.used)

    const withdrawn = await signIn()
    sandbox.revokeAll()
    t.equal(await said(refresh(withdrawn.refresh_token)), facts.withdrawn)

    const used = await client.code()
    const tokens = await tokensOf(await client.redeem(used))
    t.notOk((await client.redeem(used)).ok)
    t.equal(await lives(sandbox, tokens.access_token), facts.codeTwice === 'first lives')

    const expiring = await signIn()
    sandbox.expireAccessTokens()
    const refused = await getFlux(sandbox, expiring.access_token)
    t.match(refused.headers.get('www-authenticate') ?? '', facts.expired[1])
    t.equal(await said(Promise.resolve(refused)), facts.expired[0])

    await t.test('revocation', async (t) => {
      const { revoke } = client.paths
      if (revoke === null) return t.equal(facts.revokedAccess, null)
      const one = await signIn()
      t.equal((await client.ask({ token: one.access_token }, revoke)).status, 200)
      t.notOk(await lives(sandbox, one.access_token))
      t.equal((await refresh(one.refresh_token)).ok, facts.revokedAccess === 'refresh lives')
      const other = await signIn()
      t.equal((await client.ask({ token: other.refresh_token ?? '' }, revoke)).status, 200)
      t.notOk((await refresh(other.refresh_token)).ok)
      t.equal(await lives(sandbox, other.access_token), facts.revokedRefresh === 'access lives')
      t.equal((await client.ask({ token: 'never-issued' }, revoke)).status, 200)
    })

    t.equal(await client.refusedAt({ redirect_uri: `${CLIENT.callback}/longer` }), facts.longerCallback)
    t.equal(await client.refusedAt({ scope: 'no-such-scope' }), facts.unknownScope)
    t.equal((await client.walk({}, 'refuse')).end, facts.refusal)
  })
}

t.test(
  'the profile keycloak sends no Date, and Django\u2019s addresses without their slash are redirected',
  async (t) => {
    const keycloak = await clientOf(t, 'keycloak')
    t.equal((await keycloak.refresh('never-issued')).headers.get('date'), null)
    const django = await clientOf(t, 'django-oauth-toolkit-3')
    const answer = await django.ask({ grant_type: 'refresh_token' }, '/o/token')
    t.equal(answer.status, 301)
    t.equal(answer.headers.get('location'), '/o/token/')
  },
)

t.test(
  'a used refresh token is granted again within the grace of the server, with its own tokens',
  async (t) => {
    let now = Date.now()
    for (const [name, isSame] of [
      ['django-oauth-toolkit-3', true],
      ['hydra', false],
      ['dex', false],
    ] as const) {
      const { faults = {} } = PROFILES[name]!.kept!
      const client = await clientOf(t, name, { faults, now: () => now })
      const { refresh_token } = await client.signIn()
      const first = await tokensOf(await client.refresh(refresh_token))
      now += 1_000
      const second = await tokensOf(await client.refresh(refresh_token))
      t.equal(first.access_token === second.access_token, isSame, name)
      now += 200_000
      t.notOk((await client.refresh(refresh_token)).ok, 'not after it')
    }
  },
)

t.test('a sign-in at Dex ends the refresh token of the one before, and not its access token', async (t) => {
  const client = await clientOf(t, 'dex')
  const first = await client.signIn()
  await client.signIn()
  t.ok(await lives(client.sandbox, first.access_token))
  t.equal(await client.said(client.refresh(first.refresh_token)), '400 invalid_request')
  const other = await client.signIn()
  client.sandbox.revokeUser('alice', 'account deleted')
  t.equal(await client.said(client.refresh(other.refresh_token)), '500 invalid_request')
})

t.test('a sign-out at the server leads back to the origin of the callback, and to no other', async (t) => {
  const { sandbox, paths } = await clientOf(t, 'keycloak')
  const { clientId: client_id } = CLIENT
  const home = new URL('/', CLIENT.callback).href
  const signOut = async (query: Record<string, string>) => {
    const url = `${sandbox.url}${paths.endSession}?${new URLSearchParams(query)}`
    const { status, headers } = await fetch(url, { redirect: 'manual' })
    return [status, headers.get('location')]
  }
  t.strictSame(await signOut({ client_id, post_logout_redirect_uri: home }), [302, home])
  for (const query of [
    { client_id },
    { client_id, post_logout_redirect_uri: 'http://other.example/' },
    { client_id, post_logout_redirect_uri: 'javascript:alert(1)' },
    { client_id: 'other', post_logout_redirect_uri: home },
  ])
    t.strictSame(await signOut(query), [200, null], JSON.stringify(query))
})

t.test('with its database away a server answers as it was measured', async (t) => {
  for (const [name, refreshed, revoked] of [
    ['keycloak', '500 unknown_error', '500 unknown_error'],
    ['hydra', '401 invalid_client', '200 empty'],
    ['spring-authorization-server', '302 empty', '302 empty'],
  ] as const) {
    const client = await clientOf(t, name)
    const { refresh_token } = await client.signIn()
    client.sandbox.faults.set({ database: 'away' })
    t.equal(await client.said(client.refresh(refresh_token)), refreshed)
    t.equal(await client.said(client.ask({ token: refresh_token ?? '' }, client.paths.revoke!)), revoked)
    client.sandbox.faults.set({ database: 'there' })
    t.ok((await client.refresh(refresh_token)).ok, 'nothing was done')
  }
})

async function lives(sandbox: Sandbox, accessToken: string): Promise<boolean> {
  return (await getFlux(sandbox, accessToken)).ok
}

/** A client of this profile, with the environment that it advises. */
async function clientOf(t: Test, name: string, options: Parameters<typeof startSandbox>[1] = {}) {
  const profile = PROFILES[name]!
  const sandbox = await startSandbox(t, { profile, ...options })
  const { paths } = profile
  const env = environmentFor(profile, sandbox.url)
  t.strictSame(sandbox.env, env)
  const isBasic = env.OAUTH_CLIENT_AUTH === 'basic'

  function ask(form: Record<string, string>, path = paths.token): Promise<Response> {
    const { clientId, clientSecret } = CLIENT
    const { client_secret = clientSecret, ...fields } = form
    const encode = (text: string) => new URLSearchParams({ x: text }).toString().slice(2)
    const pair = Buffer.from(`${encode(clientId)}:${encode(client_secret)}`).toString('base64')
    const sent = isBasic ? fields : { ...fields, client_id: clientId, client_secret }
    return fetch(sandbox.url + path, {
      method: 'POST',
      body: new URLSearchParams(sent),
      headers: isBasic ? { authorization: `Basic ${pair}` } : {},
      redirect: 'manual',
    })
  }

  /** Follows the redirects of the sign-in. `end`: the parameters of the callback, the error there, or the status of a page. */
  async function walk(changes: Record<string, string> = {}, decision = 'accept') {
    const url = new URL(sandbox.url + paths.authorize)
    const query = {
      client_id: CLIENT.clientId,
      response_type: 'code',
      redirect_uri: CLIENT.callback,
      scope: env.OAUTH_SCOPE!,
      state: 'the-state',
      code_challenge: createHash('sha256').update(VERIFIER).digest('base64url'),
      code_challenge_method: 'S256',
      ...Object.fromEntries(new URLSearchParams(env.OAUTH_AUTHORIZE_PARAMS ?? '')),
      ...changes,
    }
    for (const [key, value] of Object.entries(query)) url.searchParams.set(key, value)
    let at = url.href
    for (let step = 0; step < MOST_STEPS; step += 1) {
      const stage = step === 0 ? 'request' : 'page'
      const shown = await fetch(at, { redirect: 'manual' })
      const location = shown.headers.get('location')
      if (location?.startsWith(CLIENT.callback)) return back(stage, location)
      if (location !== null) at = new URL(location, at).href
      else if (shown.ok && (await shown.text()).includes('name="decision"')) break
      else
        return {
          stage: location === null && step > 0 && !at.includes('/sign-in') ? 'request' : stage,
          end: String(shown.status),
          params: null,
        }
    }
    const body = new URLSearchParams({ username: 'alice', password: 'wonderland', decision })
    const decided = await fetch(at, { method: 'POST', body, redirect: 'manual' })
    const location = decided.headers.get('location')
    return location === null
      ? { stage: 'sign-in', end: String(decided.status), params: null }
      : back('sign-in', location)
  }

  function back(stage: string, location: string) {
    const params = new URL(location).searchParams
    return { stage, end: params.get('error') ?? 'granted', params }
  }

  const code = async (changes = {}): Promise<string> => (await walk(changes)).params?.get('code') ?? ''
  const redeem = (presented: string): Promise<Response> =>
    ask({
      grant_type: 'authorization_code',
      redirect_uri: CLIENT.callback,
      code: presented,
      code_verifier: VERIFIER,
    })

  return {
    sandbox,
    paths,
    ask,
    walk,
    code,
    redeem,
    signIn: async () => await tokensOf(await redeem(await code())),
    refresh: (token: string | undefined, more: Record<string, string> = {}) =>
      ask({ grant_type: 'refresh_token', refresh_token: token ?? '', ...more }),
    async said(asked: Promise<Response>): Promise<Said> {
      const answer = await asked
      if (answer.status === 200 && (await answer.clone().text()) !== '') return '200 granted'
      const text = await answer.clone().text()
      if (text === '') return `${answer.status} empty`
      const isJson = (answer.headers.get('content-type') ?? '').includes('json')
      return `${answer.status} ${isJson ? await errorOf(answer) : 'text'}`
    },
    /** The step of the sign-in that refuses this request, and how. */
    async refusedAt(changes: Record<string, string>): Promise<string> {
      const { stage, end, params } = await walk(changes)
      if (end !== 'granted') return `${stage} ${end}`
      const { scope = '' } = await tokensOf(await redeem(params?.get('code') ?? ''))
      return `granted ${scope}`
    },
  }
}
