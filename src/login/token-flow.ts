import { randomUUID } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { problem, unavailable } from '../errors.ts'
import { requireJson } from '../http/body.ts'
import { networkOf } from '../http/network-of.ts'
import { headersNamed, jsonResponse, OTHER_ERROR, problemOrPage, requestHeaders } from '../http/openapi.ts'
import { acceptFragment, type GrantedTokens } from '../oauth/token-response.ts'
import { PATHS } from '../paths.ts'
import {
  type AuthorizationResponse,
  CODE_OR_ERROR,
  NONCE_PARAMETER,
  NOT_YOURS,
  requireNonce,
  requireOwnResponse,
} from './authorization-response.ts'
import type { LoginContext } from './context.ts'
import { noteErrorResponse } from './error-response.ts'
import { loginUrl, SIGN_IN_MS, type StartedSignIn } from './login-cookies.ts'
import { BODY_LIMIT_BYTES, type OptionalFlow } from './optional-flow.ts'
import { sendPage } from './pages.ts'
import { returnLocation } from './return-to.ts'
import type { Members } from './sign-in.ts'

const TEXT = { type: 'string' } as const

/** Body of the POST: the members of the fragment. Unknown ones are ignored (RFC 6749 section 4.2.2). */
const FRAGMENT_SCHEMA = {
  $id: 'FragmentResponse',
  type: 'object',
  description: 'The members of the fragment; access_token or error. Others are ignored.',
  properties: {
    access_token: { ...TEXT, writeOnly: true },
    token_type: TEXT,
    expires_in: { type: ['string', 'number', 'null'] },
    scope: TEXT,
    error: TEXT,
    state: TEXT,
    iss: TEXT,
  },
  examples: [{ error: 'access_denied' }],
} as const

type FragmentMember = keyof (typeof FRAGMENT_SCHEMA)['properties']
type FragmentBody = { [Name in FragmentMember]?: Name extends 'expires_in' ? unknown : string }

const SCHEMA = {
  operationId: 'callbackFragment',
  tags: ['session'],
  summary: 'What the page of the callback sends in the token flow',
  security: [],
  params: NONCE_PARAMETER,
  headers: requestHeaders(),
  body: { $ref: 'FragmentResponse#' },
  response: {
    200: {
      ...jsonResponse('Signed in; `Location` says where to go.', 'SignedInSession'),
      headers: headersNamed('X-Request-Id', 'Location'),
    },
    400: problemOrPage('invalid_request, login_failed; `Location`, where there is one, says where to go'),
    403: problemOrPage('cross_origin'),
    413: problemOrPage('payload_too_large'),
    415: problemOrPage('unsupported_media_type'),
    429: problemOrPage('rate_limited'),
    503: problemOrPage('store_unavailable'),
    default: problemOrPage(OTHER_ERROR),
  },
}

/** The token flow (service document, section 5.4), `response_type=token` of RFC 6749 section 4.2. */
export const TOKEN_FLOW: OptionalFlow = {
  name: 'token',
  addRoutes(scope, context) {
    scope.addSchema(FRAGMENT_SCHEMA)
    scope.route<{ Params: { nonce: string }; Body: FragmentBody }>({
      method: 'POST',
      url: PATHS.callbackOfLogin,
      bodyLimit: BODY_LIMIT_BYTES,
      schema: SCHEMA,
      config: { page: context.problemPage },
      async onRequest(request) {
        requireNonce(request.params.nonce)
        requireJson(request)
      },
      handler: createFragmentHandler(context),
    })
  },
}

/**
 * `POST /auth/callback/<nonce>`: takes the response that the page of the callback read from the fragment. Sends the
 * facts of the new session; `Location` says where the page goes.
 */
function createFragmentHandler(context: LoginContext) {
  const { services, loginCookies, countCallback, signIn, sessionFacts } = context
  const { config, vault, clock } = services
  const { redirect, issuer } = config.oauth

  return async function fragment(
    request: FastifyRequest<{ Params: { nonce: string }; Body: FragmentBody }>,
    reply: FastifyReply,
  ): Promise<object> {
    const { body } = request
    const { nonce } = request.params
    const { state = null, iss = null } = body
    requireOwnResponse({ state, iss }, nonce, issuer)
    if (redirect === 'fixed' && state === null) throw problem('login_failed', 'The state is missing.')
    const started = loginCookies.find(request.headers.cookie, nonce)
    if (started?.flow !== 'token') throw problem('login_failed', NOT_YOURS)
    if (!body.error === !body.access_token) {
      throw problem('invalid_request', 'Exactly one of the members access_token and error is expected.')
    }
    if (body.error) {
      const loginError = await noteErrorResponse(services, request, body.error)
      loginCookies.forget(reply, nonce)
      throw problem('login_failed', {
        detail: 'The authorization server did not accept the sign-in.',
        headers: { location: returnLocation(started.returnTo, loginError) },
      })
    }
    const members = { loginUrl: loginUrl(started) }
    await countCallback(networkOf(request.ip), members)
    const granted = usableTokens(body, started)
    if (!(await claim(nonce, granted, members))) throw problem('login_failed', NOT_YOURS)
    loginCookies.forget(reply, nonce)
    const session = await signIn(request, reply, { tokens: granted, flow: 'token', members })
    reply.header('location', returnLocation(started.returnTo))
    return sessionFacts(session)
  }

  function usableTokens(body: FragmentBody, started: StartedSignIn): GrantedTokens {
    const granted = acceptFragment(body, clock.wall())
    // Without a refresh token, a token that is due at once would be a session that has ended.
    if (granted !== null && granted.lifeSeconds > 0) return granted
    throw problem('login_failed', {
      detail: 'The token cannot be used here.',
      members: { loginUrl: loginUrl(started) },
    })
  }

  async function claim(nonce: string, granted: GrantedTokens, members: Members): Promise<boolean> {
    const attempt = randomUUID()
    try {
      return await vault.claimNonce(nonce, attempt, SIGN_IN_MS)
    } catch (cause) {
      // The page has already removed the token from its address, so it cannot send it again.
      vault.revoke(granted)
      throw unavailable('store_unavailable', 1, { cause, members })
    }
  }
}

/**
 * Sends the members of the fragment to this server and goes where the response says. It first removes the fragment
 * from the address, so that no page of this tab leads back to it. No script can remove it from the browser's history
 * of visits.
 */
const SCRIPT = `(async () => {
  const members = {}
  const response = new URLSearchParams(location.hash.slice(1))
  for (const [name, value] of response) members[name] = Object.hasOwn(members, name) ? [value] : value
  history.replaceState(null, '', location.pathname)
  const path = location.pathname === '${PATHS.callback}' ? '${PATHS.callback}/' + encodeURIComponent(response.get('state')) : location.pathname
  const result = await fetch(path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(members),
  })
  const next = result.headers.get('location')
  if (next !== null) return location.replace(next)
  const { detail, loginUrl } = await result.json()
  tell(detail)
  if (loginUrl !== undefined) document.querySelector('a').href = loginUrl
})().catch(() => tell('The sign-in could not be completed.'))
function tell(text) {
  document.querySelector('p').textContent = text
}`

/** For every other page at the callback's address: removes an unwanted token from the address. */
export const FORGET_FRAGMENT = `if (location.hash) history.replaceState(null, '', location.pathname + location.search)`

/**
 * Sends the page for a callback whose query has no response: that of this flow is in the fragment, which browsers do not
 * send, so a script reads it. null if this browser did not begin the sign-in. Throws if it began another flow.
 */
export function createFragmentPage({ services, loginCookies }: LoginContext) {
  const { redirect, flows, issuer } = services.config.oauth

  return function fragmentPage(
    request: FastifyRequest,
    reply: FastifyReply,
    { response, nonce }: { response: AuthorizationResponse; nonce: string },
  ): FastifyReply | null {
    const { cookie } = request.headers
    if (!flows.has('token')) throw problem('invalid_request', CODE_OR_ERROR)
    if (redirect === 'fixed') {
      // The state, too, is in the fragment, so the sign-in is not known yet.
      if (!loginCookies.hasBegun(cookie, 'token')) throw problem('invalid_request', CODE_OR_ERROR)
      return sendFragmentPage(reply, loginUrl({ flow: 'token', returnTo: '/' }))
    }
    requireOwnResponse(response, nonce, issuer)
    const started = loginCookies.find(cookie, nonce)
    if (started === null) return null
    if (started.flow !== 'token') throw problem('invalid_request', CODE_OR_ERROR)
    return sendFragmentPage(reply, loginUrl(started))
  }
}

/** `retry` is where to begin the sign-in again. */
function sendFragmentPage(reply: FastifyReply, retry: string): FastifyReply {
  return sendPage(reply, {
    status: 200,
    title: 'Signing in',
    text: 'One moment, please. This step needs JavaScript.',
    link: { href: retry, words: 'Begin again' },
    script: SCRIPT,
  })
}
