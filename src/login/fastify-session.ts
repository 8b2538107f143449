import fastifyCookie from '@fastify/cookie'
import fastifySession, { type SessionStore as LibraryStore } from '@fastify/session'
import type { FastifyInstance } from 'fastify'
import { recordKeyOf, type SessionCookies, type VerifiedCookie } from '../http/cookies.ts'
import { type RequestInLog, requestInLog } from '../log.ts'
import { type Found, type LiveSession, type RecordKey, StoreUnavailable, type Vault } from '../vault/vault.ts'

/**
 * @fastify/session below /auth: it reads the session cookie, loads what a page may know of the session, makes the
 * session of a sign-in with its cookie, and ends one at a sign-out. Tokens and facts stay in the record
 * (docs/decisions/0001): nothing that is put into `request.session` is kept, and saving it confirms a record that is
 * there. The proxy does without the library: a read of the store for each call would cost more than forwarding it.
 * What the library cannot do is done here: it takes the first of repeated cookies, and clears one that an older secret
 * has signed.
 */

/** What a page may know of the session that its cookie names. */
export type PageSession =
  | { kind: 'live'; facts: object; bound: boolean }
  | Exclude<Found, { kind: 'live' }>
  /** The store was not asked, or did not say. */
  | { kind: 'unknown'; cause: unknown }

declare module 'fastify' {
  interface Session {
    /** undefined without a session cookie of ours, and in a new session. */
    state?: PageSession
  }
  interface FastifyRequest {
    /** What the session cookie of the request proves; null without one of ours. */
    sessionCookie: VerifiedCookie | null
  }
}

interface LibraryStoreOptions {
  vault: Pick<Vault, 'confirm' | 'look' | 'end'>
  /** What a page may know of a live session. */
  sessionFacts: (session: LiveSession) => object
  /** false: its routes only end sessions, and the state is `unknown`. */
  reads?: boolean
  /** For the log: which request asks for a session now. Of two at once the log names one or none. */
  asking?: ReadonlyMap<RecordKey, RequestInLog>
}

type BrowserSessionOptions = Omit<LibraryStoreOptions, 'asking'> & { cookies: SessionCookies }

/**
 * Lets replies of `scope` set cookies. No cookie of a request is parsed, since src/http/cookies.ts finds those that count:
 * a header of thousands that cannot be decoded would take a hundred times as long as a response.
 */
export async function addCookies(scope: FastifyInstance): Promise<void> {
  await scope.register(fastifyCookie)
  scope.parseCookie = () => ({})
}

/**
 * Gives the routes of `scope` the session of the browser's cookie as `request.session`, with its `state`. The library
 * leaves the cookie alone here: a route sets or clears it through `cookies`.
 */
export async function addBrowserSession(
  scope: FastifyInstance,
  options: BrowserSessionOptions,
): Promise<void> {
  const { cookies } = options
  // The library does not tell its store which request asks. An AsyncLocalStorage would slow down every promise of the process.
  const asking = new Map<RecordKey, RequestInLog>()
  scope.decorateRequest('sessionCookie', null)
  scope.addHook('onRequest', async (request, { raw }) => {
    const verified = cookies.verifyIn(request.headers.cookie)
    request.sessionCookie = verified
    // The library clears a cookie whose text is not what `sign` returns now: one under an older secret, or not of ours.
    request.cookies[cookies.sessionName] = verified === null ? '' : cookies.sign(verified.sessionId)
    if (verified === null) return
    const { recordKey } = verified
    asking.set(recordKey, requestInLog(request))
    // Fastify has no hook for a browser that leaves.
    raw.once('close', () => asking.delete(recordKey))
  })
  await addLibrary(scope, { ...options, asking })
}

/**
 * Gives the routes of `scope` a new session with a new id as `request.session`, whatever cookie the browser sent.
 * Saving it confirms its record and sets the cookie.
 */
export async function addNewSession(scope: FastifyInstance, options: BrowserSessionOptions): Promise<void> {
  scope.addHook('onRequest', async (request) => {
    request.cookies[options.cookies.sessionName] = ''
  })
  await addLibrary(scope, options)
}

async function addLibrary(
  scope: FastifyInstance,
  options: BrowserSessionOptions & LibraryStoreOptions,
): Promise<void> {
  const { cookies } = options
  await scope.register(fastifySession, {
    // With the library's own signer a change of secrets would sign users out.
    secret: {
      sign: cookies.sign,
      unsign(value) {
        const verified = cookies.verify(value)
        return { valid: verified !== null, renew: false, value: verified?.sessionId ?? null }
      },
    },
    cookieName: cookies.sessionName,
    cookie: cookies.sessionAttributes,
    idGenerator: cookies.newSessionId,
    rolling: false,
    saveUninitialized: false,
    store: createLibraryStore(options),
  })
}

/**
 * The store as @fastify/session sees it. It always finds something: the library would clear the cookie of a session that
 * has ended, and with it the reason.
 */
export function createLibraryStore({
  vault,
  sessionFacts,
  reads = true,
  asking,
}: LibraryStoreOptions): LibraryStore {
  async function load(sessionId: string): Promise<{ state: PageSession }> {
    if (!reads) return { state: { kind: 'unknown', cause: null } }
    try {
      const key = recordKeyOf(sessionId)
      const found = await vault.look(key, asking?.get(key))
      if (found.kind !== 'live') return { state: found }
      const { session } = found
      return { state: { kind: 'live', facts: sessionFacts(session), bound: session.record.bound } }
    } catch (cause) {
      return { state: { kind: 'unknown', cause } }
    }
  }

  /** It never creates a record, so it cannot revive a session that has ended meanwhile. */
  async function confirm(sessionId: string): Promise<void> {
    if (await vault.confirm(recordKeyOf(sessionId))) return
    throw new StoreUnavailable(new Error('there is no record to confirm'))
  }

  async function end(sessionId: string): Promise<void> {
    const key = recordKeyOf(sessionId)
    const request = asking?.get(key)
    await vault.end(key, 'logout', request === undefined ? {} : { request })
  }

  // The library expects callbacks: it would wait forever for a store that returns promises.
  return {
    get: (sessionId, done) => void load(sessionId).then((found) => done(null, found as never), done),
    set: (sessionId, _session, done) => void confirm(sessionId).then(() => done(), done),
    destroy: (sessionId, done) => void end(sessionId).then(() => done(), done),
  }
}
