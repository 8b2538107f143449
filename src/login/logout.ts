import type { FastifyReply, FastifyRequest } from 'fastify'
import type { SessionCookies } from '../http/cookies.ts'
import { isNavigation } from '../http/navigation.ts'
import { plainResponse, problemOrPage, redirectResponse, requestHeaders } from '../http/openapi.ts'
import { type Logger, requestInLog } from '../log.ts'
import type { Sessions } from '../vault/lifecycle.ts'
import { inLog, type SessionStore } from '../vault/store/store.ts'

interface LogoutOptions {
  sessions: Pick<Sessions, 'end'>
  cookies: SessionCookies
  store: Pick<SessionStore, 'ping'>
  log: Logger
}

/**
 * `POST /auth/logout`: the session ends before the 204. With the store down it sends 503, and the browser keeps its
 * cookies to try again; this process no longer serves the session then. Without a session it sends 204 too. An HTML form
 * gets 303 to the start: after 204 a browser would stay on the page of a session that has ended.
 */
export function createLogout({ sessions, cookies, store, log }: LogoutOptions) {
  return async function logout(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const key = cookies.recordKeyIn(request)
    if (request.session.state !== undefined) await request.session.destroy()
    // By the record cookie alone: the session cookie is repeated or missing.
    else if (key !== null) await sessions.end(key, 'logout', { request: requestInLog(request) })
    // Without a readable cookie there is nothing to end here. Keep the cookies if the store is down: another replica
    // may have their secret.
    else await store.ping()
    if (key !== null)
      log.info({ event: 'logout.succeeded', ...requestInLog(request), recordKey: inLog(key) }, 'signed out')
    cookies.clearSession(reply)
    return isNavigation(request) ? reply.redirect('/', 303) : reply.code(204).send()
  }
}

export const LOGOUT_SCHEMA = {
  operationId: 'logout',
  tags: ['session'],
  summary: 'End the session on every replica',
  security: [{ session: [] }, {}],
  headers: requestHeaders(),
  response: {
    204: plainResponse('There is no session any more.'),
    303: redirectResponse('To `/`: the request came from an HTML form.'),
    403: problemOrPage('cross_origin'),
    503: problemOrPage('store_unavailable'),
  },
}
