import { randomUUID } from 'node:crypto'
import { SYSTEM_CLOCK } from '../src/clock.ts'
import type { Config } from '../src/config/config.ts'
import { copyFault } from '../src/config/secrets.ts'
import { type AuthorizationClient, createAuthorizationClient } from '../src/oauth/client.ts'
import { redirectUriOf } from '../src/oauth/redirect-uri.ts'
import type { TokenOutcome } from '../src/oauth/token-response.ts'
import { Secret } from '../src/secret.ts'
import { TIMEOUT_MS, unreachable, withSlash } from './http.ts'
import { type Finding, fault, ok, warning } from './report.ts'

const CHECK = 'client'
const TOKEN_VARIABLES = 'AUTH_URL (or OAUTH_TOKEN_URL)'
/** The reason of a revocation that failed: the client. */
const REFUSES_CLIENT = /^the response was (?:4\d\d invalid_client|401)/

/** What an endpoint says to something that it never issued, without a session at the platform. */
interface Said {
  readonly kind: 'granted' | 'client' | 'grant' | 'unreachable' | 'failing' | 'elsewhere'
  /** For a person: status and code, or why nothing came. */
  readonly reason: string
  /** Status and error code, to compare two answers; null: there was no answer. */
  readonly words: string | null
  readonly description: string | null
}

export interface ClientCheck {
  readonly findings: readonly Finding[]
  /** The token endpoint takes the client, so that another refusal has a cause of its own. */
  readonly isAccepted: boolean
}

/**
 * Presents a code, a refresh token and a token to revoke that cannot exist, and once a secret that is wrong. The three
 * endpoints must agree about the client (a server may take the secret in the body for a code and by Basic for the
 * rest), and the wrong secret must get another answer than the right one.
 */
export async function checkClient(
  config: Pick<Config, 'oauth' | 'egress' | 'publicUrl'>,
): Promise<ClientCheck> {
  const { oauth, egress } = config
  const opened: AuthorizationClient[] = []
  const as = (change: Partial<Pick<Config['oauth'], 'clientSecret' | 'clientAuth'>>): AuthorizationClient => {
    const server = createAuthorizationClient({
      oauth: { ...oauth, ...change, tokenTimeoutMs: Math.min(oauth.tokenTimeoutMs, TIMEOUT_MS) },
      egress,
      concurrency: 1,
      clock: SYSTEM_CLOCK,
    })
    opened.push(server)
    return server
  }
  const client = as({})
  const never = (): string => `doctor-${randomUUID()}`
  const verifier = oauth.pkce ? `${randomUUID()}${randomUUID()}` : null
  const redeem = async (by: AuthorizationClient): Promise<Said> =>
    readOutcome(
      await by.redeemCode({ redirectUri: redirectUriOf(config, randomUUID()), code: never(), verifier }),
    )
  try {
    const code = await redeem(client)
    const lost = whereLost(code, oauth.tokenUrl)
    if (lost !== null) return { findings: [lost], isAccepted: false }
    if (code.kind === 'granted')
      return {
        findings: [
          warning(CHECK, 'the token endpoint grants tokens for a code that cannot exist: check AUTH_URL'),
        ],
        isAccepted: true,
      }
    if (code.kind === 'client') {
      const isAccepted = (await redeem(as({ clientAuth: otherMethod(oauth) }))).kind === 'grant'
      return {
        findings: [isAccepted ? otherWay('here', { oauth, fitsAll: true }) : wrongClient(code, oauth)],
        isAccepted,
      }
    }
    const refresh = readOutcome(
      await client.refresh(new Secret(never()), {
        sendBefore: SYSTEM_CLOCK.monotonic() + TIMEOUT_MS,
        signal: AbortSignal.timeout(TIMEOUT_MS),
      }),
    )
    const wrong = await redeem(as({ clientSecret: new Secret(never()) }))
    const revocation =
      oauth.revocationUrl === null ? null : await client.revoke(new Secret(never()), 'refresh_token')
    if (isUnauthorized(code) && code.words === wrong.words) {
      // glewlwyd says the same to a callback that is not registered.
      const isAccepted = oauth.revocationUrl !== null && revocation === null
      const findings = isAccepted
        ? [wrongCallback(code), judgeRevocation(null, { oauth, fitsAll: false })]
        : [wrongClient(code, oauth)]
      return { findings, isAccepted }
    }
    const isSplit = refresh.kind === 'client' || REFUSES_CLIENT.test(revocation?.reason ?? '')
    // A server that takes only the one here and only the other there has to permit one of them at both.
    const fitsAll = isSplit && (await redeem(as({ clientAuth: otherMethod(oauth) }))).kind === 'grant'
    const findings = [
      judgeClient({ code, refresh, wrong }, { oauth, fitsAll }),
      ...(oauth.revocationUrl === null
        ? []
        : [judgeRevocation(revocation?.reason ?? null, { oauth, fitsAll })]),
    ]
    return { findings, isAccepted: true }
  } finally {
    await Promise.all(opened.map((server) => server.close()))
  }
}

function readOutcome(outcome: TokenOutcome): Said {
  if (outcome.kind === 'granted')
    return { kind: 'granted', reason: 'tokens', words: '200', description: null }
  const { reason, answer } = outcome
  if (answer === undefined) {
    const isAnswer = reason.startsWith('the response was')
    return { kind: isAnswer ? 'elsewhere' : 'unreachable', reason, words: null, description: null }
  }
  const { status, code, isEmpty, description } = answer
  const words = `${status} ${code ?? (isEmpty ? 'without a body' : 'without a code')}`
  const said = { reason, words, description }
  if (status === 429 || status >= 500) return { ...said, kind: 'failing' }
  if (status < 400 || status === 404 || status === 405) return { ...said, kind: 'elsewhere' }
  // Keycloak says 401 unauthorized_client for a wrong secret: any 401 is the client.
  return { ...said, kind: status === 401 || code === 'invalid_client' ? 'client' : 'grant' }
}

/** Why these are not the words of a token endpoint that works; null where they are. */
function whereLost({ kind, reason }: Said, tokenUrl: string): Finding | null {
  switch (kind) {
    case 'unreachable': {
      // A text of the egress proxy has parentheses of its own.
      const code = /^[^(]*\((.*)\)/s.exec(reason)?.[1] ?? reason
      return fault(CHECK, unreachable('token endpoint', code, TOKEN_VARIABLES))
    }
    case 'failing':
      return fault(CHECK, `the token endpoint fails (${reason}): ask the platform, then run this again`)
    case 'elsewhere': {
      const slash = missingSlash(reason, tokenUrl, 'OAUTH_TOKEN_URL')
      return fault(
        CHECK,
        slash ?? `this is not a token endpoint (${reason}): check ${TOKEN_VARIABLES}`,
        slash === null ? null : `OAUTH_TOKEN_URL=${withSlash(tokenUrl)}`,
      )
    }
    default:
      return null
  }
}

/** The words for a redirect to the same address with a slash at its end; null for anything else. */
function missingSlash(reason: string, url: string, variable: string): string | null {
  const to = /^the response was 30[178] to (\S+)$/.exec(reason)?.[1]
  return to === `${new URL(url).pathname}/`
    ? `the server redirects to the same address with a slash at its end: set ${variable} with the slash`
    : null
}

function wrongClient({ reason }: Said, oauth: Config['oauth']): Finding {
  const copied = copyFault(oauth.clientSecret.reveal())
  return fault(
    CHECK,
    `the token endpoint refuses the client (${reason.split(':')[0]}): CLIENT_SECRET or CLIENT_ID is wrong${copied === null ? '' : `; CLIENT_SECRET ${copied}`}, or the client is not registered for ${methodOf(oauth.clientAuth)}, or the server cannot look it up now: check its health first`,
  )
}

function isUnauthorized({ words }: Said): boolean {
  return words?.endsWith(' unauthorized_client') === true
}

/** The finding where the revocation endpoint accepts a client that is refused for a code. */
function wrongCallback({ reason }: Said): Finding {
  return fault(
    CHECK,
    `the token endpoint refuses the client or its callback (${reason.split(':')[0]}), and OAUTH_REVOCATION_URL accepts the client: check the registered callback first, then CLIENT_SECRET and CLIENT_ID`,
  )
}

type ClientAuth = Config['oauth']['clientAuth']

function methodOf(clientAuth: ClientAuth): string {
  return `client_secret_${clientAuth}`
}

function otherMethod({ clientAuth }: Config['oauth']): ClientAuth {
  return clientAuth === 'post' ? 'basic' : 'post'
}

interface Asked {
  readonly oauth: Config['oauth']
  /** The other method is accepted for a code, too. */
  readonly fitsAll: boolean
}

/** The finding for an endpoint that takes the secret another way than the server sends it. */
function otherWay(where: string, { oauth, fitsAll }: Asked): Finding {
  const other = otherMethod(oauth)
  const before = where === 'here' ? '' : 'accepted for a code and '
  const remedy = fitsAll
    ? `permit that at the server, or set OAUTH_CLIENT_AUTH=${other}`
    : `permit that at the server, or register the client for client_secret_${other} and set OAUTH_CLIENT_AUTH=${other}`
  return fault(
    CHECK,
    `the client is ${before}refused ${where}, because it is not registered for ${methodOf(oauth.clientAuth)} there: ${remedy}`,
    fitsAll ? `OAUTH_CLIENT_AUTH=${other}` : null,
  )
}

function judgeClient(
  { code, refresh, wrong }: { code: Said; refresh: Said; wrong: Said },
  asked: Asked,
): Finding {
  const { oauth } = asked
  const { flows } = oauth
  // A server that refuses the flow alone has accepted the secret.
  if (isUnauthorized(code) && flows.has('code'))
    return fault(CHECK, 'the client of CLIENT_ID may not use the code flow: permit it at the platform')
  if (refresh.kind === 'client') return otherWay('for a refresh', asked)
  const isRefreshed = flows.has('code') || flows.has('password')
  if (isRefreshed && refresh.words === '400 unauthorized_client')
    return fault(
      CHECK,
      'the client of CLIENT_ID may not use refresh tokens: permit the grant refresh_token at the platform',
    )
  if (code.words !== wrong.words && wrong.words !== null)
    return ok(CHECK, 'the token endpoint accepts CLIENT_ID and CLIENT_SECRET, and refuses another secret')
  return warning(
    CHECK,
    `the token endpoint says the same (${code.reason}) with another secret: CLIENT_SECRET is not proven. A public client takes any secret: register this one as confidential`,
  )
}

/** `failure`: why the revocation of an unknown token failed; null: it succeeded. */
function judgeRevocation(failure: string | null, asked: Asked): Finding {
  const { oauth } = asked
  const check = 'revocation'
  const url = oauth.revocationUrl!
  if (failure === null) return ok(check, 'accepts the client')
  const slash = missingSlash(failure, url, 'OAUTH_REVOCATION_URL')
  if (slash !== null) return fault(check, slash, `OAUTH_REVOCATION_URL=${url}/`)
  if (REFUSES_CLIENT.test(failure)) {
    const { message, setting } = otherWay('at OAUTH_REVOCATION_URL', asked)
    return fault(check, message, setting)
  }
  if (/^the response was 4(?!04|05|29)\d\d/.test(failure)) return ok(check, `accepts the client (${failure})`)
  return fault(
    check,
    `tokens cannot be revoked, so they live on after a sign-out (${failure}): check OAUTH_REVOCATION_URL`,
  )
}
