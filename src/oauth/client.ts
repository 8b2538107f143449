import { createHash, randomBytes } from 'node:crypto'
import {
  allowInsecureRequests,
  authorizationCodeGrant,
  buildAuthorizationUrl,
  ClientSecretBasic,
  ClientSecretPost,
  Configuration,
  type CustomFetch,
  clientCredentialsGrant,
  customFetch,
  genericGrantRequest,
  refreshTokenGrant,
  type ServerMetadata,
  skipStateCheck,
  type TokenEndpointResponse,
  tokenRevocation,
} from 'openid-client'
import type { Clock } from '../clock.ts'
import type { Config } from '../config/config.ts'
import { withParameters } from '../config/oauth.ts'
import type { RedirectFlow } from '../config/variables.ts'
import type { Secret } from '../secret.ts'
import { timeoutSignal } from '../timeout.ts'
import { createTokenFetch, type RequestBounds } from './token-fetch.ts'
import {
  acceptTokens,
  classifyFailure,
  meaningOfRefresh,
  readRevocation,
  readTokens,
  type TokenOutcome,
  USUAL_MEANING,
} from './token-response.ts'

interface AuthorizationRequest {
  responseType: RedirectFlow
  redirectUri: string
  state: string
  /** PKCE verifier (RFC 7636), or null to send no challenge. */
  verifier: string | null
}

interface CodeExchange {
  /** Byte for byte the `redirect_uri` of the authorization request. */
  redirectUri: string
  code: string
  verifier: string | null
}

/** A client of the authorization server. No method rejects. */
export interface AuthorizationClient {
  /** URL of the authorization request (service document, section 5.4, code and token flow step 1). */
  authorizeUrl(request: AuthorizationRequest): string
  /** The code flow, step 2. */
  redeemCode(exchange: CodeExchange): Promise<TokenOutcome>
  /** Any other grant: its `grant_type`, and the parameters of its token request besides `scope`. */
  redeemGrant(grantType: string, parameters: Readonly<Record<string, string | Secret>>): Promise<TokenOutcome>
  /** The client flow: a token of the application's own, without a user. */
  redeemClient(): Promise<TokenOutcome>
  /** Resolves with the response, however late, or when the connection has failed or `signal` has reset it. */
  refresh(
    refreshToken: Secret,
    bounds: Required<RequestBounds>,
    /** The access token that it replaces: no description of an error shows it. */
    accessToken?: Secret,
  ): Promise<TokenOutcome>
  /** RFC 7009, within `withinMs` and the token timeout. null when revoked or when there is no revocation endpoint. */
  revoke(
    token: Secret,
    hint: 'access_token' | 'refresh_token',
    withinMs?: number,
  ): Promise<RevocationFailure | null>
  close(): Promise<void>
}

/** Why a token is not known to be revoked. */
export interface RevocationFailure {
  /** For the log. */
  reason: string
  /** The endpoint refuses this revocation: it would do so again. */
  isDefinite: boolean
}

interface AuthorizationClientOptions {
  oauth: Config['oauth']
  egress: Config['egress']
  /** Refreshes at once for which a caller still waits. */
  concurrency: number
  clock: Clock
  /** Called with the `Date` of each response in epoch milliseconds, and how long the request took. */
  onDate?: (date: number, elapsedMs: number) => void
  /** Called with the body of each response as it came. */
  onBody?: (body: string) => void
  wrapTokenFetch?: WrapTokenFetch | undefined
}

type Unavailable = Extract<TokenOutcome, { kind: 'unavailable' }>

type TokenFetch = ReturnType<ReturnType<typeof createTokenFetch>['within']>

/** Surrounds each token request and revocation, for example with a measurement. */
export type WrapTokenFetch = (inner: TokenFetch) => TokenFetch

/** Connections on top: for late responses, the application's own token and revocations. */
const EXTRA_CONNECTIONS = 64

/** Statuses below 500 that do not say that the same request would fail again. */
const MAY_COME_LATER: ReadonlySet<number> = new Set([408, 425, 429])

/** Token requests of sign-ins at once, over connections of their own: anybody can begin a sign-in. */
export const SIGN_INS_AT_ONCE = 32

const ACCEPTED_BEFORE =
  'the server may be unable to look the client up: it accepted the same credentials until'

/** One request to the authorization server. */
interface Exchange {
  over?: ReturnType<typeof createTokenFetch>
  bounds?: RequestBounds
  read?: typeof readTokens
  hidden?: readonly Secret[]
}

/** A client with its own connections; `close` closes them. */
export function createAuthorizationClient({
  oauth,
  egress,
  concurrency,
  clock,
  onDate = () => {},
  onBody = () => {},
  wrapTokenFetch = (inner) => inner,
}: AuthorizationClientOptions): AuthorizationClient {
  const common = { egress, timeoutMs: oauth.tokenTimeoutMs, monotonic: clock.monotonic, onDate, onBody }
  const tokenFetch = createTokenFetch({ ...common, connections: concurrency + EXTRA_CONNECTIONS })
  const signInFetch = createTokenFetch({ ...common, connections: SIGN_INS_AT_ONCE })
  /** The last time that the token endpoint accepted these credentials. */
  let grantedAt: number | null = null

  /**
   * openid-client's settings for one request, whose response `read` passes on; without `bounds` it has the whole token
   * timeout. No description of an error shows `hidden`, or a secret of the request.
   */
  function configuration({
    over = tokenFetch,
    bounds,
    read = readTokens,
    hidden = [],
  }: Exchange = {}): Configuration {
    const [authorizationEndpoint = ''] = oauth.authorizeUrl.split('?')
    const metadata: ServerMetadata = {
      issuer: oauth.issuer ?? new URL(oauth.authorizeUrl).origin,
      // Its query would be written again with the parameters.
      authorization_endpoint: authorizationEndpoint,
      token_endpoint: oauth.tokenUrl,
      ...(oauth.revocationUrl === null ? {} : { revocation_endpoint: oauth.revocationUrl }),
    }
    const secret = oauth.clientSecret.reveal()
    const authentication = oauth.clientAuth === 'basic' ? ClientSecretBasic(secret) : ClientSecretPost(secret)
    const settings = new Configuration(metadata, oauth.clientId, {}, authentication)
    // openid-client converts seconds back to milliseconds, and 2.01 s gives no whole number.
    settings.timeout = undefined
    const fetchWithin: TokenFetch = (url, options) => over.within(bounds ?? wholeTimeout())(url, options)
    const send = wrapTokenFetch(fetchWithin)
    settings[customFetch] = (async (url, given) => {
      const options = given as Parameters<TokenFetch>[1]
      const known = hidden.map((each) => each.reveal())
      return read(await send(url, options), [secret, ...known, ...secretsIn(options)])
    }) as CustomFetch
    // The configuration has already decided whether plain http is permitted.
    allowInsecureRequests(settings)
    return settings
  }

  function wholeTimeout(timeoutMs: number = oauth.tokenTimeoutMs): RequestBounds {
    return { sendBefore: clock.monotonic() + timeoutMs, signal: timeoutSignal(timeoutMs) }
  }

  async function request(
    grant: () => Promise<TokenEndpointResponse>,
    meaning = USUAL_MEANING,
  ): Promise<TokenOutcome> {
    const requestedAt = clock.wall()
    try {
      const outcome = acceptTokens(await grant(), requestedAt)
      if (outcome.kind === 'granted') grantedAt = requestedAt
      return outcome
    } catch (error) {
      const failure = classifyFailure(error, meaning)
      if (failure.kind !== 'unavailable' || !mayRejectClient(failure)) return failure
      return { ...failure, reason: `${failure.reason}${clientAdvice(grantedAt)}` }
    }
  }

  return {
    authorizeUrl({ responseType, redirectUri, state, verifier }) {
      const url = buildAuthorizationUrl(configuration(), {
        response_type: responseType,
        redirect_uri: redirectUri,
        scope: oauth.scope,
        state,
        ...(verifier === null
          ? {}
          : { code_challenge: challengeOf(verifier), code_challenge_method: 'S256' }),
        ...Object.fromEntries(
          oauth.authorizeParameters.map(({ name, value }) => [name, value ?? random128()]),
        ),
      })
      return withParameters(oauth.authorizeUrl, url.searchParams)
    },

    redeemCode({ redirectUri, code, verifier }) {
      // openid-client sends this URL without its query as redirect_uri. The caller has checked state and issuer,
      // because not every server echoes them.
      const cameBack = new URL(redirectUri)
      cameBack.searchParams.set('code', code)
      return request(() =>
        authorizationCodeGrant(configuration({ over: signInFetch }), cameBack, {
          expectedState: skipStateCheck,
          ...(verifier === null ? {} : { pkceCodeVerifier: verifier }),
        }),
      )
    },

    redeemGrant(grantType, parameters) {
      const fields = Object.entries(parameters).map(([name, value]) => [
        name,
        typeof value === 'string' ? value : value.reveal(),
      ])
      return request(() =>
        genericGrantRequest(configuration({ over: signInFetch }), grantType, {
          ...Object.fromEntries(fields),
          scope: oauth.scope,
        }),
      )
    },

    redeemClient() {
      return request(() => clientCredentialsGrant(configuration(), { scope: oauth.scope }))
    },

    refresh(refreshToken, bounds, accessToken) {
      const hidden = accessToken === undefined ? [] : [accessToken]
      return request(
        () => refreshTokenGrant(configuration({ bounds, hidden }), refreshToken.reveal()),
        meaningOfRefresh(oauth.refusedGrants),
      )
    },

    async revoke(token, hint, withinMs = oauth.tokenTimeoutMs) {
      if (oauth.revocationUrl === null) return null
      const bounds = wholeTimeout(Math.max(0, Math.floor(Math.min(withinMs, oauth.tokenTimeoutMs))))
      try {
        const settings = configuration({ bounds, read: readRevocation })
        await tokenRevocation(settings, token.reveal(), { token_type_hint: hint })
        return null
      } catch (error) {
        const failure = classifyFailure(error)
        const { status = 0 } = failure.answer ?? {}
        return {
          reason: failure.reason,
          isDefinite: status >= 400 && status < 500 && !MAY_COME_LATER.has(status),
        }
      }
    },

    async close() {
      await Promise.all([tokenFetch.close(), signInFetch.close()])
    },
  }
}

/** A bare 401 is about the client at most servers (RFC 6749 section 5.2). */
function mayRejectClient({ rejectsClient, answer }: Unavailable): boolean {
  return rejectsClient === true || (answer?.status === 401 && answer.code === null)
}

/** What to do when the token endpoint rejects this client. */
function clientAdvice(grantedAt: number | null): string {
  return grantedAt === null
    ? ': check CLIENT_ID, CLIENT_SECRET and OAUTH_CLIENT_AUTH'
    : ` (${ACCEPTED_BEFORE} ${new Date(grantedAt).toISOString()})`
}

/** RFC 7636 section 4.2. Not openid-client's: WebCrypto hands one hash to a thread, for more than all else of the response. */
function challengeOf(verifier: string): string {
  return createHash('sha256').update(verifier).digest('base64url')
}

function random128(): string {
  return randomBytes(16).toString('base64url')
}

/** Parameters of a token request or a revocation that no log may show. */
const SECRET_PARAMETERS = [
  'client_secret',
  'code',
  'code_verifier',
  'refresh_token',
  'token',
  'password',
] as const

function secretsIn({ body, headers }: Parameters<TokenFetch>[1]): string[] {
  const form = body instanceof URLSearchParams ? body : new URLSearchParams(String(body))
  const [, credentials = ''] = /^basic (.+)$/i.exec(headers.authorization ?? '') ?? []
  const basic = Buffer.from(credentials, 'base64').toString().split(':')
  return [...SECRET_PARAMETERS.flatMap((name) => form.getAll(name)), credentials, ...basic.slice(1)]
}
