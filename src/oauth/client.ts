import type { CustomFetch, ServerMetadata, TokenEndpointResponse } from 'openid-client'
import {
  allowInsecureRequests,
  authorizationCodeGrant,
  buildAuthorizationUrl,
  ClientSecretPost,
  Configuration,
  calculatePKCECodeChallenge,
  clientCredentialsGrant,
  customFetch,
  genericGrantRequest,
  refreshTokenGrant,
  skipStateCheck,
  tokenRevocation,
} from 'openid-client'
import type { Clock } from '../clock.ts'
import type { Config } from '../config/config.ts'
import type { Secret } from '../secret.ts'
import { acceptTokens } from './accept.ts'
import { createTokenHttp, type RequestBounds } from './token-fetch.ts'
import type { TokenOutcome } from './token-response.ts'
import { classifyFailure } from './token-response.ts'

export interface AuthorizationRequest {
  flow: 'code' | 'token'
  redirectUri: string
  state: string
  /** PKCE verifier (RFC 7636), or null to send no challenge. */
  verifier: string | null
}

export interface PasswordCredentials {
  /** An address of the registered callback's domain, which the service demands here too. */
  redirectUri: string
  username: string
  password: Secret
}

export interface CodeExchange {
  /** Byte for byte the `redirect_uri` of the authorization request. */
  redirectUri: string
  code: string
  verifier: string | null
}

/** The authorization server as this client uses it. No method rejects. */
export interface AuthorizationServer {
  /** Where to send the browser (service document, section 5.4, code and token flow step 1). */
  authorizeUrl(request: AuthorizationRequest): Promise<string>
  redeemCode(exchange: CodeExchange): Promise<TokenOutcome>
  /** The credential flow: `refused` where user name or password are wrong. */
  redeemPassword(credentials: PasswordCredentials): Promise<TokenOutcome>
  /** The client flow: a token of the application's own, without a user context. */
  redeemClient(): Promise<TokenOutcome>
  /** Resolves with the answer, however late, or when the connection has failed or `signal` has reset it. */
  refresh(refreshToken: Secret, bounds: Required<RequestBounds>): Promise<TokenOutcome>
  /** RFC 7009. null when revoked, else why not. Does nothing without a revocation endpoint. */
  revoke(token: Secret, hint: 'access_token' | 'refresh_token'): Promise<string | null>
  close(): Promise<void>
}

export interface AuthorizationServerOptions {
  oauth: Config['oauth']
  /** Token requests that may be in flight at once. */
  concurrency: number
  clock: Clock
}

/** Connections for answers that are slower than their timeout, besides those of other requests. */
const LISTENERS = 64

export function createAuthorizationServer({
  oauth,
  concurrency,
  clock,
}: AuthorizationServerOptions): AuthorizationServer {
  const http = createTokenHttp({ connections: concurrency + LISTENERS, monotonic: clock.monotonic })

  /** For one request; without `bounds` it has the whole token timeout from now. */
  function configuration(bounds?: RequestBounds): Configuration {
    const metadata: ServerMetadata = {
      issuer: oauth.issuer ?? new URL(oauth.authorizeUrl).origin,
      authorization_endpoint: oauth.authorizeUrl,
      token_endpoint: oauth.tokenUrl,
      ...(oauth.revocationUrl === null ? {} : { revocation_endpoint: oauth.revocationUrl }),
    }
    const secret = oauth.clientSecret.reveal()
    const made = new Configuration(metadata, oauth.clientId, {}, ClientSecretPost(secret))
    made.timeout = bounds === undefined ? oauth.tokenTimeoutMs / 1_000 : undefined
    const sendBefore = clock.monotonic() + oauth.tokenTimeoutMs
    made[customFetch] = http.tokenFetch(bounds ?? { sendBefore }) as CustomFetch
    // Whether plain http may be used at all was decided when the configuration was read.
    allowInsecureRequests(made)
    return made
  }

  async function request(grant: () => Promise<TokenEndpointResponse>): Promise<TokenOutcome> {
    const requestedAt = clock.wall()
    try {
      return acceptTokens(await grant(), requestedAt)
    } catch (error) {
      return classifyFailure(error)
    }
  }

  return {
    async authorizeUrl({ flow, redirectUri, state, verifier }) {
      const url = buildAuthorizationUrl(configuration(), {
        response_type: flow,
        redirect_uri: redirectUri,
        scope: oauth.scope,
        state,
        ...(verifier === null
          ? {}
          : { code_challenge: await calculatePKCECodeChallenge(verifier), code_challenge_method: 'S256' }),
      })
      return url.href
    },

    redeemCode({ redirectUri, code, verifier }) {
      // openid-client sends this address without its query as redirect_uri. State and issuer have
      // been checked by the caller, who also knows servers that do not echo them.
      const cameBack = new URL(redirectUri)
      cameBack.searchParams.set('code', code)
      return request(() =>
        authorizationCodeGrant(configuration(), cameBack, {
          expectedState: skipStateCheck,
          ...(verifier === null ? {} : { pkceCodeVerifier: verifier }),
        }),
      )
    },

    redeemPassword({ redirectUri, username, password }) {
      return request(() =>
        genericGrantRequest(configuration(), 'password', {
          redirect_uri: redirectUri,
          username,
          password: password.reveal(),
          scope: oauth.scope,
        }),
      )
    },

    redeemClient() {
      return request(() => clientCredentialsGrant(configuration(), { scope: oauth.scope }))
    },

    refresh: (refreshToken, bounds) =>
      request(() => refreshTokenGrant(configuration(bounds), refreshToken.reveal())),

    async revoke(token, hint) {
      if (oauth.revocationUrl === null) return null
      try {
        await tokenRevocation(configuration(), token.reveal(), { token_type_hint: hint })
        return null
      } catch (error) {
        const failure = classifyFailure(error)
        return failure.kind === 'refused' ? failure.error : failure.reason
      }
    },

    close: () => http.close(),
  }
}
