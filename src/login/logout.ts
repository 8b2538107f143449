import type { FastifyReply, FastifyRequest } from 'fastify'
import type { SessionCookies } from '../session/cookies.ts'
import type { Sessions } from '../session/sessions.ts'
import type { SessionStore } from '../store/store.ts'

export interface LogoutOptions {
  sessions: Pick<Sessions, 'end'>
  cookies: SessionCookies
  store: Pick<SessionStore, 'ping'>
}

/**
 * `POST /auth/logout`: the session is gone before the answer, or the answer is 503 and the browser
 * keeps its cookies to try again; this process has forgotten the session then. 204 without a session too.
 */
export function createLogout({ sessions, cookies, store }: LogoutOptions) {
  return async function logout(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const key = cookies.recordKeyOf(request)
    if (key !== null) await sessions.end(key, 'logout')
    // Cookies that name nobody here may do so elsewhere: none is cleared while nothing can be ended.
    else await store.ping()
    cookies.clearSession(reply)
    return reply.code(204).header('clear-site-data', '"cache"').send()
  }
}
