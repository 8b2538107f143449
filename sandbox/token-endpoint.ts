import type { IncomingHttpHeaders } from 'node:http'
import type { Answers } from './answers.ts'
import type { Authorization, RefreshRecord } from './authorizations.ts'
import { GRANTS, type GrantContext, type GrantResult } from './grants.ts'
import type { AnswerName } from './profile.ts'
import {
  jsonResponse,
  oauthError,
  type SandboxResponse,
  type TokenResponseBody,
  textResponse,
  withHeaders,
} from './response.ts'

export type TokenEndpoint = ReturnType<typeof createTokenEndpoint>

type Granted = Extract<GrantResult, { kind: 'granted' }>

/** `POST /oauth/token` and `POST /oauth/revoke`, as functions from a form to a response. */
export function createTokenEndpoint(context: GrantContext & { answers: Answers }) {
  const { settings, accounts, authorizations, faults, answers } = context

  function tokenResponse(
    authorization: Authorization,
    refreshToken: Granted['refreshToken'],
    presented: RefreshRecord | null = null,
  ): TokenResponseBody {
    const { tokenLifeSeconds, expiresIn, omitRefreshToken, ...switches } = faults.current()
    const predecessor = switches.refreshReuse === 'until-first-use' ? presented : null
    const body: TokenResponseBody = {
      access_token: authorizations.issueAccessToken(authorization, tokenLifeSeconds, predecessor),
      token_type: 'bearer',
      expires_in: tokenLifeSeconds,
      callback: settings.client.callback,
      scope: authorization.scope,
    }
    if (typeof refreshToken === 'object') body.refresh_token = refreshToken.keep
    if (refreshToken === 'new' && omitRefreshToken !== true && authorization.isRefreshable) {
      body.refresh_token = authorizations.issueRefreshToken(authorization, {
        access: body.access_token,
        lifeSeconds: switches.refreshLifeSeconds,
      })
    }
    if (switches.refreshExpiresIn !== null) body[switches.refreshExpiresIn] = switches.refreshLifeSeconds ?? 0
    if (expiresIn === 'absent') delete body.expires_in
    else if (expiresIn !== 'truth') body.expires_in = expiresIn.value
    for (const patch of [switches.tokenAnswer, ...(presented === null ? [] : [switches.refreshAnswer])]) {
      Object.assign(body, patch.set)
      for (const member of patch.remove ?? []) delete body[member]
    }
    return body
  }

  /** The first error of the form; null if it is valid. */
  function formError(form: URLSearchParams, headers: IncomingHttpHeaders): SandboxResponse | null {
    if (!/^application\/x-www-form-urlencoded\s*(;|$)/i.test(headers['content-type'] ?? '')) {
      return oauthError('invalid_request', 'The body must be application/x-www-form-urlencoded.')
    }
    const repeated = [...new Set(form.keys())].find((name) => form.getAll(name).length > 1)
    return repeated === undefined ? null : oauthError('invalid_request', 'A parameter is repeated.')
  }

  /** Why the client is refused; null if it is the one that is registered, authenticated as the endpoint asks. */
  function clientError(
    form: URLSearchParams,
    headers: IncomingHttpHeaders,
    use: 'code' | 'refresh' | 'revocation' | 'other',
  ): SandboxResponse | null {
    const { clientAuth, publicClient } = faults.current()
    const basic = basicCredentials(headers.authorization)
    const clientId = basic?.clientId ?? form.get('client_id') ?? ''
    const isClient = accounts.isClient(clientId, basic?.clientSecret ?? form.get('client_secret') ?? '')
    const isKnown = isClient || (publicClient && clientId === settings.client.clientId)
    const way = basic === null ? 'post' : 'basic'
    const isOffered =
      clientAuth === 'any' ||
      clientAuth === way ||
      (clientAuth === 'any-for-codes' && (use === 'code' || way === 'basic')) ||
      (clientAuth === 'post-for-tokens' && (use === 'revocation' || use === 'other') === (way === 'basic'))
    if (isKnown && isOffered) return null
    // RFC 6749 section 5.2 requires a challenge if the client sent an Authorization header.
    const challenge =
      headers.authorization === undefined ? {} : { 'www-authenticate': 'Basic realm="sandbox"' }
    const plain = withHeaders(
      oauthError('invalid_client', 'client_id and client_secret do not name a client.', 401),
      challenge,
    )
    const names: AnswerName[] = ['client: wrong']
    if (use === 'refresh') names.unshift('client: wrong, with a refresh token')
    if (use === 'revocation') names.unshift('client: wrong, at the revocation')
    if (isKnown) names.unshift('client: wrong method')
    return answers.token(names, plain)
  }

  function unreachable(names: AnswerName[]): SandboxResponse {
    return answers.token(names, oauthError('server_error', 'The database cannot be reached.', 500))
  }

  return {
    tokenResponse,

    token(form: URLSearchParams, headers: IncomingHttpHeaders): SandboxResponse {
      const error = formError(form, headers)
      if (error !== null) return error
      const { clientCheck, database, oneGrantPerUser } = faults.current()
      if (database === 'away') return unreachable(['database away'])
      const grantType = form.get('grant_type')
      const use =
        grantType === 'refresh_token' ? 'refresh' : grantType === 'authorization_code' ? 'code' : 'other'
      const isUnknown =
        use === 'refresh' && authorizations.findRefreshToken(form.get('refresh_token') ?? '') === null
      const wrong = clientError(form, headers, use)
      if (wrong !== null && (clientCheck === 'first' || !isUnknown)) return wrong
      if (grantType === null) return oauthError('invalid_request', 'grant_type is missing.')
      const grant = Object.hasOwn(GRANTS, grantType) ? GRANTS[grantType] : undefined
      if (grant === undefined)
        return answers.token(
          ['grant type: unknown'],
          oauthError('unsupported_grant_type', 'There is no such grant.'),
        )
      const missing = grant.required.find((name) => !form.get(name))
      if (missing !== undefined) return oauthError('invalid_request', `${missing} is missing.`)

      const result = grant.redeem((name) => form.get(name) ?? undefined, context)
      if (result.kind === 'refused') {
        const plain = oauthError(result.error, result.description)
        return result.name === null ? plain : answers.token([result.name], plain)
      }
      const { authorization } = result
      const { username } = authorization
      if (username !== null && use !== 'refresh') {
        if (oneGrantPerUser === true) authorizations.end('superseded', username, authorization)
        if (oneGrantPerUser === 'refresh-token')
          authorizations.endRefreshTokens('superseded', username, authorization)
      }
      const wire =
        result.kind === 'repeated'
          ? result.answer
          : tokenResponse(authorization, result.refreshToken, result.presented)
      if (result.kind === 'granted' && result.presented !== null) result.presented.answer ??= wire
      const response = withHeaders(jsonResponse(200, wire, 'granted'), { pragma: 'no-cache' })
      const issued = authorizations.accessTokenNumber(wire.access_token)
      return { ...answers.underTokenHeaders(response), username: authorization.username, issued }
    },

    /** Token revocation (RFC 7009): 200 for an unknown token too. */
    revoke(form: URLSearchParams, headers: IncomingHttpHeaders): SandboxResponse {
      const error = formError(form, headers)
      if (error !== null) return error
      const { revocation, database } = faults.current()
      if (database === 'away') return unreachable(['revocation: database away', 'database away'])
      if (revocation === 'absent') return textResponse(404, '', 'not_found')
      const wrong = clientError(form, headers, 'revocation')
      if (wrong !== null) return wrong
      const token = form.get('token')
      if (token === null) return oauthError('invalid_request', 'token is missing.')
      const authorization =
        revocation === 'nothing'
          ? authorizations.authorizationOf(token)
          : authorizations.revokeToken(token, revocation)
      const [name, outcome] =
        authorization === null
          ? (['revocation: unknown', 'unknown_token'] as const)
          : (['revocation: done', 'revoked'] as const)
      const response = answers.token([name], jsonResponse(200, {}, outcome))
      return { ...response, outcome, username: authorization?.username ?? null }
    },
  }
}

/** Client credentials in HTTP Basic, each form-encoded (RFC 6749 section 2.3.1); null where there are none. */
function basicCredentials(header: string | undefined): { clientId: string; clientSecret: string } | null {
  const encoded = /^Basic +([A-Za-z0-9+/=]+)$/i.exec(header ?? '')?.[1]
  if (encoded === undefined) return null
  const [clientId = '', ...rest] = String(Buffer.from(encoded, 'base64')).split(':')
  return { clientId: fromForm(clientId), clientSecret: fromForm(rest.join(':')) }
}

function fromForm(text: string): string {
  return new URLSearchParams(`x=${text.replaceAll('&', '%26')}`).get('x') ?? ''
}
