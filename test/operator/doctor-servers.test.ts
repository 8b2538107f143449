import t, { type Test } from 'tap'
import type { Faults } from '../../sandbox/faults.ts'
import type { Profile } from '../../sandbox/profile.ts'
import { PROFILES } from '../../sandbox/profiles.ts'
import { examine, holdMatrix, MATRIX } from '../helpers/servers/doctor.ts'
import { CLIENT, platformEnv, startSandbox } from '../helpers/system.ts'
import { type Env, SESSION_SECRET } from './run.ts'

const PUBLIC_URL = 'http://localhost:3999'

async function examineAt(
  t: Test,
  name: string,
  faults: Partial<Faults> = {},
  answers: Profile['answers'] = {},
) {
  const known = PROFILES[name]!
  const profile = { ...known, answers: { ...known.answers, ...answers } }
  const client = { ...CLIENT, callback: `${PUBLIC_URL}/auth/callback` }
  const sandbox = await startSandbox(t, { profile, client, faults })
  const right: Env = {
    PUBLIC_URL,
    ...platformEnv(sandbox),
    ...sandbox.env,
    SESSION_SECRET,
    SESSION_STORE: 'memory',
  }
  return {
    sandbox,
    right,
    examine: (change: Env = {}) => examine({ ...right, ...change }),
  }
}

t.test('the matrix has every profile', async (t) => {
  t.strictSame(Object.keys(MATRIX).sort(), Object.keys(PROFILES).sort())
})

for (const [name, row] of Object.entries(MATRIX)) {
  t.test(`the doctor tells the truth at ${name}`, async (t) => {
    const { examine, right } = await examineAt(t, name)
    await holdMatrix(t, row, { right, examine })
  })
}

t.test('one wrong secret is presented in a run, and no more', async (t) => {
  const { sandbox, examine } = await examineAt(t, 'keycloak')
  await examine()
  const outcomes = sandbox.journal.entries({ endpoint: 'token' }).map(({ outcome }) => outcome)
  t.strictSame(outcomes, ['invalid_grant', 'invalid_grant', 'invalid_client'])
})

t.test('a public client, which takes any secret, is no proof of CLIENT_SECRET', async (t) => {
  const { examine } = await examineAt(t, 'keycloak', { publicClient: true })
  t.match((await examine())[0], { verdict: 'warning', message: /not proven.*public client/ })
})

t.test('a client that may use no Basic, or nothing but it, is named with its method', async (t) => {
  const hydra = await examineAt(t, 'hydra', { clientAuth: 'basic' })
  t.match((await hydra.examine())[0], {
    verdict: 'fault',
    message: /not registered for client_secret_post there/,
    setting: 'OAUTH_CLIENT_AUTH=basic',
  })
  t.match((await hydra.examine({ OAUTH_CLIENT_AUTH: 'basic' }))[0], { verdict: 'ok' })
})

t.test(
  'a server that takes the secret in the body for a code alone is found at each other endpoint',
  async (t) => {
    const { examine } = await examineAt(t, 'authlib')
    const findings = await examine({ OAUTH_CLIENT_AUTH: 'post' })
    t.match(
      findings.filter(({ verdict }) => verdict === 'fault'),
      [
        { check: 'client', message: /refused for a refresh/, setting: 'OAUTH_CLIENT_AUTH=basic' },
        {
          check: 'revocation',
          message: /refused at OAUTH_REVOCATION_URL/,
          setting: 'OAUTH_CLIENT_AUTH=basic',
        },
      ],
    )
  },
)

t.test(
  'a client that is refused for a code and accepted at the revocation has a wrong callback',
  async (t) => {
    const refusal = { status: 403, body: { error: 'unauthorized_client' } }
    const { examine } = await examineAt(t, 'glewlwyd', {}, { 'code: unknown': refusal })
    const findings = await examine()
    t.match(findings[0], { verdict: 'fault', message: /check the registered callback first/ })
    t.match(findings[1], { check: 'revocation', verdict: 'ok' })
    t.match((await examine({ OAUTH_REVOCATION_URL: '' }))[0], {
      message: /CLIENT_SECRET or CLIENT_ID is wrong/,
    })
  },
)

t.test('a page to sign in on that is not there is not called a wrong client', async (t) => {
  const { examine } = await examineAt(t, 'dex', {}, { 'authorize: callback': { status: 404 } })
  const findings = await examine({ OAUTH_REDIRECT: 'per-login' })
  const page = findings.find(({ check }) => check === 'sign-in page')
  t.match(page, { verdict: 'fault', message: /redirects to \/\S+, where it has no page \(status 404\)/ })
  t.notMatch(page?.message, /CLIENT_ID/)
})

t.test('an answer to prompt=none that any callback gets proves no callback', async (t) => {
  const { examine } = await examineAt(t, 'oidc-provider', { promptNone: 'refuse-anywhere' })
  const findings = await examine()
  t.match(findings.find(({ check }) => check === 'sign-in page')?.message, /not proven/)
})

t.test('what a server objects to only after a sign-in is found by prompt=none', async (t) => {
  const { examine } = await examineAt(t, 'canaille')
  const page = async (env: Env) =>
    (await examine({ OAUTH_AUTHORIZE_PARAMS: '', ...env })).find(({ check }) => check === 'sign-in page')
  t.match(await page({}), {
    verdict: 'warning',
    message:
      /when nobody signs in \(invalid_request, "Missing 'nonce' in request."\).*may end with that error.*needs a nonce/,
    setting: 'OAUTH_AUTHORIZE_PARAMS=nonce={random}',
  })
  t.match(await page({ OAUTH_AUTHORIZE_PARAMS: 'a=b' }), { message: /add nonce=\{random\}/, setting: null })
  t.match(await page({ OAUTH_AUTHORIZE_PARAMS: 'nonce={random}' }), {
    verdict: 'ok',
    message: /accepts this client and callback/,
  })
})

t.test('a method that one endpoint alone takes is not advised for all', async (t) => {
  const { examine } = await examineAt(t, 'authlib', { clientAuth: 'post-for-tokens' })
  t.match(
    (await examine({ OAUTH_CLIENT_AUTH: 'post' })).filter(({ verdict }) => verdict === 'fault'),
    [{ check: 'revocation', message: /or register the client for client_secret_basic/, setting: null }],
  )
})

t.test('a revocation address that is wrong, or lacks its slash, is a fault', async (t) => {
  const { examine, sandbox } = await examineAt(t, 'django-oauth-toolkit-3')
  for (const [path, words] of [
    ['/o/revoke_token', /slash at its end/],
    ['/o/revoked/', /live on after a sign-out \(the response was 404.*OAUTH_REVOCATION_URL/],
  ] as const) {
    const findings = await examine({ OAUTH_REVOCATION_URL: `${sandbox.authUrl}${path}` })
    t.match(findings[1], { check: 'revocation', verdict: 'fault', message: words })
  }
})

t.test(
  'an authorization endpoint that lacks its slash is found before its redirect is followed',
  async (t) => {
    const { examine, sandbox } = await examineAt(t, 'django-oauth-toolkit')
    for (const query of ['', '?audience=x']) {
      const findings = await examine({ OAUTH_AUTHORIZE_URL: `${sandbox.authUrl}/o/authorize${query}` })
      t.match(
        findings.filter(({ verdict }) => verdict !== 'ok'),
        [
          {
            ...{ check: 'sign-in page', verdict: 'fault', message: /same address with a slash at its end/ },
            setting: `OAUTH_AUTHORIZE_URL=${sandbox.authUrl}/o/authorize/${query}`,
          },
        ],
      )
    }
  },
)

t.test('a client without the code flow is sound where OAUTH_FLOWS has no code', async (t) => {
  const refusal = { status: 400, body: { error: 'unauthorized_client' } }
  const application = { OAUTH_FLOWS: 'client', CLIENT_FLUX_ALLOWED: '*' }
  const both = await examineAt(t, 'keycloak', {}, { 'code: unknown': refusal, 'refresh: unknown': refusal })
  const proven = { verdict: 'ok', message: /refuses another secret/ }
  t.match((await both.examine(application))[0], proven)
  t.match((await both.examine({ ...application, CLIENT_SECRET: 'wrong-secret' }))[0], {
    verdict: 'fault',
    message: /CLIENT_SECRET or CLIENT_ID is wrong/,
  })
  t.match((await both.examine({ OAUTH_FLOWS: 'password' }))[0], {
    verdict: 'fault',
    message: /may not use refresh tokens/,
  })
  t.match((await both.examine())[0], { verdict: 'fault', message: /may not use the code flow/ })
  const code = await examineAt(t, 'keycloak', {}, { 'code: unknown': refusal })
  t.match((await code.examine({ OAUTH_FLOWS: 'password' }))[0], proven)
})

t.test('PKCE that is off where the server demands it is found where it can be', async (t) => {
  const spring = await examineAt(t, 'spring-authorization-server')
  t.match((await spring.examine({ OAUTH_PKCE: 'off' })).at(-1), {
    check: 'sign-in page',
    verdict: 'fault',
    message: /invalid_request.*code_challenge.*remove OAUTH_PKCE=off/,
  })
})

t.test(
  'a server whose database is away is called failing, or its client refused, and its callback is not blamed',
  async (t) => {
    const { examine } = await examineAt(t, 'keycloak', { database: 'away' })
    t.match((await examine())[0], { verdict: 'fault', message: /the token endpoint fails.*500/ })
    const hydra = await examineAt(t, 'hydra', { database: 'away' })
    t.match((await hydra.examine())[0], {
      verdict: 'fault',
      message: /cannot look it up now: check its health first/,
    })
    for (const name of Object.keys(PROFILES)) {
      const { examine } = await examineAt(t, name, { database: 'away' })
      const findings = await examine()
      t.match(findings[0], { check: 'client', verdict: 'fault' }, name)
      for (const finding of findings.slice(1)) {
        t.not(finding.verdict, 'fault', `${name}: ${finding.message}`)
        t.equal(finding.setting, null)
      }
    }
  },
)

t.test('an error page blames the callback only where the token endpoint accepts the client', async (t) => {
  const { examine } = await examineAt(t, 'hydra')
  const page = async (change: Env) => (await examine(change)).find(({ check }) => check === 'sign-in page')
  t.match(await page({ CLIENT_ID: 'other' }), {
    verdict: 'warning',
    message: /proves nothing/,
    setting: null,
  })
  t.match(await page({ OAUTH_REDIRECT: 'per-login' }), { verdict: 'fault', setting: 'OAUTH_REDIRECT=fixed' })
})
