import { type Attributes, SpanKind } from '@opentelemetry/api'
import type { FastifyInstance } from 'fastify'
import type { Config } from '../config/config.ts'
import type { Logger } from '../log.ts'
import { pathOf } from '../log-text.ts'
import type { WrapTokenFetch } from '../oauth/client.ts'
import type { WrapResourceClient } from '../proxy/routes.ts'
import { inLog, type Refresh, type RefreshResult, StoreUnavailable } from '../vault/vault.ts'
import { createTracer, type Span, type Tracer } from './tracer.ts'

/** The spans of this server (docs/tracing.md), as wrappers around parts that know nothing of them. */
export interface Tracing {
  /** To be called before any other hook is added: what a hook does belongs to the span of its request. */
  traceRequests(server: FastifyInstance): void
  wrapResourceClient: WrapResourceClient
  wrapTokenFetch: WrapTokenFetch
  wrapRefresh(refresh: Refresh): Refresh
  /** Receives each command of the store that ended. */
  command(name: string, seconds: number, ok: boolean): void
  /** Exports what is left. `isLate`: `SHUTDOWN_SECONDS` have passed. */
  close(isLate?: boolean): Promise<void>
}

declare module 'fastify' {
  interface FastifyRequest {
    span: Span | null
  }
}

/** Any other method must not become the name of a span: clients choose it. */
const METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'PATCH'])
/** A stop waits for the collector at most this long, and at most an eighth of `SHUTDOWN_SECONDS` while they last. */
const FLUSH_MS = 1_000

/** Begins to export spans to the collector of `tracing`. */
export function startTracing(
  { baseUrl, publicUrl, shutdownSeconds }: Config,
  tracing: NonNullable<Config['tracing']>,
  log: Logger,
): Tracing {
  const tracer = createTracer(tracing, log)
  return {
    traceRequests: (server) => traceRequests(server, tracer, addressOf(publicUrl)),
    wrapResourceClient: traceCalls(tracer, baseUrl),
    wrapTokenFetch: traceTokenRequests(tracer),
    wrapRefresh: (inner) => ({ ...inner, refresh: traceRefreshes(tracer, inner.refresh) }),
    command: (name, seconds, ok) =>
      tracer.add(`redis ${name}`, {
        kind: SpanKind.CLIENT,
        attributes: { 'db.system.name': 'redis', 'db.operation.name': name },
        seconds,
        error: ok ? undefined : 'unavailable',
      }),
    close: (isLate = false) => tracer.close(isLate ? FLUSH_MS : Math.min(FLUSH_MS, shutdownSeconds * 125)),
  }
}

function traceRequests(server: FastifyInstance, tracer: Tracer, address: Attributes): void {
  server.decorateRequest('span', null)
  server.decorateRequest('traceId')

  server.addHook('onRequest', (request, reply, done) => {
    const method = METHODS.has(request.method) ? request.method : '_OTHER'
    const route = request.routeOptions.url
    const { traceparent } = request.headers
    const span = tracer.start(route === undefined ? method : `${method} ${route}`, {
      kind: SpanKind.SERVER,
      parent: typeof traceparent === 'string' ? traceparent : null,
      attributes: {
        ...address,
        'http.request.method': method,
        'url.path': pathOf(request.url),
        'http.route': route,
        'bff.request_id': request.id,
      },
    })
    request.span = span
    request.traceId = span.traceId
    const { raw } = reply
    raw.on('close', () => {
      if (!raw.headersSent) return span.end({}, 'client_gone')
      const { statusCode, writableFinished } = raw
      const { sentProblem } = request
      const isFault = statusCode >= 500 && sentProblem?.isExpected !== true
      const failed = isFault ? (sentProblem?.code ?? String(statusCode)) : undefined
      span.end({ 'http.response.status_code': statusCode }, failed ?? (writableFinished ? undefined : 'cut'))
    })
    tracer.within(span, done)
  })

  // The end of a body is read in the context of its connection.
  server.addHook('preValidation', (request, _reply, done) => tracer.within(request.span!, done))
}

function traceCalls(tracer: Tracer, baseUrl: string): WrapResourceClient {
  const address = addressOf(baseUrl)
  return (inner) => ({
    send(call, onOutcome) {
      const { operation, method, path } = call.outgoing
      // Without the query, which may hold the access token.
      const url = baseUrl + pathOf(path)
      const span = tracer.start(operation, {
        kind: SpanKind.CLIENT,
        attributes: { ...address, 'http.request.method': method, 'url.full': url },
      })
      // undici calls back in the context of its connection.
      const proceed = tracer.keep(onOutcome)
      call.traceparent = span.traceparent
      inner.send(call, (outcome) => {
        const status = 'status' in outcome ? outcome.status : 0
        const failed = outcome.kind === 'finished' ? failureOf(status) : errorTypeOf(outcome.kind)
        span.end(status === 0 ? {} : { 'http.response.status_code': status }, failed)
        proceed(outcome)
      })
    },
  })
}

function traceTokenRequests(tracer: Tracer): WrapTokenFetch {
  return (inner) => async (url, options) => {
    const { method, body } = options
    const { origin, pathname } = new URL(url)
    const grant = body instanceof URLSearchParams ? body.get('grant_type') : null
    const span = tracer.start(`${method} ${pathname}`, {
      kind: SpanKind.CLIENT,
      attributes: {
        ...addressOf(url),
        'http.request.method': method,
        'url.full': origin + pathname,
        'bff.grant_type': grant ?? undefined,
      },
    })
    try {
      const headers = { ...options.headers, traceparent: span.traceparent }
      const response = await inner(url, { ...options, headers })
      span.end({ 'http.response.status_code': response.status }, failureOf(response.status))
      return response
    } catch (error) {
      span.end({}, 'no_response')
      throw error
    }
  }
}

function traceRefreshes(tracer: Tracer, refresh: Refresh['refresh']): Refresh['refresh'] {
  return (session, trigger) => {
    const span = tracer.start('refresh', {
      kind: SpanKind.INTERNAL,
      parent: trigger === 'schedule' ? null : undefined,
      attributes: { 'bff.refresh.trigger': trigger, 'bff.session': inLog(session.key) },
    })
    return tracer.within(span, async () => {
      const work = refresh(session, trigger)
      void endWith(span, work)
      return await work
    })
  }
}

/** Ends the span of a refresh with its result. The span of a token request that is late ends with its response. */
async function endWith(span: Span, work: Promise<RefreshResult>): Promise<void> {
  try {
    const result = await work
    span.end({ 'bff.refresh.result': result.kind === 'wait' ? result.why : result.kind })
  } catch (error) {
    span.end({}, error instanceof StoreUnavailable ? 'store_unavailable' : 'internal_error')
  }
}

/** A refused access token has the error code of RFC 6750 as its `error.type`. */
function errorTypeOf(kind: string): string {
  return kind === 'token_refused' ? 'invalid_token' : kind
}

/** A client's span counts every refusal as its failure. */
function failureOf(status: number): string | undefined {
  return status >= 400 ? String(status) : undefined
}

function addressOf(url: string): Attributes {
  const { protocol, hostname, port } = new URL(url)
  return {
    'url.scheme': protocol.slice(0, -1),
    'server.address': hostname,
    'server.port': Number(port || (protocol === 'https:' ? 443 : 80)),
  }
}
