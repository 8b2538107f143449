import fastifyCookie from '@fastify/cookie'
import fastifySession, { type SessionStore as LibraryStore } from '@fastify/session'
import type { FastifyInstance, Session } from 'fastify'
import { type RecordKey, type SessionStore, StoreUnavailable } from '../store/store.ts'
import { recordKeyOf, type SessionCookies } from './cookies.ts'

/**
 * @fastify/session does three things here: it gives the routes of sign-in and session info `request.session`,
 * makes a new session id at a sign-in, and sets and clears the session cookie. It keeps nothing: tokens and facts
 * are in the record (docs/decisions/0001), its session object is always empty, and saving it means to confirm a
 * provisional record. The proxy does without the library, because it would cost each call a read of the store.
 */

declare module 'fastify' {
  interface FastifyRequest {
    /** The record that a verified session cookie names; it need not exist any more. */
    recordKey: RecordKey | null
    /** The session cookie is signed under an older secret. */
    cookieIsOutdated: boolean
  }
  interface FastifyContextConfig {
    /** The route starts a session: @fastify/session makes a new id, whatever the browser sent. */
    newSession?: boolean
  }
}

interface BrowserSessionOptions {
  cookies: SessionCookies
  store: Pick<SessionStore, 'read' | 'confirm'>
  /** Ends a session that the library destroys. */
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
export async function addBrowserSession(
  scope: FastifyInstance,
  options: BrowserSessionOptions,
): Promise<void> {
  const { cookies } = options
  scope.decorateRequest('recordKey', null)
  scope.decorateRequest('cookieIsOutdated', false)
  scope.addHook('onRequest', async (request) => {
    const { sessionName } = cookies
    const value = cookies.read(request.headers.cookie)
    const verified = value === null ? null : cookies.verify(value)
    delete request.cookies[sessionName]
    if (verified === null) return
    request.recordKey = verified.recordKey
    request.cookieIsOutdated = verified.underOlderSecret
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
    store: createLibraryStore(options),
  })
}

/**
 * The store as @fastify/session sees it. `set` confirms a record that exists and never creates one: the library
 * saves a session again at the end of a request, which must not revive one that has ended meanwhile.
 */
function createLibraryStore({ store, end }: BrowserSessionOptions): LibraryStore {
  async function get(sessionId: string): Promise<Session | null> {
    return (await store.read(recordKeyOf(sessionId))) === null ? null : ({} as Session)
  }

  async function confirm(sessionId: string): Promise<void> {
    if (await store.confirm(recordKeyOf(sessionId))) return
    throw new StoreUnavailable(new Error('there is no record to confirm'))
  }

  // Callbacks: with a store of promises the library waits for ever.
  return {
    get: (sessionId, done) => void get(sessionId).then((session) => done(null, session), done),
    set: (sessionId, _session, done) => void confirm(sessionId).then(() => done(), done),
    destroy: (sessionId, done) => void end(recordKeyOf(sessionId)).then(() => done(), done),
  }
}
