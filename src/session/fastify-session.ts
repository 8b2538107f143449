import fastifyCookie from '@fastify/cookie'
import fastifySession, { type SessionStore as LibraryStore } from '@fastify/session'
import type { FastifyInstance } from 'fastify'
import { type RecordKey, type SessionStore, StoreUnavailable } from '../store/store.ts'
import { recordKeyOf, type SessionCookies } from './cookies.ts'

/**
 * @fastify/session does three things here: it gives the routes of sign-in and session info `request.session`,
 * makes a new session id at a sign-in, and sets the session cookie of a sign-in. It keeps nothing: tokens and facts
 * are in the record (docs/decisions/0001), its session object is always empty, and saving it confirms a provisional
 * record. The proxy does without the library, because it would cost each call a read of the store.
 */

declare module 'fastify' {
  interface FastifyRequest {
    /** The record that a verified session cookie names; it need not exist any more. */
    recordKey: RecordKey | null
    /** The session cookie signed under the newest secret; null where it is so already. */
    renewedCookie: string | null
  }
}

interface BrowserSessionOptions {
  cookies: SessionCookies
  store: Pick<SessionStore, 'confirm'>
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
 * Gives the routes of `scope`, and no others, a browser session: `request.session`, `request.recordKey` and
 * `request.renewedCookie`. A route that saves its session sets the session cookie. All others only read, and set a
 * cookie only to renew one that an older secret has signed.
 */
export async function addBrowserSession(
  scope: FastifyInstance,
  options: BrowserSessionOptions,
): Promise<void> {
  const { cookies } = options
  scope.decorateRequest('recordKey', null)
  scope.decorateRequest('renewedCookie', null)
  scope.addHook('onRequest', async (request) => {
    const verified = cookies.verifyIn(request.headers.cookie)
    // The library would clear a cookie whose session has ended, and with it the reason of the end.
    delete request.cookies[cookies.sessionName]
    if (verified === null) return
    request.recordKey = verified.recordKey
    if (verified.underOlderSecret) request.renewedCookie = cookies.signer.sign(verified.sessionId)
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
  async function confirm(sessionId: string): Promise<void> {
    if (await store.confirm(recordKeyOf(sessionId))) return
    throw new StoreUnavailable(new Error('there is no record to confirm'))
  }

  // Callbacks: with a store of promises the library waits for ever.
  return {
    // Never called: the library sees no cookie.
    get: (_sessionId, done) => done(null, null),
    set: (sessionId, _session, done) => void confirm(sessionId).then(() => done(), done),
    destroy: (sessionId, done) => void end(recordKeyOf(sessionId)).then(() => done(), done),
  }
}
