import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Config } from '../config/config.ts'
import { withParameters } from '../config/oauth.ts'
import type { SessionCookies } from '../http/cookies.ts'
import { isNavigation } from '../http/navigation.ts'
import {
  jsonResponse,
  plainResponse,
  problemOrPage,
  redirectResponse,
  requestHeaders,
} from '../http/openapi.ts'
import { type Logger, requestInLog } from '../log.ts'
import { inLog, type Vault } from '../vault/vault.ts'

interface LogoutOptions {
  /** null: a sign-out ends here. */
  endSessionUrl: string | null
  vault: Pick<Vault, 'end' | 'ping'>
  cookies: SessionCookies
  log: Logger
}

/**
 * `POST /auth/logout`: the session ends before the 204. With the store down it sends 503, and the browser keeps its
 * cookies to try again; this process no longer serves the session then. Without a session it sends 204 too. An HTML form
 * gets 303 to the start: after 204 a browser would stay on the page of a session that has ended. With
 * `OAUTH_END_SESSION_URL` the browser is to go there: 200 with that address, and a form gets 303 to it.
 */
export function createLogout({ endSessionUrl, vault, cookies, log }: LogoutOptions) {
  return async function logout(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const key = cookies.recordKeyIn(request)
    if (request.session.state !== undefined) await request.session.destroy()
    // By the record cookie alone: the session cookie is repeated or missing.
    else if (key !== null) await vault.end(key, 'logout', { request: requestInLog(request) })
    // Without a readable cookie there is nothing to end here. Keep the cookies if the store is down: another replica
    // may have their secret.
    else await vault.ping()
    if (key !== null)
      log.info({ event: 'logout.succeeded', ...requestInLog(request), recordKey: inLog(key) }, 'signed out')
    cookies.clearSession(reply)
    if (isNavigation(request)) return reply.redirect(endSessionUrl ?? '/', 303)
    return endSessionUrl === null ? reply.code(204).send() : reply.send({ endSessionUrl })
  }
}

/** Where users sign out at the authorization server (OpenID Connect RP-Initiated Logout 1.0), or null. */
export function endSessionUrlOf({ oauth, publicUrl }: Pick<Config, 'oauth' | 'publicUrl'>): string | null {
  if (oauth.endSessionUrl === null) return null
  // No ID token is kept, so `client_id` says whose `post_logout_redirect_uri` it is.
  const parameters = { client_id: oauth.clientId, post_logout_redirect_uri: `${publicUrl}/` }
  return withParameters(oauth.endSessionUrl, new URLSearchParams(parameters))
}

export const LOGOUT_SCHEMA = {
  operationId: 'logout',
  tags: ['session'],
  summary: 'End the session on every replica',
  security: [{ session: [] }, {}],
  headers: requestHeaders(),
  response: {
    200: jsonResponse(
      'There is no session here any more; the address ends the one at the authorization server.',
      'SignedOut',
    ),
    204: plainResponse('There is no session any more.'),
    303: redirectResponse('To `/` or to `endSessionUrl`: the request came from an HTML form.'),
    403: problemOrPage('cross_origin'),
    503: problemOrPage('store_unavailable'),
  },
}

/** Body of the response with `OAUTH_END_SESSION_URL`. */
export const SIGNED_OUT_SCHEMA = {
  $id: 'SignedOut',
  type: 'object',
  required: ['endSessionUrl'],
  properties: {
    endSessionUrl: { type: 'string', format: 'uri', description: 'Where to go to sign out there too.' },
  },
}
