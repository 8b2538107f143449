import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Config } from '../config/config.ts'
import { problem } from '../errors.ts'
import type { AuthorizationServer } from '../oauth/client.ts'
import { PATHS } from '../paths.ts'
import { sendPage } from './pages.ts'
import { queryOf, soleParameter } from './query.ts'
import type { RateLimit } from './rate-limit.ts'
import { networkOf } from './rate-limit.ts'
import { localPath } from './return-to.ts'
import type { Transaction, Transactions } from './transaction.ts'

export interface StartOptions {
  publicUrl: string
  redirect: Config['oauth']['redirect']
  authorizationServer: Pick<AuthorizationServer, 'authorizeUrl'>
  transactions: Transactions
  flows: Config['oauth']['flows']
  /** Throws where this client begins too many sign-ins. */
  countSignIn: RateLimit
}

const FRAMED = /^(iframe|frame|fencedframe|embed|object)$/

/** `redirect_uri` of a sign-in: one for each where the authorization server need not echo `state`. */
export function redirectUri(publicUrl: string, redirect: Config['oauth']['redirect'], nonce: string): string {
  const address = publicUrl + PATHS.callback
  return redirect === 'fixed' ? address : `${address}/${nonce}`
}

/** Where this sign-in can be begun again; a path. */
export function loginUrl({ flow, returnTo }: Pick<Transaction, 'flow' | 'returnTo'>): string {
  return `${PATHS.login}?returnTo=${encodeURIComponent(returnTo)}${flow === 'code' ? '' : `&flow=${flow}`}`
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
  flows,
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
    countSignIn(networkOf(request.ip))
    const query = queryOf(request.url)
    const flow = flowOf(soleParameter(query, 'flow'), flows)
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
          href: loginUrl({ flow, returnTo }),
          words: 'Sign in',
          isButton: true,
        },
      })
    }
    const { nonce, verifier } = transactions.begin(reply, headers.cookie, { flow, returnTo })
    const location = await authorizationServer.authorizeUrl({
      responseType: flow,
      redirectUri: redirectUri(publicUrl, redirect, nonce),
      state: nonce,
      verifier,
    })
    return reply.redirect(location, 303)
  }
}

/** The flow asked for, where it is permitted; unasked, the first of code and token that is. */
function flowOf(given: string | null, flows: Config['oauth']['flows']): Transaction['flow'] {
  const permitted = (['code', 'token'] as const).filter((flow) => flows.has(flow))
  const flow = given === null ? permitted[0] : permitted.find((name) => name === given)
  if (flow !== undefined) return flow
  const names =
    permitted.length === 0 ? 'absent: no sign-in by redirect is served here' : permitted.join(' or ')
  throw problem('invalid_request', `The parameter flow must be ${names}.`)
}

function parameterReturnTo(query: URLSearchParams): string {
  const given = query.getAll('returnTo')
  if (given.length > 1) throw problem('invalid_return_to', 'The parameter returnTo is repeated.')
  return given[0] ?? '/'
}
