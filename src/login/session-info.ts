import type { FastifyReply, FastifyRequest } from 'fastify'
import { unavailable } from '../errors.ts'
import type { SessionCookies } from '../session/cookies.ts'
import { idleEndsAt } from '../store/limits.ts'
import type { SessionStore } from '../store/port.ts'
import type { Tokens } from '../tokens/tokens.ts'

export interface SessionInfoOptions {
  tokens: Tokens
  store: Pick<SessionStore, 'read'>
  cookies: SessionCookies
  idleMs: number
  defaultWac: string | null
}

const ANONYMOUS = { authenticated: false, loginUrl: '/auth/login' }
const NOBODY = '0'.repeat(64)

/** `GET /auth/session`: what a page may know of its session. Extends nothing; never holds a token. */
export function createSessionInfo({ tokens, store, cookies, idleMs, defaultWac }: SessionInfoOptions) {
  return async function sessionInfo(request: FastifyRequest, reply: FastifyReply): Promise<object> {
    if (request.recordKey === null) {
      // A page is not told to send its user to sign in while nobody can.
      await store.read(NOBODY)
      return ANONYMOUS
    }
    const found = await tokens.find(request.recordKey)
    if (found.kind === 'store_unavailable') throw unavailable('store_unavailable', 1, found.cause)
    if (found.kind !== 'live') return ANONYMOUS
    if (request.cookieIsStale) {
      const sealed = cookies.sealRecordKey(request.recordKey)
      reply.setCookie(cookies.sessionName, request.session.encryptedSessionId, {
        ...cookies.attributes,
        sameSite: 'strict',
      })
      reply.setCookie(cookies.recordName, sealed, { ...cookies.attributes, sameSite: 'lax' })
    }
    const { record, tokens: held } = found.session
    return {
      authenticated: true,
      flow: record.flow,
      createdAt: iso(record.createdAt),
      idleExpiresAt: iso(idleEndsAt(record, idleMs)),
      expiresAt: iso(record.endsAt),
      accessTokenExpiresAt: iso(held.expiresAt),
      refreshable: held.refreshToken !== null,
      wac: defaultWac,
    }
  }
}

function iso(epochMs: number): string {
  return new Date(epochMs).toISOString()
}
