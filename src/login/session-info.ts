import type { FastifyReply, FastifyRequest } from 'fastify'
import { PATHS } from '../paths.ts'
import type { SessionCookies } from '../session/cookies.ts'
import type { NewSession, Sessions } from '../session/sessions.ts'
import type { RecordStore } from '../store/store.ts'

export interface FactsOptions {
  defaultWac: string | null
}

export interface SessionInfoOptions extends FactsOptions {
  sessions: Pick<Sessions, 'find'>
  store: Pick<RecordStore, 'read'>
  cookies: SessionCookies
}

const ANONYMOUS = { authenticated: false, loginUrl: PATHS.login }
const NOBODY = '0'.repeat(64)

/** `GET /auth/session`: what a page may know of its session. Extends nothing; never holds a token. */
export function createSessionInfo({ sessions, store, cookies, ...options }: SessionInfoOptions) {
  return async function sessionInfo(request: FastifyRequest, reply: FastifyReply): Promise<object> {
    if (request.recordKey === null) {
      // A page is not told to send its user to sign in while nobody can.
      await store.read(NOBODY)
      return ANONYMOUS
    }
    const found = await sessions.find(request.recordKey)
    if (found.kind !== 'live') return ANONYMOUS
    if (request.cookieIsStale) {
      cookies.setSession(reply, request.session.encryptedSessionId)
      cookies.setRecordKey(reply, request.recordKey)
    }
    return sessionFacts(found.session, options)
  }
}

const INSTANT = { type: 'string', format: 'date-time' }

/** Body of `GET /auth/session`, for OpenAPI: without a session, or as `sessionFacts` writes it. */
export const SESSION_SCHEMA = {
  oneOf: [
    {
      type: 'object',
      required: ['authenticated', 'loginUrl'],
      properties: { authenticated: { const: false }, loginUrl: { type: 'string' } },
    },
    {
      type: 'object',
      required: [
        'authenticated',
        'flow',
        'createdAt',
        'idleExpiresAt',
        'expiresAt',
        'accessTokenExpiresAt',
        'refreshable',
        'wac',
      ],
      properties: {
        authenticated: { const: true },
        flow: { type: 'string' },
        createdAt: INSTANT,
        idleExpiresAt: INSTANT,
        expiresAt: INSTANT,
        accessTokenExpiresAt: INSTANT,
        refreshable: { type: 'boolean' },
        wac: { type: ['string', 'null'], description: 'The default account code.' },
      },
    },
  ],
}

/** What a page may know of a session that lives; instants in ISO 8601, UTC. */
export function sessionFacts({ record, tokens }: NewSession, { defaultWac }: FactsOptions): object {
  return {
    authenticated: true,
    flow: record.flow,
    createdAt: iso(record.createdAt),
    idleExpiresAt: iso(record.idleEndsAt),
    expiresAt: iso(record.endsAt),
    accessTokenExpiresAt: iso(tokens.expiresAt),
    refreshable: tokens.refreshToken !== null,
    wac: defaultWac,
  }
}

function iso(epochMs: number): string {
  return new Date(epochMs).toISOString()
}
