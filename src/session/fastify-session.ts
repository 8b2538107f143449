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
    /** The session cookie signed under the newest secret; null if it already is. */
    renewedCookie: string | null
  }
}

interface BrowserSessionOptions {
  cookies: SessionCookies
  store: Pick<SessionStore, 'confirm'>
}

/** Lets the routes of `scope` read cookies, and their replies set them. */
export async function addCookies(scope: FastifyInstance): Promise<void> {
  await scope.register(fastifyCookie)
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
    if (verified.underOlderSecret) request.renewedCookie = cookies.sign(verified.sessionId)
  })

  await scope.register(fastifySession, {
    // With the library's own signer a change of secrets would sign users out.
    secret: { sign: cookies.sign, unsign: neverCalled },
    cookieName: cookies.sessionName,
    cookie: cookies.sessionAttributes,
    idGenerator: cookies.newSessionId,
    rolling: false,
    saveUninitialized: false,
    store: createLibraryStore(options),
  })
}

/**
 * The store as @fastify/session sees it. Saving a session confirms its record and never creates one, so it cannot revive
 * a session that has ended meanwhile.
 */
function createLibraryStore({ store }: BrowserSessionOptions): LibraryStore {
  async function confirm(sessionId: string): Promise<void> {
    if (await store.confirm(recordKeyOf(sessionId))) return
    throw new StoreUnavailable(new Error('there is no record to confirm'))
  }

  // The library expects callbacks. It would wait forever for a store that returns promises.
  return {
    set: (sessionId, _session, done) => void confirm(sessionId).then(() => done(), done),
    get: neverCalled,
    destroy: neverCalled,
  }
}

/** For what the library requires but has no cause to call: it sees no session cookie, and no route destroys a session. */
function neverCalled(): never {
  throw new Error('sessions are found and ended without @fastify/session')
}
