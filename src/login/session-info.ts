import type { FastifyReply, FastifyRequest } from 'fastify'
import { jsonResponse, type OpenApiFragment, problemResponse } from '../http/openapi.ts'
import { PATHS } from '../paths.ts'
import type { SessionCookies } from '../session/cookies.ts'
import type { NewSession, Sessions } from '../session/sessions.ts'
import type { RecordStore } from '../store/store.ts'

/** The facts of a live session that a page may know; instants in ISO 8601, UTC. */
export type SessionFacts = (session: NewSession) => object

/** `defaultWac`: the default account code. */
export function createSessionFacts({ defaultWac }: { defaultWac: string | null }): SessionFacts {
  return ({ record, tokens }) => ({
    authenticated: true,
    flow: record.flow,
    createdAt: iso(record.createdAt),
    idleExpiresAt: iso(record.idleEndsAt),
    expiresAt: iso(record.endsAt),
    accessTokenExpiresAt: iso(tokens.expiresAt),
    refreshable: tokens.refreshToken !== null,
    wac: defaultWac,
  })
}

interface SessionInfoOptions {
  sessions: Pick<Sessions, 'find'>
  store: Pick<RecordStore, 'read'>
  cookies: SessionCookies
  sessionFacts: SessionFacts
}

const ANONYMOUS = { authenticated: false, loginUrl: PATHS.login }
const NO_RECORD = '0'.repeat(64)

/** `GET /auth/session`: the facts of the caller's session. Does not extend it, and never sends a token. */
export function createSessionInfo({ sessions, store, cookies, sessionFacts }: SessionInfoOptions) {
  return async function sessionInfo(request: FastifyRequest, reply: FastifyReply): Promise<object> {
    if (request.recordKey === null) {
      // Throws while the store is down: a page would otherwise send its user to a sign-in that cannot succeed.
      await store.read(NO_RECORD)
      return ANONYMOUS
    }
    const found = await sessions.find(request.recordKey)
    if (found.kind !== 'live') return ANONYMOUS
    if (request.cookieIsOutdated) {
      cookies.setSession(reply, request.session.encryptedSessionId)
      cookies.setRecordKey(reply, request.recordKey)
    }
    return sessionFacts(found.session)
  }
}

const INSTANT = { type: 'string', format: 'date-time' }

const FACTS = {
  authenticated: { const: true },
  flow: { type: 'string' },
  createdAt: INSTANT,
  idleExpiresAt: INSTANT,
  expiresAt: INSTANT,
  accessTokenExpiresAt: INSTANT,
  refreshable: { type: 'boolean' },
  wac: { type: ['string', 'null'], description: 'The default account code.' },
}

/** The OpenAPI document's part on this route. */
export const SESSION_OPENAPI: OpenApiFragment = {
  paths: {
    [PATHS.session]: {
      get: {
        operationId: 'session',
        summary: 'Whether somebody is signed in, and until when',
        security: [],
        responses: {
          200: jsonResponse('What is known of the session; it is not extended.', 'Session'),
          503: problemResponse('store_unavailable'),
        },
      },
    },
  },
  schemas: {
    Session: {
      oneOf: [
        {
          type: 'object',
          required: ['authenticated', 'loginUrl'],
          properties: { authenticated: { const: false }, loginUrl: { type: 'string' } },
        },
        { type: 'object', required: Object.keys(FACTS), properties: FACTS },
      ],
    },
  },
}

function iso(epochMs: number): string {
  return new Date(epochMs).toISOString()
}
