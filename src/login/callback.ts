import { randomUUID } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Config } from '../config.ts'
import type { Problem } from '../errors.ts'
import { problem, unavailable } from '../errors.ts'
import type { Logger } from '../log.ts'
import type { AuthorizationServer } from '../oauth/authorization-server.ts'
import type { GrantedTokens, TokenOutcome } from '../oauth/outcome.ts'
import type { SessionCookies } from '../session/cookies.ts'
import { recordKeyOf } from '../session/cookies.ts'
import type { RecordKey, SessionStore } from '../store/port.ts'
import { inLog } from '../store/port.ts'
import type { Tokens } from '../tokens/tokens.ts'
import { queryOf, soleParameter } from './query.ts'
import { comingBack } from './return-to.ts'
import { redirectUri } from './start.ts'
import type { Transaction, Transactions } from './transaction.ts'
import { TRANSACTION_MS } from './transaction.ts'

export interface CallbackOptions {
  publicUrl: string
  redirect: Config['oauth']['redirect']
  issuer: string | null
  authorizationServer: AuthorizationServer
  store: SessionStore
  tokens: Tokens
  cookies: SessionCookies
  transactions: Transactions
  log: Logger
}

const HOME = '/'
const NONCE = /^[A-Za-z0-9_-]{43}$/

/**
 * `GET /auth/callback/<nonce>`: the browser comes back from the authorization server. Nothing is
 * redeemed unless this browser began this sign-in, and once at most over all replicas.
 */
export function createCallback(options: CallbackOptions) {
  const { publicUrl, redirect, issuer, authorizationServer, store, tokens, cookies, transactions, log } =
    options

  return async function callback(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const answer = readAnswer(queryOf(request.url))
    const nonce = redirect === 'fixed' ? answer.state : (request.params as { nonce: string }).nonce
    if (nonce === null || !NONCE.test(nonce))
      throw problem('login_failed', 'This address belongs to no sign-in.')
    if (answer.state !== null && answer.state !== nonce)
      throw problem('login_failed', 'The state is not the one sent.')
    if (issuer !== null && answer.iss !== null && answer.iss !== issuer) {
      throw problem('login_failed', 'The answer comes from another issuer.')
    }
    const transaction = transactions.find(request.headers.cookie, nonce)
    if (transaction === null) return await withoutTransaction(request, reply, nonce)
    if (answer.code === null) {
      log.info({ event: 'login.refused', reqId: request.id }, 'the authorization server sent an error')
      const added = { name: 'login_error', value: publicError(answer.error) }
      return goTo(reply, nonce, comingBack(transaction.returnTo, added))
    }
    if (!(await store.claimNonce(nonce, randomUUID(), TRANSACTION_MS))) {
      return await withoutTransaction(request, reply, nonce)
    }
    // Used up, however it ends: left behind, it would count among the few that a browser may have.
    transactions.forget(reply, nonce)
    const outcome = await authorizationServer.redeemCode({
      redirectUri: redirectUri(publicUrl, redirect, nonce),
      code: answer.code,
      verifier: transaction.verifier,
    })
    if (outcome.kind !== 'granted') throw failed(outcome, transaction, request)
    await signIn(request, reply, outcome.tokens, transaction)
    return goTo(reply, nonce, comingBack(transaction.returnTo))
  }

  async function signIn(
    request: FastifyRequest,
    reply: FastifyReply,
    granted: GrantedTokens,
    transaction: Transaction,
  ): Promise<void> {
    const before = replacedSession(request)
    const key = recordKeyOf(request.session.sessionId)
    try {
      await tokens.keep(key, granted, 'code')
      // Unchanged before, or the library would save it once more at the end of a request that failed.
      await request.session.save()
    } catch (cause) {
      tokens.drop(granted)
      // Either step may have run without an answer; a session that nobody knows would be refreshed for hours.
      tokens.abandon(key)
      log.error({ event: 'login.unsaved', reqId: request.id, err: cause }, 'a sign-in could not be stored')
      throw unavailable('store_unavailable', 1, cause, retryMembers(transaction))
    }
    reply.setCookie(cookies.recordName, cookies.sealRecordKey(key), {
      ...cookies.attributes,
      sameSite: 'lax',
    })
    log.info({ event: 'login.succeeded', reqId: request.id, recordKey: inLog(key) }, 'signed in')
    if (before === null) return
    try {
      await tokens.end(before, 'replaced')
    } catch (cause) {
      log.warn(
        { event: 'login.replaced_left', reqId: request.id, err: cause },
        'the session before could not be ended',
      )
    }
  }

  /** A Strict cookie does not come back from another site; the Lax one does. */
  function replacedSession(request: FastifyRequest): RecordKey | null {
    return request.recordKey ?? cookies.openRecordKey(request.cookies[cookies.recordName])
  }

  /** Reload and Back lead here after a sign-in that has succeeded: then the way is home. */
  async function withoutTransaction(
    request: FastifyRequest,
    reply: FastifyReply,
    nonce: string,
  ): Promise<FastifyReply> {
    const key = replacedSession(request)
    if (key !== null && (await store.nonceClaimed(nonce))) {
      const found = await tokens.find(key)
      if (found.kind === 'live') return goTo(reply, nonce, comingBack(HOME))
    }
    throw problem(
      'login_failed',
      'This sign-in was not started in this browser, is too old, or has been used.',
    )
  }

  function goTo(reply: FastifyReply, nonce: string, location: string): FastifyReply {
    transactions.forget(reply, nonce)
    return reply.redirect(location, 303)
  }

  function failed(
    outcome: Exclude<TokenOutcome, { kind: 'granted' }>,
    transaction: Transaction,
    request: FastifyRequest,
  ): Problem {
    const reason = outcome.kind === 'refused' ? outcome.error : outcome.reason
    log.warn(
      { event: 'login.failed', reqId: request.id, outcome: outcome.kind, reason },
      'a code was not redeemed',
    )
    const members = retryMembers(transaction)
    if (outcome.kind === 'refused') {
      return problem('login_failed', {
        detail: 'The authorization server did not accept the sign-in.',
        members,
      })
    }
    if (outcome.timedOut) return problem('upstream_timeout', { members })
    if (outcome.kind === 'in_doubt') return problem('upstream_unavailable', { members })
    return unavailable('authorization_server_unavailable', outcome.retryAfterSeconds ?? 5, undefined, members)
  }
}

interface AuthorizationAnswer {
  code: string | null
  error: string | null
  state: string | null
  iss: string | null
}

/** RFC 6749 sections 3.1 and 4.1.2: unknown parameters are ignored, none may be repeated. */
function readAnswer(query: URLSearchParams): AuthorizationAnswer {
  const [code, error, state, iss] = ['code', 'error', 'state', 'iss'].map((name) =>
    soleParameter(query, name),
  )
  if (new Set(query.keys()).size !== query.size) throw problem('invalid_request', 'A parameter is repeated.')
  if (!code === !error)
    throw problem('invalid_request', 'Exactly one of the parameters code and error is expected.')
  return { code: code || null, error: error || null, state: state ?? null, iss: iss ?? null }
}

function publicError(error: string | null): string {
  return error === 'access_denied' || error === 'temporarily_unavailable' ? error : 'server_error'
}

function retryMembers(transaction: Transaction): Record<string, string> {
  return { loginUrl: `/auth/login?returnTo=${encodeURIComponent(transaction.returnTo)}` }
}
