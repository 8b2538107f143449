import fastifyCookie from '@fastify/cookie'
import fastifySession from '@fastify/session'
import type { FastifyInstance } from 'fastify'
import type { RecordKey, SessionStore } from '../store/store.ts'
import type { SessionCookies } from './cookies.ts'
import { createStoreAdapter } from './store-adapter.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** Names the record of the session that a verified cookie speaks of; it need not exist any more. */
    recordKey: RecordKey | null
    /** The session cookie is signed under an older secret. */
    cookieIsStale: boolean
  }
  interface FastifyContextConfig {
    /** The route starts a session: whatever the browser sent, @fastify/session makes a new id. */
    newSession?: boolean
  }
}

export interface SessionScopeOptions {
  cookies: SessionCookies
  store: SessionStore
  idleMs: number
  end: (key: RecordKey) => Promise<unknown>
}

/**
 * Reads cookies and lets replies set them. The attributes are the default because @fastify/session
 * clears its cookie without any, and browsers refuse that for a `__Host-` name.
 */
export async function addCookies(scope: FastifyInstance, cookies: SessionCookies): Promise<void> {
  await scope.register(fastifyCookie, { parseOptions: cookies.sessionAttributes })
}

/**
 * Gives the routes of `scope`, and no others, a browser session: `request.session`,
 * `request.recordKey`. Reads change nothing and set no cookie; only a route that saves its session
 * does. Tokens are not in it.
 */
export async function addBrowserSession(scope: FastifyInstance, options: SessionScopeOptions): Promise<void> {
  const { cookies, store, idleMs, end } = options
  scope.decorateRequest('recordKey', null)
  scope.decorateRequest('cookieIsStale', false)
  scope.addHook('onRequest', async (request) => {
    const { sessionName } = cookies
    const value = cookies.read(request.headers.cookie)
    const verified = value === null ? null : cookies.verify(value)
    delete request.cookies[sessionName]
    if (verified === null) return
    request.recordKey = verified.recordKey
    request.cookieIsStale = verified.stale
    // Signed with the newest secret here, since the library clears a cookie that it would sign otherwise.
    if (request.routeOptions.config.newSession !== true) {
      request.cookies[sessionName] = cookies.signer.sign(verified.sessionId)
    }
  })

  await scope.register(fastifySession, {
    secret: cookies.signer,
    cookieName: cookies.sessionName,
    cookie: cookies.sessionAttributes,
    idGenerator: cookies.newSessionId,
    rolling: false,
    saveUninitialized: false,
    store: createStoreAdapter({ store, idleMs, end }),
  })
}
