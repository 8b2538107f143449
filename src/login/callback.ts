import { randomUUID } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Config } from '../config/config.ts'
import { problem } from '../errors.ts'
import type { Logger } from '../log.ts'
import type { AuthorizationServer } from '../oauth/client.ts'
import type { SessionCookies } from '../session/cookies.ts'
import type { Sessions } from '../session/sessions.ts'
import type { NonceStore } from '../store/store.ts'
import type { AuthorizationAnswer } from './authorization-answer.ts'
import { NOT_YOURS, ONE_OF_BOTH, publicError, readAnswer, requireOwn } from './authorization-answer.ts'
import { grantProblem } from './grant-problem.ts'
import { sendFragmentPage } from './implicit-page.ts'
import { queryOf } from './query.ts'
import { comingBack } from './return-to.ts'
import type { SignIn } from './sign-in.ts'
import { loginUrl, redirectUri } from './start.ts'
import type { Transactions } from './transaction.ts'
import { TRANSACTION_MS } from './transaction.ts'

export interface CallbackOptions {
  publicUrl: string
  redirect: Config['oauth']['redirect']
  flows: Config['oauth']['flows']
  issuer: string | null
  authorizationServer: Pick<AuthorizationServer, 'redeemCode'>
  store: Pick<NonceStore, 'claimNonce' | 'nonceClaimed'>
  sessions: Pick<Sessions, 'find'>
  cookies: SessionCookies
  transactions: Transactions
  signIn: SignIn
  log: Logger
}

const HOME = '/'

/**
 * `GET /auth/callback/<nonce>`: the browser comes back from the authorization server. Nothing is
 * redeemed unless this browser began this sign-in, and once at most over all replicas.
 */
export function createCallback(options: CallbackOptions) {
  const {
    publicUrl,
    redirect,
    flows,
    issuer,
    authorizationServer,
    store,
    sessions,
    cookies,
    transactions,
    log,
  } = options
  const { signIn } = options.signIn

  return async function callback(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const answer = readAnswer(queryOf(request.url))
    const { nonce = answer.state ?? '' } = request.params as { nonce?: string }
    if (answer.kind === 'none') return await withoutAnswer(request, reply, answer, nonce)
    requireOwn(answer, nonce, issuer)
    const transaction = transactions.find(request.headers.cookie, nonce)
    if (transaction === null) return await withoutTransaction(request, reply, nonce)
    if (answer.kind === 'error') {
      log.info({ event: 'login.refused', reqId: request.id }, 'the authorization server sent an error')
      const added = { name: 'login_error', value: publicError(answer.value) }
      return goTo(reply, nonce, comingBack(transaction.returnTo, added))
    }
    if (transaction.flow !== 'code') throw problem('login_failed', 'This sign-in did not ask for a code.')
    if (!(await store.claimNonce(nonce, randomUUID(), TRANSACTION_MS))) {
      return await withoutTransaction(request, reply, nonce)
    }
    // Used up, however it ends: left behind, it would count among the few that a browser may have.
    transactions.forget(reply, nonce)
    const outcome = await authorizationServer.redeemCode({
      redirectUri: redirectUri(publicUrl, redirect, nonce),
      code: answer.value,
      verifier: transaction.verifier,
    })
    const members = { loginUrl: loginUrl(transaction) }
    if (outcome.kind !== 'granted') {
      const { kind } = outcome
      log.warn(
        { event: 'login.failed', reqId: request.id, outcome: kind, reason: outcome.reason },
        'a code was not redeemed',
      )
      const detail = 'The authorization server did not accept the sign-in.'
      throw grantProblem(outcome, () => problem('login_failed', { detail, members }), members)
    }
    await signIn(request, reply, { granted: outcome.tokens, flow: 'code', members })
    return goTo(reply, nonce, comingBack(transaction.returnTo))
  }

  /** The response of the token flow is in the fragment, which browsers do not send. */
  async function withoutAnswer(
    request: FastifyRequest,
    reply: FastifyReply,
    answer: AuthorizationAnswer,
    nonce: string,
  ): Promise<FastifyReply> {
    const { cookie } = request.headers
    if (!flows.has('token')) throw problem('invalid_request', ONE_OF_BOTH)
    if (redirect === 'fixed') {
      const again = loginUrl({ flow: 'token', returnTo: HOME })
      if (transactions.awaitsFragment(cookie)) return sendFragmentPage(reply, again)
      throw problem('invalid_request', ONE_OF_BOTH)
    }
    requireOwn(answer, nonce, issuer)
    const transaction = transactions.find(cookie, nonce)
    if (transaction === null) return await withoutTransaction(request, reply, nonce)
    if (transaction.flow !== 'token') throw problem('invalid_request', ONE_OF_BOTH)
    return sendFragmentPage(reply, loginUrl(transaction))
  }

  /** Reload and Back lead here after a sign-in that has succeeded: then the way is home. */
  async function withoutTransaction(
    request: FastifyRequest,
    reply: FastifyReply,
    nonce: string,
  ): Promise<FastifyReply> {
    const key = cookies.recordKeyOf(request)
    if (key !== null && (await store.nonceClaimed(nonce))) {
      const found = await sessions.find(key)
      if (found.kind === 'live') return goTo(reply, nonce, comingBack(HOME))
    }
    throw problem('login_failed', NOT_YOURS)
  }

  function goTo(reply: FastifyReply, nonce: string, location: string): FastifyReply {
    transactions.forget(reply, nonce)
    return reply.redirect(location, 303)
  }
}
