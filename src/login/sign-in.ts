import type { FastifyReply, FastifyRequest } from 'fastify'
import type { SessionFlow } from '../config/variables.ts'
import { unavailable } from '../errors.ts'
import type { Logger } from '../log.ts'
import type { GrantedTokens } from '../oauth/token-response.ts'
import type { SessionCookies } from '../session/cookies.ts'
import { recordKeyOf } from '../session/cookies.ts'
import type { NewSession, Sessions } from '../session/sessions.ts'
import type { RecordKey } from '../store/store.ts'
import { inLog } from '../store/store.ts'
import type { Revoker } from '../tokens/revoker.ts'

export interface SignInOptions {
  sessions: Pick<Sessions, 'create' | 'abandon' | 'end'>
  revoke: Revoker['revoke']
  cookies: SessionCookies
  log: Logger
}

export interface SignIn {
  /**
   * Starts a session with these tokens in a route of `newSession`, sets its cookies, and ends the one that
   * this browser had. Throws `store_unavailable`, with `members`, where it cannot be stored; the tokens are
   * then dropped and nothing has changed.
   */
  signIn(
    request: FastifyRequest,
    reply: FastifyReply,
    what: { granted: GrantedTokens; flow: SessionFlow; members?: Record<string, string> },
  ): Promise<NewSession>
}

export function createSignIn({ sessions, revoke, cookies, log }: SignInOptions): SignIn {
  const signIn: SignIn['signIn'] = async (request, reply, { granted, flow, members = {} }) => {
    const before = cookies.recordKeyOf(request)
    const key = recordKeyOf(request.session.sessionId)
    let session: NewSession
    try {
      session = await sessions.create(key, granted, flow)
      // Unchanged before, or the library would save it once more at the end of a request that failed.
      await request.session.save()
    } catch (cause) {
      revoke(granted)
      // Either step may have run without an answer; a session that nobody knows would be refreshed for hours.
      sessions.abandon(key)
      log.error({ event: 'login.unsaved', reqId: request.id, err: cause }, 'a sign-in could not be stored')
      throw unavailable('store_unavailable', 1, cause, members)
    }
    cookies.setRecordKey(reply, key)
    log.info({ event: 'login.succeeded', reqId: request.id, recordKey: inLog(key) }, 'signed in')
    if (before !== null) await endBefore(before, request)
    return session
  }

  async function endBefore(before: RecordKey, request: FastifyRequest): Promise<void> {
    try {
      await sessions.end(before, 'replaced')
    } catch (cause) {
      log.warn(
        { event: 'login.replaced_left', reqId: request.id, err: cause },
        'the session before could not be ended',
      )
    }
  }

  return { signIn }
}
