import { randomBytes } from 'node:crypto'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import Fastify from 'fastify'
import type { Config } from '../config/config.ts'
import type { Problem } from '../errors.ts'
import { problem } from '../errors.ts'
import { messageOf } from '../log.ts'
import { PATHS } from '../paths.ts'
import type { RequestLogOptions } from './access-log.ts'
import { createRequestLog } from './access-log.ts'
import { trackConnections } from './connections.ts'
import { securityHeaders } from './headers.ts'
import { createClientErrors } from './parser-errors.ts'
import { toProblem } from './problems.ts'
import { objectionTo } from './request-checks.ts'

/** A path that exists, and the methods that it takes. */
export interface KnownPath {
  /** A route pattern of `PATHS`. */
  path: string
  allow: string
  /** Where a person may look at a problem: how to show it, null where nobody does. */
  page?: (request: FastifyRequest, reply: FastifyReply) => FastifyRequest['problemPage']
}

export interface HttpOptions extends RequestLogOptions {
  /** What `GET /openapi.json` answers. */
  openApi: object
  secure: boolean
  knownPaths: readonly KnownPath[]
  /** Answers what no route takes, with a file or by throwing a problem. */
  fallback: ((request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply>) | null
}

// A number, not a random text for each request: it costs next to nothing and tells as much.
const PROCESS_ID = randomBytes(6).toString('hex')
let requests = 0

function newRequestId(): string {
  requests += 1
  return `${PROCESS_ID}-${requests.toString(36)}`
}

/** Fastify, made so that it answers, logs and coerces nothing behind our back. */
export function createServer(config: Config): FastifyInstance {
  const clientErrors = createClientErrors({ newRequestId, secure: config.secureCookies })
  const server = Fastify({
    // Its lines hold the query, and with it codes; and with a logger it follows each answer by itself.
    logger: false,
    genReqId: newRequestId,
    requestIdHeader: false,
    trustProxy: config.trustProxy.length === 0 ? false : [...config.trustProxy],
    exposeHeadRoutes: false,
    return503OnClosing: false,
    forceCloseConnections: 'idle',
    routerOptions: { maxParamLength: 4_096 },
    requestTimeout: 60_000,
    keepAliveTimeout: 72_000,
    http: { requireHostHeader: false, headersTimeout: 30_000, connectionsCheckingInterval: 5_000 },
    ajv: {
      customOptions: {
        coerceTypes: false,
        removeAdditional: false,
        useDefaults: false,
        allowUnionTypes: true,
      },
    },
    clientErrorHandler: clientErrors.onClientError,
    // These bypass every hook.
    frameworkErrors(error, request, reply) {
      request.server.followAnswer(request, reply)
      addOwnHeaders(request, reply, config.secureCookies)
      reply.header('connection', 'close')
      sendProblem(request, reply, toProblem(error))
    },
  })
  clientErrors.watch(server.server)
  return server
}

declare module 'fastify' {
  interface FastifyInstance {
    /** Logs and measures an answer when it is over. */
    followAnswer: (request: FastifyRequest, reply: FastifyReply) => void
  }
}

/**
 * The manners of every answer: one form of error, security headers, 404 and 405 before anything else
 * is looked at, and a line in the log.
 */
export function addHttpManners(app: FastifyInstance, options: HttpOptions): void {
  const { secure, fallback, log } = options
  const knownPaths = [...options.knownPaths, { path: PATHS.openApi, allow: 'GET, HEAD' } as KnownPath].map(
    (known) => ({ ...known, matches: matcherOf(known.path) }),
  )
  const answered = createRequestLog(options)
  let warnedOfForwarded = false

  app.decorate('followAnswer', follow)
  app.decorateRequest('problemPage', null)

  const connections = trackConnections(app.server)
  app.addHook('preClose', async () => connections.close())

  // With a callback: the promise of an async hook would cost each request more than all that it does.
  app.addHook('onRequest', (request, reply, done) => {
    follow(request, reply)
    const objection = objectionTo(request.raw)
    if (objection !== null) {
      // What follows on this connection may not be what it seems to be.
      reply.header('connection', 'close')
      return done(objection)
    }
    if (!warnedOfForwarded && request.headers['x-forwarded-for'] !== undefined) warnOfForwarded(request)
    // Here and not in a handler, before which Fastify would read the body.
    if (request.is404 || lacksSegment(request)) answerUnknown(request, reply).catch(done)
    else done()
  })

  app.addHook('onSend', async (request, reply) => {
    addOwnHeaders(request, reply, secure)
  })

  app.setErrorHandler((error, request, reply) => {
    const fault = toProblem(error)
    if (fault.status >= 500) logFault(request, fault)
    return sendProblem(request, reply, fault)
  })

  const description = JSON.stringify(options.openApi)
  app.route({
    method: ['GET', 'HEAD'],
    url: PATHS.openApi,
    handler: (_request, reply) => reply.type('application/json').send(description),
  })

  function follow(request: FastifyRequest, reply: FastifyReply): void {
    const startedAt = performance.now()
    const { raw } = reply
    connections.begin(raw)
    raw.on('close', () => {
      connections.end(raw)
      answered(request, raw, performance.now() - startedAt)
    })
  }

  function logFault(request: FastifyRequest, fault: Problem): void {
    const { code, title, cause } = fault
    const line = { event: 'fault', reqId: request.id, code }
    // Of what was foreseen the stack says nothing, and in an outage there is one for each request.
    if (code === 'internal_error') log.error({ ...line, err: cause ?? fault }, title)
    else log.warn({ ...line, reason: cause instanceof Error ? messageOf(cause) : undefined }, title)
  }

  async function answerUnknown(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const path = routedPath(request.url)
    const known = knownPaths.find((candidate) => candidate.matches.test(path))
    request.problemPage = known?.page?.(request, reply) ?? null
    if (known !== undefined && !known.allow.split(', ').includes(request.method)) {
      throw problem('method_not_allowed', { headers: { allow: known.allow } })
    }
    if (known !== undefined || fallback === null) throw problem('not_found')
    return await fallback(request, reply)
  }

  function warnOfForwarded(request: FastifyRequest): void {
    const peer = request.raw.socket.remoteAddress
    if (request.ip !== peer) return
    warnedOfForwarded = true
    log.warn(
      { event: 'proxy.untrusted', peer },
      'X-Forwarded-For from a peer that TRUST_PROXY does not name is ignored',
    )
  }
}

function addOwnHeaders(request: FastifyRequest, reply: FastifyReply, secure: boolean): void {
  for (const [name, value] of Object.entries(securityHeaders(secure))) {
    if (!reply.hasHeader(name)) reply.header(name, value)
  }
  reply.header('x-request-id', request.id)
}

/** What a route pattern matches, its parameters not empty. */
function matcherOf(pattern: string): RegExp {
  return new RegExp(`^${pattern.replaceAll('.', '\\.').replace(/:\w+/g, '[^/]+')}$`)
}

/** `/flux/` and `/flux/DEMO/` match their routes with an empty parameter. */
function lacksSegment(request: FastifyRequest): boolean {
  const params = request.params as Record<string, string>
  for (const name in params) if (params[name] === '') return true
  return false
}

/** The path as the router reads it: `/%66lux/a` is `/flux/a`, `%2F` parts nothing. */
function routedPath(url: string): string {
  try {
    return decodeURI(url.split('?', 1)[0]!)
  } catch (cause) {
    throw problem('invalid_request', { detail: 'The path is not valid UTF-8.', cause })
  }
}

function sendProblem(request: FastifyRequest, reply: FastifyReply, fault: Problem): unknown {
  for (const [name, value] of Object.entries(fault.headers)) reply.header(name, value)
  if (request.problemPage) return request.problemPage(fault)
  return reply.code(fault.status).type('application/problem+json').send(fault.body(request.id))
}
