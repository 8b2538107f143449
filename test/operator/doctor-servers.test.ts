import t, { type Test } from 'tap'
import { checkClient } from '../../operator/check-client.ts'
import { checkSignInPage } from '../../operator/check-sign-in.ts'
import type { Finding } from '../../operator/report.ts'
import type { Faults } from '../../sandbox/faults.ts'
import { PROFILES } from '../../sandbox/profiles.ts'
import { parseConfig } from '../../src/config/config.ts'
import { CLIENT, platformEnv, startSandbox } from '../helpers/system.ts'
import { type Env, SESSION_SECRET } from './run.ts'

const PUBLIC_URL = 'http://localhost:3999'

/** What the doctor says of a set-up that is right but for one thing: its finding, or that it cannot see this before a sign-in. */
type Cell = 'client' | 'sign-in page' | 'issuer' | 'checks nothing' | 'not seen'

interface Row {
  /** Whether client and callback are proven without a sign-in. */
  proven: boolean
  wrongSecret: Cell
  wrongScope: Cell
  wrongCallback: Cell
  /** Only where its address ends in a slash. */
  missingSlash?: Cell
  wrongIssuer: Cell
}

const BEFORE = { wrongSecret: 'client', wrongScope: 'sign-in page', wrongCallback: 'sign-in page' } as const
const AFTER = { wrongSecret: 'client', wrongScope: 'not seen', wrongCallback: 'not seen' } as const
const MATRIX: Record<string, Row> = {
  'django-oauth-toolkit': { proven: false, ...AFTER, missingSlash: 'client', wrongIssuer: 'not seen' },
  'django-oauth-toolkit-3': { proven: false, ...AFTER, missingSlash: 'client', wrongIssuer: 'not seen' },
  doorkeeper: { proven: false, ...AFTER, wrongIssuer: 'not seen' },
  'lemonldap-ng': { proven: false, ...AFTER, wrongIssuer: 'not seen' },
  glewlwyd: { proven: true, ...BEFORE, wrongIssuer: 'not seen' },
  'oidc-provider': { proven: true, ...BEFORE, wrongIssuer: 'issuer' },
  'node-oauth2-server': { proven: true, ...BEFORE, wrongIssuer: 'not seen' },
  oauth2orize: { proven: false, ...BEFORE, wrongScope: 'not seen', wrongIssuer: 'not seen' },
  keycloak: { proven: true, ...BEFORE, wrongIssuer: 'issuer' },
  hydra: { proven: true, ...BEFORE, wrongIssuer: 'checks nothing' },
  'spring-authorization-server': {
    proven: true,
    ...BEFORE,
    wrongCallback: 'not seen',
    wrongIssuer: 'not seen',
  },
  authlib: { proven: false, ...BEFORE, wrongScope: 'not seen', wrongIssuer: 'not seen' },
  dex: { proven: true, ...BEFORE, wrongIssuer: 'not seen' },
}

async function examineAt(t: Test, name: string, faults: Partial<Faults> = {}) {
  const profile = PROFILES[name]!
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
    async examine(change: Env = {}): Promise<Finding[]> {
      const parsed = parseConfig({ ...right, ...change })
      if (!parsed.ok) throw new Error(parsed.faults.join('\n'))
      const page = await checkSignInPage(parsed.config)
      return [...(await checkClient(parsed.config)), ...(page?.findings ?? [])]
    },
  }
}

/** The checks that report this verdict. */
function named(findings: readonly Finding[], verdict: Finding['verdict']): string[] {
  return findings.filter((finding) => finding.verdict === verdict).map(({ check }) => check)
}

t.test('the matrix has every profile', async (t) => {
  t.strictSame(Object.keys(MATRIX).sort(), Object.keys(PROFILES).sort())
})

for (const [name, row] of Object.entries(MATRIX)) {
  t.test(`the doctor tells the truth at ${name}`, async (t) => {
    const { examine, right } = await examineAt(t, name)
    const wellSet = await examine()
    t.strictSame([...named(wellSet, 'fault'), ...named(wellSet, 'warning')], [], JSON.stringify(wellSet))
    const page = wellSet.find(({ check }) => check === 'sign-in page')
    t.match(page?.message, row.proven ? /accepts this client and callback/ : /not proven/)
    t.match(wellSet[0], { check: 'client', message: /refuses another secret/ })

    const cases: [change: Env, cell: Cell | undefined, words: RegExp][] = [
      [{ CLIENT_SECRET: 'wrong-secret' }, row.wrongSecret, /CLIENT_SECRET/],
      [{ OAUTH_SCOPE: 'no-such-scope' }, row.wrongScope, /OAUTH_SCOPE/],
      [{ OAUTH_REDIRECT: 'per-login' }, row.wrongCallback, /OAUTH_REDIRECT=fixed/],
      [{ OAUTH_TOKEN_URL: right.OAUTH_TOKEN_URL?.replace(/\/$/, '') ?? '' }, row.missingSlash, /slash/],
      [{ OAUTH_ISSUER: 'https://other.example' }, row.wrongIssuer, /OAUTH_ISSUER/],
    ]
    for (const [change, cell, words] of cases) {
      if (cell === undefined) continue
      const findings = await examine(change)
      const what = `${JSON.stringify(change)}: ${JSON.stringify(findings)}`
      const faults = named(findings, 'fault')
      if (cell === 'not seen') t.strictSame(faults, [], what)
      else if (cell === 'checks nothing') t.strictSame(named(findings, 'warning'), ['issuer'], what)
      else {
        t.ok(faults.includes(cell), what)
        t.match(findings.find(({ check }) => check === cell)?.message, words)
      }
    }
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
  },
)
