import { randomBytes } from 'node:crypto'
import http, { type IncomingMessage, maxHeaderSize, type RequestListener } from 'node:http'
import { BlockList, isIPv6, type Socket } from 'node:net'
import createAjvCompiler from '@fastify/ajv-compiler'
import createSerializerCompiler from '@fastify/fast-json-stringify-compiler'
import Fastify, {
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyRequest,
  LogController,
} from 'fastify'
import type { Config } from '../config/config.ts'
import type { Logger } from '../log.ts'
import { decodedPath, isOwnPath } from '../paths.ts'
import { HEADER_LINES_KEPT } from './ambiguity.ts'
import { createClientErrors } from './client-errors.ts'
import { createConnections } from './connections.ts'
import { addSecurityHeaders } from './headers.ts'
import { isNavigation } from './navigation.ts'
import { sendProblem, toProblem } from './problems.ts'
import { RequestLog } from './request-log.ts'

declare module 'fastify' {
  interface FastifyInstance {
    /** From now on each response ends its connection. */
    drain: () => void
    /** Of the requests to which nothing has been sent. */
    unanswered: () => FastifyReply[]
    /** Whether `TRUST_PROXY` names the peer of a connection. */
    isTrustedPeer: (socket: Socket) => boolean
  }
}

/**
 * A Fastify server that adds no response or type coercion of its own. Its handlers and plugins log with `request.log`
 * and `server.log`, by the rules of log.ts. `hooks` completes it. It calls `onStop` before all else when it closes.
 */
export function createServer(config: Config, log: Logger, onStop = (): void => {}): FastifyInstance {
  const { trustProxy, secureCookies, static: page, operations } = config
  const newRequestId = createRequestIds()
  const isTrusted = createPeerCheck(trustProxy)
  const clientErrors = createClientErrors({ newRequestId, secure: secureCookies })
  const connections = createConnections()
  const server = Fastify({
    // `hooks` writes the line of a request. With a logger as an option Fastify would still listen to each response, for
    // a line of its own: 2 percent of a forwarded call (decision 0008).
    logController: new LogController({ disableRequestLogging: true }),
    childLoggerFactory: (_server, { reqId }) => RequestLog.of(log, String(reqId)),
    genReqId: trustProxy.length === 0 ? newRequestId : createTrustedRequestIds(isTrusted, newRequestId),
    requestIdHeader: false,
    trustProxy: trustProxy.length === 0 ? false : [...trustProxy],
    exposeHeadRoutes: false,
    return503OnClosing: false,
    // No part of a start waits for the outside. With the usual ten seconds a process that gets little CPU would never start.
    pluginTimeout: 0,
    forceCloseConnections: 'idle',
    // No limit of its own: `hooks` limits the whole request target.
    routerOptions: { maxParamLength: maxHeaderSize },
    serverFactory: (handler) => createHttpServer(connections.inTurn(handler), config),
    schemaController: { compilersFactory: COMPILERS },
    ajv: {
      customOptions: {
        coerceTypes: false,
        removeAdditional: false,
        useDefaults: false,
        allowUnionTypes: true,
        // The schemas are constants that tests cover. Their own validation takes most of the time of a start.
        validateSchema: false,
      },
    },
    clientErrorHandler: clientErrors.onClientError,
    // Errors of the router bypass every hook.
    frameworkErrors(error, request, reply) {
      if (page !== null && opensPage(request, operations.length > 0)) {
        request.raw.url = '/'
        return request.server.routing(request.raw, reply.raw)
      }
      request.server.followResponse(request, reply)
      addSecurityHeaders(request, reply, secureCookies)
      reply.header('connection', 'close')
      sendProblem(request, reply, toProblem(error))
    },
  })
  server.log = log.child({ event: 'server' }) as FastifyBaseLogger
  server.decorate('drain', connections.drain)
  server.decorate('unanswered', connections.unanswered)
  server.decorate('isTrustedPeer', isTrusted)
  server.addHook('preClose', () => {
    onStop()
    return connections.close()
  })
  connections.watch(server.server)
  clientErrors.watch(server.server)
  // No hook: errors of the router bypass every hook.
  server.server.prependListener('request', ({ headers, socket }: IncomingMessage) => {
    // A browser could choose what is traced, and in whose trace.
    if (headers.traceparent !== undefined && !isTrusted(socket)) delete headers.traceparent
    const forwarded = headers['x-forwarded-for']
    if (forwarded !== undefined) headers['x-forwarded-for'] = endOfList(String(forwarded))
  })
  return server
}

/**
 * Characters of `X-Forwarded-For` that are read, from its end, where reverse proxies add what they know. A browser may fill
 * the rest with trusted addresses, each of which would be parsed.
 */
const MAX_FORWARDED = 512

function endOfList(forwarded: string): string {
  if (forwarded.length <= MAX_FORWARDED) return forwarded
  const end = forwarded.slice(-MAX_FORWARDED)
  return end.slice(end.indexOf(',') + 1)
}

/** Whether a path that cannot be decoded is of the page, whose start answers a navigation to any path without a file. */
function opensPage(request: FastifyRequest, hasOperations: boolean): boolean {
  const { method, url } = request
  const reads = method === 'GET' || method === 'HEAD'
  return reads && url.startsWith('/') && isNavigation(request) && !isOwnPath(decodedPath(url), hasOperations)
}

function createHttpServer(
  listener: RequestListener,
  { keepAliveSeconds, upstream, oauth }: Config,
): http.Server {
  const limits = {
    requireHostHeader: false,
    requestTimeout: 60_000,
    headersTimeout: 30_000,
    keepAliveTimeout: keepAliveSeconds * 1_000,
    connectionsCheckingInterval: 5_000,
  }
  const server = http.createServer(limits, listener)
  server.maxHeadersCount = HEADER_LINES_KEPT
  // A browser that stops reading would hold its connection for ever.
  server.setTimeout(Math.max(60_000, longestSilenceMs(upstream.timeoutMs, oauth.tokenTimeoutMs)))
  server.on('timeout', endIfStill)
  return server
}

/** In a process that was held up the timer runs before a request is read, or more of a response is written. */
function endIfStill(socket: Socket): void {
  const { bytesRead, writableLength } = socket
  setImmediate(() => {
    if (socket.bytesRead === bytesRead && socket.writableLength === writableLength) socket.destroy()
  })
}

const buildValidator = createAjvCompiler()
const buildSerializer = createSerializerCompiler()

/**
 * Fastify's own, but nothing is compiled that is not used: handlers read paths, queries and headers themselves, before
 * the body, and few responses are written by their schemas. Compiled at the start, all of it would add 28 ms.
 */
const COMPILERS = {
  buildValidator(...options: Parameters<ReturnType<typeof createAjvCompiler>>) {
    const compile = buildValidator(...options)
    // Fastify skips what has no validator.
    return (part: Parameters<typeof compile>[0]) =>
      part.httpPart === 'body' ? compile(part) : (undefined as never)
  },
  buildSerializer(...options: Parameters<typeof buildSerializer>) {
    const compile = buildSerializer(...options)
    return (route: Parameters<typeof compile>[0]) => {
      let write: ReturnType<typeof compile> | undefined
      return (body: unknown) => {
        write ??= compile(route)
        return write(body)
      }
    }
  },
}

/** For Redis and for late timers, for each call. */
const MARGIN_MS = 15_000

/**
 * How long a browser may wait for the head of its response. It takes at most three calls. Each waits for a token: a
 * refresh, and after a failover of Redis a pause as long. Then it waits up to five times for the resource server: for a
 * connection and for the head, for both again if a kept connection is lost, and for the body of an error.
 */
function longestSilenceMs(upstreamTimeoutMs: number, tokenTimeoutMs: number): number {
  return 3 * (5 * upstreamTimeoutMs + 2 * tokenTimeoutMs + MARGIN_MS)
}

// A count costs next to nothing; a random text for each request would not.
function createRequestIds(): () => string {
  const prefix = randomBytes(6).toString('hex')
  let count = 0
  return () => {
    count += 1
    return `${prefix}-${count.toString(36)}`
  }
}

/** Whether `TRUST_PROXY` names the peer of a connection. */
function createPeerCheck(trustProxy: readonly string[]): (socket: Socket) => boolean {
  const trusted = new BlockList()
  for (const network of trustProxy) {
    const [address = '', prefix] = network.split('/')
    const family = isIPv6(address) ? 'ipv6' : 'ipv4'
    if (prefix === undefined) trusted.addAddress(address, family)
    else trusted.addSubnet(address, Number(prefix), family)
  }
  return ({ remoteAddress = '' }) => {
    const peer = remoteAddress.replace(/^::ffff:(?=\d+\.)/, '')
    return trusted.check(peer, isIPv6(peer) ? 'ipv6' : 'ipv4')
  }
}

/** The `X-Request-Id` of a trusted proxy if it has a safe form, else an id of ours. */
function createTrustedRequestIds(isTrusted: (socket: Socket) => boolean, newRequestId: () => string) {
  return ({ headers, socket }: IncomingMessage): string => {
    const given = headers['x-request-id']
    if (typeof given !== 'string' || !/^[A-Za-z0-9._-]{1,64}$/.test(given)) return newRequestId()
    return isTrusted(socket) ? given : newRequestId()
  }
}
