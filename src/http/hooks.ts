import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import type { Config } from '../config/config.ts'
import { type Problem, problem } from '../errors.ts'
import type { Logger } from '../log.ts'
import { messageOf, pathOf } from '../log-text.ts'
import { DATA, decodedPath, folderOf, isBelow, PATHS } from '../paths.ts'
import { ambiguityOf } from './ambiguity.ts'
import { leaveBodyUnread } from './body.ts'
import { noteReply, wasSlowReader } from './connections.ts'
import { addSecurityHeaders } from './headers.ts'
import { isNavigation } from './navigation.ts'
import { type ProblemPage, sendProblem, toProblem } from './problems.ts'
import { createRouteTable, type FindPath, type KnownPath } from './route-table.ts'

export interface HooksOptions {
  /** Browsers reach this server by https. */
  secure: boolean
  /** Answers a request for an unknown path with a file or a page, or throws a problem. */
  fallback: (request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply>
  /** There are routes below `/data`. */
  hasOperations: boolean
  /** A problem as a page of fixed text. */
  navigationPage: (request: FastifyRequest, reply: FastifyReply) => ProblemPage
  accessLog: Config['accessLog']
  log: Logger
  /** How the log names the session of a request's cookie; null without a valid cookie. */
  sessionOf: (request: FastifyRequest) => string | null
  /** Receives each finished response but expected problems; seconds from the request's head to the response's end. */
  observe: (request: { route: string; method: string; status: number }, seconds: number) => void
}

/** An operation of the resource server, as log lines name it. */
interface LoggedTarget {
  readonly operation: string
  readonly wac: string | null
  /** What it reads or changes. */
  readonly targetId: string | null
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** How to show a problem with this path as a page; null if this request gets JSON. */
    page?: (request: FastifyRequest, reply: FastifyReply) => ProblemPage | null
    /** The page's build may have a file of this name, for other methods than those of the routes. */
    mayBeFile?: boolean
    /** The route pattern that the OpenAPI document shows in place of that of the route. */
    documentedUrl?: string
    /** Components of the OpenAPI document, by their names, as they are. A shared schema of the same name is replaced. */
    documentedComponents?: Readonly<Record<string, unknown>>
  }
  interface FastifyInstance {
    /** Logs and measures a response when it is over. */
    followResponse: (request: FastifyRequest, reply: FastifyReply) => void
    /**
     * Answers each open request whose response has not begun with 503 `shutting_down`, updates first: browsers send a PUT
     * again whose connection ends without a byte. Resolves once all are written and in the log.
     */
    refuseOpen: () => Promise<void>
  }
  interface FastifyRequest {
    /** Of the trace that this server exports; absent if it exports none. */
    traceId?: string
    /** What is asked of the resource server, for the log; absent until it is known. */
    target?: LoggedTarget
  }
}

/**
 * What every response has in common: one form of error, security headers, 404 and 405 before any other check, and a line
 * in the log. To be registered before the plugins with routes.
 */
export const hooks = fastifyPlugin<HooksOptions>(
  async (server, options) => {
    const { secure, log } = options
    const logResponse = createResponseLog(options)
    const findPath = createRouteTable(server)
    const handleUnmatched = createUnmatchedHandler(findPath, options)
    const warnOfForwarded = createForwardedWarning(log, server.isTrustedPeer)

    server.decorate('followResponse', follow)
    server.decorate('refuseOpen', () => refuseOpen(server.unanswered()))
    server.decorate('problemPage', createProblemPages(findPath, options))
    server.decorateRequest('sentProblem', null)
    server.decorateRequest('target')

    // With a callback: the promise of an async hook would cost more than all that this hook does.
    server.addHook('onRequest', (request, reply, done) => {
      follow(request, reply)
      const ambiguity = ambiguityOf(request.raw)
      if (ambiguity !== null) {
        // The next request on this connection may not begin where it seems to.
        leaveBodyUnread(request, reply)
        return done(ambiguity)
      }
      warnOfForwarded(request)
      // Fastify reads the body before it calls a handler for unknown paths, so they are answered here.
      if (request.is404 || lacksSegment(request)) handleUnmatched(request, reply).catch(done)
      else done()
    })

    // A client that asks first sends no body that is refused by the head.
    server.addHook('preParsing', (request, reply, body, done) => {
      const { headers, raw } = request
      if (headers.expect !== undefined && raw.httpVersionMinor > 0) reply.raw.writeContinue()
      done(null, body)
    })

    server.addHook('onSend', async (request, reply) => addSecurityHeaders(request, reply, secure))

    server.setErrorHandler((error, request, reply) => {
      // The browser left before its file was read. The request's line says so.
      if (reply.raw.closed && (error as NodeJS.ErrnoException).code === 'ERR_STREAM_PREMATURE_CLOSE') return
      const toSend = toProblem(error)
      if (toSend.code === 'payload_too_large') leaveBodyUnread(request, reply)
      if (toSend.status >= 500 && !toSend.isExpected) logFault(log, request, toSend)
      else if (toSend.code === 'cross_origin') logCrossOrigin(log, request, toSend)
      for (const name of HEADERS_OF_FILES) reply.removeHeader(name)
      return sendProblem(request, reply, toSend)
    })

    function follow(request: FastifyRequest, reply: FastifyReply): void {
      const startedAt = performance.now()
      const { raw } = reply
      noteReply(reply)
      raw.on('close', () => logResponse(request, raw, performance.now() - startedAt))
    }
  },
  { name: 'hooks' },
)

async function refuseOpen(replies: FastifyReply[]): Promise<void> {
  const reads = ({ request }: FastifyReply): boolean => READS.has(request.method)
  const ends = replies
    .toSorted((a, b) => Number(reads(a)) - Number(reads(b)))
    .map(async (reply) => {
      const { request } = reply
      const { socket, complete } = request.raw
      const written = once(complete ? reply.raw : socket, 'close')
      leaveBodyUnread(request, reply)
      sendProblem(
        request,
        reply,
        reads(reply) ? problem('shutting_down', READ_REFUSED) : problem('shutting_down', UPDATE_REFUSED),
      )
      await written
    })
  await Promise.all(ends)
}

const READ_REFUSED = { detail: 'This server is stopping. Try again.', headers: { 'retry-after': '1' } }
const UPDATE_REFUSED = 'This server is stopping. The update may have been done: look before you repeat it.'

// A failed file has them already, and caches would keep the failure for a year.
const HEADERS_OF_FILES = [
  'accept-ranges',
  'cache-control',
  'content-encoding',
  'content-range',
  'etag',
  'last-modified',
]

/** Of a response that was cut off although the resource server had more. */
const SLOW_READER = { code: 'client_slow', reason: 'the browser took too little of the response in a minute' }

/** Status of a response that was over before its head was written. */
const CLIENT_GONE = 499

const READS: ReadonlySet<string> = new Set(['GET', 'HEAD'])

/**
 * `errors` logs responses from 400 on, at `info`, and from 500 on at `error` unless they are expected; `writes` also what may
 * change something.
 */
function createResponseLog({ accessLog, log, observe, sessionOf }: HooksOptions) {
  return function logResponse(request: FastifyRequest, response: ServerResponse, ms: number): void {
    const status = response.headersSent ? response.statusCode : CLIENT_GONE
    const isExpected = request.sentProblem?.isExpected === true
    // Alerts count any 5xx, and probes and prefetches come whether somebody uses the page or not.
    if (!isExpected)
      observe({ route: request.routeOptions.url ?? 'none', method: request.method, status }, ms / 1_000)
    const why = whyOf(request, response, status)
    const isLogged =
      accessLog === 'all' ||
      (accessLog !== 'off' && why !== null) ||
      (accessLog === 'writes' && !READS.has(request.method))
    if (!isLogged) return
    const { target } = request
    const line = {
      event: 'request',
      reqId: request.id,
      method: request.method,
      path: pathOf(request.url),
      operation: target?.operation,
      wac: target?.wac ?? undefined,
      targetId: target?.targetId ?? undefined,
      status,
      ms: Math.round(ms),
      complete: response.writableFinished,
      recordKey: sessionOf(request) ?? undefined,
      traceId: request.traceId ?? traceIdOf(request),
    }
    const whole = why === null ? line : { ...line, ...why }
    if (status >= 500 && !isExpected) log.error(whole)
    else log.info(whole)
  }
}

/**
 * Decides which requests see a problem as a page. A known path with a `page` decides itself. Else it is a navigation to
 * /auth, or to data.
 */
function createProblemPages(
  findPath: FindPath,
  { navigationPage, hasOperations }: Pick<HooksOptions, 'navigationPage' | 'hasOperations'>,
) {
  return (request: FastifyRequest, reply: FastifyReply): ProblemPage | null => {
    const known = findPath(request.url)
    if (known?.config.page !== undefined) return known.config.page(request, reply)
    if (!isNavigation(request)) return null
    const path = decodedPath(request.url)
    const isOpened =
      isBelow(PATHS.flux, path) ||
      (hasOperations && isBelow(DATA, path)) ||
      folderOf(path) === folderOf(PATHS.login)
    return isOpened ? navigationPage(request, reply) : null
  }
}

function logCrossOrigin(log: Logger, request: FastifyRequest, { detail }: Problem): void {
  log.warn(
    { event: 'request.cross_origin', reqId: request.id, path: pathOf(request.url), reason: detail },
    'a request from another origin was refused: if it is your page, set PUBLIC_URL to the address in its address bar',
  )
}

/** Why a response is an error or was cut off; null for any other. Without a problem of ours the resource server sent the status. */
function whyOf(
  { sentProblem }: FastifyRequest,
  response: ServerResponse,
  status: number,
): { code: string; reason: string } | null {
  if (wasSlowReader(response)) return SLOW_READER
  if (status < 400) return null
  if (status === CLIENT_GONE) return { code: 'client_gone', reason: 'the browser left before the response' }
  if (sentProblem === null) return { code: 'upstream_error', reason: 'the resource server sent this status' }
  const { code, cause } = sentProblem
  return {
    code,
    reason: sentProblem.reason ?? (cause instanceof Error ? messageOf(cause) : sentProblem.message),
  }
}

/** Trace id of a `traceparent` header (W3C Trace Context). */
function traceIdOf({ headers }: FastifyRequest): string | undefined {
  return /^[0-9a-f]{2}-([0-9a-f]{32})-/.exec(String(headers.traceparent ?? ''))?.[1]
}

function logFault(log: Logger, request: FastifyRequest, toSend: Problem): void {
  const { code, title, cause } = toSend
  const line = { event: 'fault', reqId: request.id, code }
  // The stack of an expected problem says nothing, and an outage would write one for each request.
  if (code === 'internal_error') log.error({ ...line, err: cause ?? toSend }, title)
  else log.warn({ ...line, reason: cause instanceof Error ? messageOf(cause) : undefined }, title)
}

const NOT_DECLARED =
  'No declared operation has this path. An account comes first, and upper and lower case count: see /openapi.json.'

/** Responds to a request that no route takes: 405, a file, or 404. */
function createUnmatchedHandler(
  findPath: FindPath,
  { fallback, hasOperations }: Pick<HooksOptions, 'fallback' | 'hasOperations'>,
) {
  return async function handleUnmatched(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const known = findPath(request.url)
    if (known === null && hasOperations && folderOf(decodedPath(request.url)) === DATA)
      throw problem('not_found', NOT_DECLARED)
    if (known === null) return await fallback(request, reply)
    if (known.config.mayBeFile) return await fileOrRefusal(known, () => fallback(request, reply))
    throw methodNotAllowed(known.allow)
  }
}

/** A file of the page under a known path has methods of its own. */
async function fileOrRefusal(
  { allow }: KnownPath,
  fallback: () => Promise<FastifyReply>,
): Promise<FastifyReply> {
  try {
    return await fallback()
  } catch (error) {
    const { code, headers } = toProblem(error)
    if (code === 'not_found') throw methodNotAllowed(allow)
    throw code === 'method_not_allowed' ? methodNotAllowed(`${headers.allow}, ${allow}`) : error
  }
}

function methodNotAllowed(allow: string): Problem {
  return problem('method_not_allowed', { headers: { allow } })
}

/** `/flux/` and `/flux/DEMO/` match their routes with an empty parameter. */
function lacksSegment(request: FastifyRequest): boolean {
  const params = request.params as Record<string, string>
  for (const name in params) if (params[name] === '') return true
  return false
}

/** What reverse proxies add. Some send no `X-Forwarded-For` by default. */
const OF_PROXIES = ['x-forwarded-for', 'x-forwarded-proto', 'via']

/** Warns once of a peer that forwards requests and is not trusted. */
function createForwardedWarning(log: Logger, isTrustedPeer: FastifyInstance['isTrustedPeer']) {
  let warned = false
  let trusted: string | undefined
  return function warnOfForwarded({ headers, raw: { socket } }: FastifyRequest): void {
    if (warned || !OF_PROXIES.some((name) => headers[name] !== undefined)) return
    const peer = socket.remoteAddress
    if (peer === trusted) return
    if (isTrustedPeer(socket)) {
      trusted = peer
      return
    }
    warned = true
    log.warn(
      { event: 'proxy.untrusted', peer },
      'what this peer says of the address of the browser is ignored: if it is your reverse proxy, name it in TRUST_PROXY',
    )
  }
}
