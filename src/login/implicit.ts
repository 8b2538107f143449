import { randomUUID } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Config } from '../config/config.ts'
import { problem, unavailable } from '../errors.ts'
import type { Logger } from '../log.ts'
import { acceptFragment, type FragmentResponse, type GrantedTokens } from '../oauth/token-response.ts'
import type { NonceStore } from '../store/store.ts'
import type { Revoker } from '../tokens/revoker.ts'
import { NOT_YOURS, publicError, requireOwn } from './authorization-answer.ts'
import { comingBack } from './return-to.ts'
import type { FactsOptions } from './session-info.ts'
import { sessionFacts } from './session-info.ts'
import type { SignIn } from './sign-in.ts'
import { loginUrl } from './start.ts'
import type { Transaction, Transactions } from './transaction.ts'
import { TRANSACTION_MS } from './transaction.ts'

export interface FragmentOptions extends FactsOptions {
  redirect: Config['oauth']['redirect']
  issuer: string | null
  store: Pick<NonceStore, 'claimNonce'>
  revoke: Revoker['revoke']
  transactions: Transactions
  signIn: SignIn
  now: () => number
  log: Logger
}

interface FragmentBody extends FragmentResponse {
  error?: string
  state?: string
  iss?: string
}

const TEXT = { type: 'string' }

/** Members that are not named here are ignored (RFC 6749 section 4.2.2). */
export const FRAGMENT_SCHEMA = {
  type: 'object',
  description: 'The members of the fragment; access_token or error. Others are ignored.',
  properties: {
    access_token: { ...TEXT, writeOnly: true },
    token_type: TEXT,
    expires_in: { type: ['string', 'number', 'null'] },
    scope: TEXT,
    error: TEXT,
    state: TEXT,
    iss: TEXT,
  },
} as const

/**
 * `POST /auth/callback/<nonce>`: the answer of a token flow (service document, section 5.4), as the page of
 * the callback read it. Answers with the facts of the new session; `Location` says where the page goes.
 */
export function createFragment(options: FragmentOptions) {
  const { redirect, issuer, store, revoke, transactions, signIn, now, log } = options

  return async function fragment(request: FastifyRequest, reply: FastifyReply): Promise<object> {
    const { nonce } = request.params as { nonce: string }
    const body = request.body as FragmentBody
    const { state = null, iss = null } = body
    requireOwn({ state, iss }, nonce, issuer)
    if (redirect === 'fixed' && state === null) throw problem('login_failed', 'The state is missing.')
    const transaction = transactions.find(request.headers.cookie, nonce)
    if (transaction?.flow !== 'token') throw problem('login_failed', NOT_YOURS)
    const granted = tokensOf(body, request, reply, nonce, transaction)
    const members = { loginUrl: loginUrl(transaction) }
    if (!(await claim(nonce, granted, members))) throw problem('login_failed', NOT_YOURS)
    transactions.forget(reply, nonce)
    const session = await signIn.signIn(request, reply, { granted, flow: 'token', members })
    reply.header('location', comingBack(transaction.returnTo))
    return sessionFacts(session, options)
  }

  async function claim(nonce: string, granted: GrantedTokens, members: Record<string, string>) {
    try {
      return await store.claimNonce(nonce, randomUUID(), TRANSACTION_MS)
    } catch (cause) {
      // The page no longer has it.
      revoke(granted)
      throw unavailable('store_unavailable', 1, cause, members)
    }
  }

  function tokensOf(
    body: FragmentBody,
    request: FastifyRequest,
    reply: FastifyReply,
    nonce: string,
    transaction: Transaction,
  ) {
    if (!body.error === !body.access_token) {
      throw problem('invalid_request', 'Exactly one of the members access_token and error is expected.')
    }
    if (body.error) {
      log.info({ event: 'login.refused', reqId: request.id }, 'the authorization server sent an error')
      transactions.forget(reply, nonce)
      const added = { name: 'login_error', value: publicError(body.error) }
      throw problem('login_failed', {
        detail: 'The authorization server did not accept the sign-in.',
        headers: { location: comingBack(transaction.returnTo, added) },
      })
    }
    const granted = acceptFragment(body, now())
    // Without a refresh token, one that is due at once would be a session that has ended.
    if (granted !== null && granted.lifeSeconds > 0) return granted
    throw problem('login_failed', {
      detail: 'The token cannot be used here.',
      members: { loginUrl: loginUrl(transaction) },
    })
  }
}
