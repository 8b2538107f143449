import { randomUUID } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Config } from '../config/config.ts'
import { problem } from '../errors.ts'
import { networkOf } from '../http/network-of.ts'
import { OTHER_ERROR, pageResponse, parameters, problemOrPage, redirectResponse } from '../http/openapi.ts'
import { requestInLog } from '../log.ts'
import { isAboutClient } from '../oauth/token-response.ts'
import { PATHS } from '../paths.ts'
import {
  isNonce,
  NONCE_PARAMETER,
  NOT_YOURS,
  queryOf,
  readAuthorizationResponse,
  requireNonce,
  requireOwnResponse,
} from './authorization-response.ts'
import type { LoginContext } from './context.ts'
import { noteErrorResponse } from './error-response.ts'
import { loginUrl, SIGN_IN_MS } from './login-cookies.ts'
import { createCameByPublicHost } from './public-host.ts'
import { returnLocation } from './return-to.ts'
import { type Failed, requireTokens } from './sign-in.ts'
import { createFragmentPage } from './token-flow.ts'

const CODE_REFUSED =
  'The authorization server did not accept this sign-in. If that happens each time, tell the operator the request number.'

/**
 * `GET /auth/callback/<nonce>`: the browser comes back from the authorization server. A code is redeemed only if this
 * browser began the sign-in, and at most once over all replicas.
 */
export function createCallback(context: LoginContext) {
  const { services, loginCookies, countCallback, redeem, signIn } = context
  const { authorizationClient, vault, cookies } = services
  const { publicUrl, oauth } = services.config
  const cameByPublicHost = createCameByPublicHost(publicUrl)
  // With the token flow the fragment that a browser would keep may hold a token.
  const home = oauth.flows.has('token') ? returnLocation('/') : '/'
  const fragmentPage = createFragmentPage(context)

  return async function callback(
    request: FastifyRequest<{ Params: { nonce?: string } }>,
    reply: FastifyReply,
  ): Promise<FastifyReply> {
    const response = readAuthorizationResponse(queryOf(request.url))
    // With OAUTH_REDIRECT=fixed the state names the sign-in.
    const { nonce = response.state ?? '' } = request.params
    if (response.kind === 'none') {
      // A restored tab may have lost its query.
      const isStrange = isNonce(nonce) && loginCookies.find(request.headers.cookie, nonce) === null
      if (isStrange && (await isSignedIn(request))) return reply.redirect(home, 303)
      const page = fragmentPage(request, reply, { response, nonce })
      return page ?? (await withoutOpenSignIn(request, reply, nonce))
    }
    requireOwnResponse(response, nonce, oauth.issuer)
    const started = loginCookies.find(request.headers.cookie, nonce)
    if (started === null) return await withoutOpenSignIn(request, reply, nonce)
    if (response.kind === 'error') {
      const loginError = await noteErrorResponse(services, request, response.value)
      loginCookies.forget(reply, nonce)
      return reply.redirect(returnLocation(started.returnTo, loginError), 303)
    }
    if (started.flow !== 'code') throw problem('login_failed', 'This sign-in did not ask for a code.')
    const members = { loginUrl: loginUrl(started) }
    await countCallback(networkOf(request.ip), members)
    // The nonce is claimed only when the code can be sent: a sign-in that is refused here works later.
    const outcome = await redeem(members, async () => {
      if (!(await vault.claimNonce(nonce, randomUUID(), SIGN_IN_MS))) return null
      // Cleared whatever the result: a leftover cookie would count towards the few that a browser may keep.
      loginCookies.forget(reply, nonce)
      return await authorizationClient.redeemCode({
        redirectUri: started.redirectUri,
        code: response.value,
        verifier: started.verifier,
      })
    })
    if (outcome === null) return await withoutOpenSignIn(request, reply, nonce)
    const refused = problem('login_failed', { detail: CODE_REFUSED, members })
    const granted = requireTokens(services, outcome, { refused, isRefused: isRefusedCode, members, request })
    const { key } = await signIn(request, reply, { tokens: granted, flow: 'code', members })
    // Here alone: elsewhere somebody with a stolen cookie could bind the session to a device of his own.
    if (vault.devices !== null) reply.header('secure-session-registration', vault.devices.registration(key))
    return reply.redirect(returnLocation(started.returnTo), 303)
  }

  /**
   * The login cookie is missing, as in a restored tab, or its nonce was used, as by a reload: a signed-in browser goes
   * home, any other gets an error with a way to sign in.
   */
  async function withoutOpenSignIn(
    request: FastifyRequest,
    reply: FastifyReply,
    nonce: string,
  ): Promise<FastifyReply> {
    requireNonce(nonce)
    if (await isSignedIn(request)) {
      if (loginCookies.find(request.headers.cookie, nonce) !== null) loginCookies.forget(reply, nonce)
      return reply.redirect(home, 303)
    }
    const members = { loginUrl: PATHS.login }
    throw problem('login_failed', { detail: NOT_YOURS, reason: whyNotYours(request), members })
  }

  async function isSignedIn(request: FastifyRequest): Promise<boolean> {
    const key = cookies.recordKeyIn(request)
    return key !== null && (await vault.look(key, requestInLog(request))).kind === 'live'
  }

  /** The likely cause of a login cookie that is missing. */
  function whyNotYours(request: FastifyRequest): string {
    if (!cameByPublicHost(request)) {
      const { host } = new URL(publicUrl)
      return `the login cookie is missing: the request names another host than PUBLIC_URL (${host}), so the sign-in may have begun there`
    }
    return request.headers.cookie === undefined
      ? 'the browser sent no cookie: it blocks cookies, or the sign-in began under another host name or in another browser'
      : 'the login cookie is missing: more than an hour passed, or the sign-in was completed or began elsewhere'
  }
}

/** Whether the authorization server refuses this code, in any words but those that concern the client. */
function isRefusedCode({ answer }: Failed): boolean {
  if (answer === undefined) return false
  const { status, code } = answer
  return status >= 400 && status <= 499 && status !== 429 && code !== null && !isAboutClient(answer)
}

/** Schema of the route, with this configuration. */
export function callbackSchema({ flows, redirect }: Config['oauth']) {
  const text = { type: 'string' }
  return {
    operationId: 'callback',
    tags: ['session'],
    summary: 'Where the authorization server sends the browser back to',
    security: [],
    ...(redirect === 'per-login' ? { params: NONCE_PARAMETER } : {}),
    querystring: parameters({
      code: { ...text, examples: ['abc'] },
      error: { ...text, examples: ['access_denied'] },
      state: { ...text, examples: ['abc'] },
      iss: { ...text, examples: ['https://platform.example'] },
    }),
    response: {
      ...(flows.has('token')
        ? { 200: pageResponse('A page that hands the fragment to this server (token flow).') }
        : {}),
      303: redirectResponse('Signed in, or `login_error` is added to the query of the return address.'),
      400: problemOrPage('invalid_request, login_failed'),
      429: problemOrPage('rate_limited'),
      502: problemOrPage('upstream_unavailable'),
      503: problemOrPage('store_unavailable, authorization_server_unavailable'),
      504: problemOrPage('upstream_timeout'),
      default: problemOrPage(OTHER_ERROR),
    },
  }
}

/** The route pattern of the callback. */
export function callbackPath(redirect: Config['oauth']['redirect']): string {
  return redirect === 'fixed' ? PATHS.callback : PATHS.callbackOfLogin
}
