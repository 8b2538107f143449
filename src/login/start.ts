import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Config } from '../config.ts'
import { problem } from '../errors.ts'
import type { AuthorizationServer } from '../oauth/authorization-server.ts'
import { sendPage } from './pages.ts'
import { queryOf, soleParameter } from './query.ts'
import { localPath } from './return-to.ts'
import type { Transactions } from './transaction.ts'

export interface StartOptions {
  publicUrl: string
  redirect: Config['oauth']['redirect']
  authorizationServer: AuthorizationServer
  transactions: Transactions
  /** Throws where this client begins too many sign-ins. */
  countSignIn: (address: string) => void
}

const FRAMED = /^(iframe|frame|fencedframe|embed|object)$/

/** `redirect_uri` of a sign-in: one for each where the authorization server need not echo `state`. */
export function redirectUri(publicUrl: string, redirect: Config['oauth']['redirect'], nonce: string): string {
  return redirect === 'fixed' ? `${publicUrl}/auth/callback` : `${publicUrl}/auth/callback/${nonce}`
}

/**
 * `GET /auth/login`: sends a navigating browser to the authorization server. Uses no store, so that
 * visitors who never sign in cost nothing.
 */
export function createStart({
  publicUrl,
  redirect,
  authorizationServer,
  transactions,
  countSignIn,
}: StartOptions) {
  return async function start(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const { headers } = request
    const { 'sec-fetch-mode': mode = 'navigate', 'sec-fetch-dest': destination = 'document' } = headers
    if (mode !== 'navigate' || FRAMED.test(destination)) {
      throw problem(
        'cross_origin',
        'Sign-in starts with a navigation of the whole page, not in a script or a frame.',
      )
    }
    countSignIn(request.ip)
    const query = queryOf(request.url)
    const flow = soleParameter(query, 'flow')
    if (flow !== null && flow !== 'code') throw problem('invalid_request', 'The parameter flow must be code.')
    const returnTo = localPath(parameterReturnTo(query), publicUrl)
    if (returnTo === null) {
      throw problem(
        'invalid_return_to',
        'The parameter returnTo must be a path of this site, of at most 512 bytes.',
      )
    }
    if (headers['sec-fetch-site'] === 'cross-site') {
      return sendPage(reply, {
        status: 200,
        title: 'Sign in',
        text: 'Another site has sent you here to sign in. Go on only if you meant to.',
        link: {
          href: `/auth/login?returnTo=${encodeURIComponent(returnTo)}`,
          words: 'Sign in',
          isButton: true,
        },
      })
    }
    const { nonce, verifier } = transactions.begin(reply, headers.cookie, returnTo)
    const location = await authorizationServer.authorizeUrl({
      redirectUri: redirectUri(publicUrl, redirect, nonce),
      state: nonce,
      verifier,
    })
    return reply.redirect(location, 303)
  }
}

function parameterReturnTo(query: URLSearchParams): string {
  const given = query.getAll('returnTo')
  if (given.length > 1) throw problem('invalid_return_to', 'The parameter returnTo is repeated.')
  return given[0] ?? '/'
}
