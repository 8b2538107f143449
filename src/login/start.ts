import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Config } from '../config/config.ts'
import { REDIRECT_FLOWS, type RedirectFlow } from '../config/variables.ts'
import { problem, unavailable } from '../errors.ts'
import { isNavigation } from '../http/navigation.ts'
import { networkOf } from '../http/network-of.ts'
import { OTHER_ERROR, pageResponse, parameters, problemOrPage, redirectResponse } from '../http/openapi.ts'
import { parameterAt } from '../http/problems.ts'
import { cameFrom } from '../http/same-origin.ts'
import { queryOf, soleParameter } from './authorization-response.ts'
import type { LoginContext } from './context.ts'
import { loginUrl } from './login-cookies.ts'
import { sendPage } from './pages.ts'
import { createSendToPublicHost } from './public-host.ts'
import { createRateLimit } from './rate-limit.ts'
import { isLocalPath } from './return-to.ts'

type Flows = Config['oauth']['flows']

const FRAMED = /^(iframe|frame|fencedframe|embed|object)$/

/**
 * `GET /auth/login`: sends a navigating browser to the authorization server. Works without the store, and a visitor who
 * never signs in leaves nothing there but a count.
 */
export function createStart(context: LoginContext) {
  const { services, loginCookies } = context
  const { config, authorizationClient } = services
  const { publicUrl, loginRatePerMinute: perMinute } = config
  const sendToPublicHost = createSendToPublicHost(services)
  const { flows } = config.oauth
  const countSignIn = createRateLimit({ ...services, kind: 'sign-in', perMinute })

  return async function start(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const { headers } = request
    if (isPrefetch(request)) {
      const detail = 'A prefetch begins no sign-in: open this address instead.'
      throw unavailable('authorization_server_unavailable', 1, { detail, reason: detail, isExpected: true })
    }
    const { 'sec-fetch-mode': mode, 'sec-fetch-dest': destination = 'document' } = headers
    if ((mode !== undefined && !isNavigation(request)) || FRAMED.test(destination)) {
      throw problem(
        'cross_origin',
        `This request comes ${cameFrom(headers, publicUrl)}. Sign-in starts with a navigation of the whole page to ${publicUrl}, not in a script or a frame.`,
      )
    }
    if (sendToPublicHost(request, reply)) return reply
    await countSignIn(networkOf(request.ip))
    const query = queryOf(request.url)
    requireKnown(query)
    const flow = flowOf(soleParameter(query, 'flow'), flows)
    const returnTo = returnToOf(query, publicUrl)
    if (headers['sec-fetch-site'] === 'cross-site') {
      return sendPage(reply, {
        status: 200,
        title: 'Sign in',
        text: 'Another site has sent you here to sign in. Go on only if you meant to.',
        link: { href: loginUrl({ flow, returnTo }), words: 'Sign in', isButton: true },
      })
    }
    const { nonce, redirectUri, verifier } = loginCookies.begin(reply, headers.cookie, { flow, returnTo })
    const location = authorizationClient.authorizeUrl({
      responseType: flow,
      redirectUri,
      state: nonce,
      verifier,
    })
    return reply.redirect(location, 303)
  }
}

/** Whether the browser fetches the page before somebody asks for it (Fetch section 3.9, `Sec-Purpose`). */
function isPrefetch({ headers }: Pick<FastifyRequest, 'headers'>): boolean {
  return /\bprefetch\b/i.test(String(headers['sec-purpose'] ?? ''))
}

/** Throws if the query has a parameter that would be ignored: the browser would come back to another address. */
function requireKnown(query: URLSearchParams): void {
  const names = [...query.keys()]
  const position = names.findIndex((name) => name !== 'returnTo' && name !== 'flow')
  if (position < 0) return
  const name = names[position] ?? ''
  const remedy = /^(?:return|redirect|next|target|continue|callback)[a-z_-]*$/i.test(name)
    ? 'the return address is the parameter returnTo'
    : 'if it is part of the return address, encode that: returnTo= and encodeURIComponent(address)'
  throw problem('invalid_request', `${parameterAt(position, name)} is not known: ${remedy}.`)
}

/** The requested flow if it is permitted; without a request the first permitted one. */
function flowOf(given: string | null, flows: Flows): RedirectFlow {
  const permitted = permittedFlows(flows)
  const flow = given === null ? permitted[0] : permitted.find((name) => name === given)
  if (flow !== undefined) return flow
  const names =
    permitted.length === 0 ? 'absent: no sign-in by redirect is served here' : permitted.join(' or ')
  throw problem('invalid_request', `The parameter flow must be ${names}.`)
}

function permittedFlows(flows: Flows): RedirectFlow[] {
  return REDIRECT_FLOWS.filter((flow) => flows.has(flow))
}

function returnToOf(query: URLSearchParams, publicUrl: string): string {
  const [given = '/', ...more] = query.getAll('returnTo')
  if (more.length > 0) throw problem('invalid_return_to', 'The parameter returnTo is repeated.')
  if (isLocalPath(given, publicUrl)) return given
  throw problem(
    'invalid_return_to',
    'The parameter returnTo must be the path of a page of this site, of at most 512 bytes.',
  )
}

/** Schema of the route, with these flows. */
export function startSchema(flows: Flows) {
  const permitted = permittedFlows(flows)
  return {
    operationId: 'login',
    tags: ['session'],
    summary: 'Navigate here to sign in',
    security: [],
    querystring: parameters({
      returnTo: {
        type: 'string',
        maxLength: 512,
        pattern: String.raw`^/([^/\\\s\x00-\x1f\x7f-\x9f][^\\\s\x00-\x1f\x7f-\x9f]*)?$`,
        default: '/',
        description: 'The path of a page of this site.',
        examples: ['/'],
      },
      ...(permitted.length > 1
        ? { flow: { type: 'string', enum: permitted, examples: [permitted[0]] } }
        : {}),
    }),
    response: {
      200: pageResponse('A page with a button, where another site has sent the browser here.'),
      303: redirectResponse(
        'To the authorization server; by another host name first to the same path at `PUBLIC_URL`.',
      ),
      400: problemOrPage('invalid_return_to, invalid_request'),
      403: problemOrPage('cross_origin: not a navigation'),
      429: problemOrPage('rate_limited'),
      503: problemOrPage('authorization_server_unavailable: a prefetch'),
      default: problemOrPage(OTHER_ERROR),
    },
  }
}
