// What the doctor says at each measured server: the same at its profile and at the server itself.

import type { Test } from 'tap'
import { checkClient } from '../../../operator/check-client.ts'
import { checkSignInPage } from '../../../operator/check-sign-in.ts'
import type { Finding } from '../../../operator/report.ts'
import { parseConfig } from '../../../src/config/config.ts'

type Env = Readonly<Record<string, string>>

/** What the doctor says of a set-up that is right but for one thing: its finding, or that it cannot see this before a sign-in. */
type Cell = 'client' | 'sign-in page' | 'issuer' | 'checks nothing' | 'not seen'

export interface Row {
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
export const MATRIX: Readonly<Record<string, Row>> = {
  'django-oauth-toolkit': { proven: false, ...AFTER, missingSlash: 'client', wrongIssuer: 'not seen' },
  'django-oauth-toolkit-3': {
    proven: true,
    ...AFTER,
    missingSlash: 'client',
    wrongIssuer: 'not seen',
  },
  doorkeeper: { proven: false, ...AFTER, wrongIssuer: 'not seen' },
  'lemonldap-ng': { proven: false, ...AFTER, wrongIssuer: 'not seen' },
  glewlwyd: { proven: true, ...BEFORE, wrongScope: 'not seen', wrongIssuer: 'checks nothing' },
  'oidc-provider': { proven: true, ...BEFORE, wrongScope: 'not seen', wrongIssuer: 'issuer' },
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
  canaille: { proven: true, ...AFTER, wrongIssuer: 'checks nothing' },
  dex: { proven: true, ...BEFORE, wrongIssuer: 'not seen' },
}

/** What the doctor finds with this environment, at the authorization server alone. */
export async function examine(env: Env): Promise<Finding[]> {
  const parsed = parseConfig(env)
  if (!parsed.ok) throw new Error(parsed.faults.join('\n'))
  const client = checkClient(parsed.config)
  const page = await checkSignInPage(parsed.config, client)
  return [...(await client).findings, ...(page?.findings ?? [])]
}

/** The checks that report this verdict. */
function named(findings: readonly Finding[], verdict: Finding['verdict']): string[] {
  return findings.filter((finding) => finding.verdict === verdict).map(({ check }) => check)
}

/** Holds a server to its row: the right environment, and each of its mistakes. */
export async function holdMatrix(
  t: Test,
  row: Row,
  { right, examine }: { right: Env; examine: (change?: Env) => Promise<Finding[]> },
): Promise<void> {
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
      if (cell === 'client') t.strictSame(faults, ['client'], what)
      t.match(findings.find(({ check }) => check === cell)?.message, words)
    }
  }
}
