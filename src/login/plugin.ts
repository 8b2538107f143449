import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Problem } from '../errors.ts'
import { problem } from '../errors.ts'
import { comesFromOwnOrigin, OWN_ORIGIN_ONLY } from '../session/origin-guard.ts'
import type { SessionScopeOptions } from '../session/plugin.ts'
import { addBrowserSession, addCookies } from '../session/plugin.ts'
import type { CallbackOptions } from './callback.ts'
import { createCallback } from './callback.ts'
import { createLogout } from './logout.ts'
import { navigates, sendPage } from './pages.ts'
import { createSessionInfo } from './session-info.ts'
import type { StartOptions } from './start.ts'
import { createStart } from './start.ts'

export interface LoginOptions extends CallbackOptions, StartOptions {
  session: SessionScopeOptions
  idleMs: number
  defaultWac: string | null
}

/** The paths of this room and what they take; for the answer to any other method. */
export const LOGIN_PATHS = [
  { path: /^\/auth\/login$/, allow: 'GET', page: faultPage },
  { path: /^\/auth\/callback(\/[^/]+)?$/, allow: 'GET', page: faultPage },
  { path: /^\/auth\/session$/, allow: 'GET, HEAD' },
  { path: /^\/auth\/logout$/, allow: 'POST' },
]

/**
 * The authorization code flow as the browser sees it: start, callback, session facts, logout. It
 * never sees a token after handing it to the tokens room.
 */
export async function addLogin(app: FastifyInstance, options: LoginOptions): Promise<void> {
  await app.register(async (auth) => {
    await addCookies(auth, options.cookies)
    addPages(auth)
    // Before anything that would ask the store.
    auth.addHook('onRequest', async (request) => {
      if (request.method !== 'POST') return
      if (!comesFromOwnOrigin(request.method, request.headers, options.publicUrl))
        throw problem('cross_origin', OWN_ORIGIN_ONLY)
    })
    auth.get('/auth/login', { config: { page: true } }, createStart(options))
    // Outside of the browser session: whether it can be read is no matter to its end.
    const logout = createLogout(options)
    // Answered before the body is read: browsers send whatever a page or a form gives them.
    auth.route({ method: 'POST', url: '/auth/logout', onRequest: logout, handler: logout })

    await auth.register(async (scope) => {
      await addBrowserSession(scope, options.session)
      const path = options.redirect === 'fixed' ? '/auth/callback' : '/auth/callback/:nonce'
      scope.get(path, { config: { page: true, newSession: true } }, createCallback(options))
      scope.route({ method: ['GET', 'HEAD'], url: '/auth/session', handler: createSessionInfo(options) })
    })
  })
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** A browser that navigates here is told of a problem on a page. */
    page?: boolean
  }
  interface FastifyRequest {
    /** Set where a problem is to be shown as a page. */
    problemPage: ((fault: Problem) => unknown) | null
  }
}

/** Lets the one error handler of the app answer with a page where a person looks at it. */
function addPages(scope: FastifyInstance): void {
  scope.addHook('onRequest', async (request, reply) => {
    if (request.routeOptions.config.page === true) request.problemPage = faultPage(request, reply)
  })
}

/** How to show a problem to the person who navigates here; null where nobody does. */
function faultPage(request: FastifyRequest, reply: FastifyReply): FastifyRequest['problemPage'] {
  if (!navigates(request)) return null
  return (fault) =>
    sendPage(reply, {
      status: fault.status,
      title: fault.title,
      text: fault.detail ?? `${fault.title}.`,
      link: {
        href: fault.members.loginUrl ?? '/',
        words: fault.members.loginUrl ? 'Try again' : 'Go to the start',
      },
      requestId: request.id,
    })
}
