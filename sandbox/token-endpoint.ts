import type { IncomingHttpHeaders } from 'node:http'
import type { Authorization } from './authorizations.ts'
import { GRANTS, type GrantContext, type GrantResult } from './grants.ts'
import { jsonResponse, oauthError, type SandboxResponse, withHeaders } from './response.ts'

/** The members of document section 2.3; the wire's own spelling. */
export interface TokenResponseBody {
  access_token: string
  token_type: 'bearer'
  expires_in?: unknown
  callback: string
  refresh_token?: string
  scope: string
  [member: string]: unknown
}

export type TokenEndpoint = ReturnType<typeof createTokenEndpoint>

/** `POST /oauth/token` and `POST /oauth/revoke`, as functions from a form to a response. */
export function createTokenEndpoint(context: GrantContext) {
  const { settings, accounts, authorizations, faults } = context

  function tokenResponse(
    authorization: Authorization,
    refreshToken: Granted['refreshToken'],
  ): TokenResponseBody {
    const { tokenLifeSeconds, expiresIn, tokenAnswer: patch, omitRefreshToken } = faults.current()
    const body: TokenResponseBody = {
      access_token: authorizations.issueAccessToken(authorization, tokenLifeSeconds),
      token_type: 'bearer',
      expires_in: tokenLifeSeconds,
      callback: settings.client.callback,
      scope: authorization.scope,
    }
    if (typeof refreshToken === 'object') body.refresh_token = refreshToken.keep
    if (refreshToken === 'new' && !omitRefreshToken) {
      body.refresh_token = authorizations.issueRefreshToken(authorization)
    }
    if (expiresIn === 'absent') delete body.expires_in
    else if (expiresIn !== 'truth') body.expires_in = expiresIn.value
    Object.assign(body, patch.set)
    for (const member of patch.remove ?? []) delete body[member]
    return body
  }

  /** The first error of the form or the client; null if both are valid. */
  function clientError(form: URLSearchParams, headers: IncomingHttpHeaders): SandboxResponse | null {
    if (!/^application\/x-www-form-urlencoded\s*(;|$)/i.test(headers['content-type'] ?? '')) {
      return oauthError('invalid_request', 'The body must be application/x-www-form-urlencoded.')
    }
    const repeated = [...new Set(form.keys())].find((name) => form.getAll(name).length > 1)
    if (repeated !== undefined) return oauthError('invalid_request', 'A parameter is repeated.')
    if (accounts.isClient(form.get('client_id') ?? '', form.get('client_secret') ?? '')) return null
    // RFC 6749 section 5.2 requires a challenge if the client sent an Authorization header.
    const challenge =
      headers.authorization === undefined ? {} : { 'www-authenticate': 'Basic realm="sandbox"' }
    const refusal = oauthError('invalid_client', 'client_id and client_secret do not name a client.', 401)
    return withHeaders(refusal, challenge)
  }

  return {
    tokenResponse,

    token(form: URLSearchParams, headers: IncomingHttpHeaders): SandboxResponse {
      const error = clientError(form, headers)
      if (error !== null) return error
      const grantType = form.get('grant_type')
      if (grantType === null) return oauthError('invalid_request', 'grant_type is missing.')
      const grant = Object.hasOwn(GRANTS, grantType) ? GRANTS[grantType] : undefined
      if (grant === undefined) return oauthError('unsupported_grant_type', 'There is no such grant.')
      const missing = grant.required.find((name) => !form.get(name))
      if (missing !== undefined) return oauthError('invalid_request', `${missing} is missing.`)

      const result = grant.redeem((name) => form.get(name) ?? undefined, context)
      if (result.kind === 'refused') return oauthError(result.error, result.description)
      const { authorization, refreshToken } = result
      const { username } = authorization
      if (username !== null && grantType !== 'refresh_token' && faults.current().oneGrantPerUser)
        authorizations.revoke(username, authorization)
      const wire = tokenResponse(authorization, refreshToken)
      const response = withHeaders(jsonResponse(200, wire, 'granted'), { pragma: 'no-cache' })
      const issued = authorizations.accessTokenNumber(wire.access_token)
      return { ...response, username: authorization.username, issued }
    },

    /** Token revocation (RFC 7009): 200 for an unknown token too. */
    revoke(form: URLSearchParams, headers: IncomingHttpHeaders): SandboxResponse {
      const error = clientError(form, headers)
      if (error !== null) return error
      const token = form.get('token')
      if (token === null) return oauthError('invalid_request', 'token is missing.')
      const authorization = authorizations.revokeToken(token)
      const outcome = authorization === null ? 'unknown_token' : 'revoked'
      return { ...jsonResponse(200, {}, outcome), username: authorization?.username ?? null }
    },
  }
}

type Granted = Extract<GrantResult, { kind: 'granted' }>
