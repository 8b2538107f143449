import { randomBytes } from 'node:crypto'
import Fastify, { type FastifyInstance } from 'fastify'
import type { Config } from '../config/config.ts'
import { addSecurityHeaders } from './headers.ts'
import { createClientErrors } from './parser-errors.ts'
import { sendProblem, toProblem } from './problems.ts'

/** A Fastify server that adds no log line, response or type coercion of its own. `addHooks` completes it. */
export function createServer({ trustProxy, secureCookies }: Config): FastifyInstance {
  const newRequestId = createRequestIds()
  const clientErrors = createClientErrors({ newRequestId, secure: secureCookies })
  const server = Fastify({
    // Fastify's own lines hold the query, which may hold a code.
    logger: false,
    genReqId: newRequestId,
    requestIdHeader: false,
    trustProxy: trustProxy.length === 0 ? false : [...trustProxy],
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
    // Errors of the router bypass every hook.
    frameworkErrors(error, request, reply) {
      request.server.followResponse(request, reply)
      addSecurityHeaders(request, reply, secureCookies)
      reply.header('connection', 'close')
      sendProblem(request, reply, toProblem(error))
    },
  })
  clientErrors.watch(server.server)
  return server
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
