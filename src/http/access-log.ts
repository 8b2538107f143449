import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Config } from '../config.ts'
import type { Logger } from '../log.ts'
import { pathOf } from '../log.ts'

/** An answer that was over before its head was written. */
const CLIENT_GONE = 499

export interface RequestLogOptions {
  mode: Config['accessLog']
  log: Logger
  /** Seconds from the request's head to the end of its answer. */
  observe: (route: string, method: string, status: number, seconds: number) => void
}

/**
 * Follows each answer to its end, whoever writes it. `errors` logs answers from 400 on, at `info`,
 * and from 500 on at `error`.
 */
export function createRequestLog({ mode, log, observe }: RequestLogOptions) {
  return function follow(request: FastifyRequest, reply: FastifyReply): void {
    const startedAt = performance.now()
    const { raw } = reply
    raw.once('close', () => {
      const status = raw.headersSent ? raw.statusCode : CLIENT_GONE
      const seconds = (performance.now() - startedAt) / 1_000
      observe(request.routeOptions.url ?? 'none', request.method, status, seconds)
      if (mode === 'off' || (mode === 'errors' && status < 400)) return
      const line = {
        event: 'request',
        reqId: request.id,
        method: request.method,
        path: pathOf(request.url),
        status,
        ms: Math.round(seconds * 1e6) / 1e3,
        complete: raw.writableFinished,
      }
      if (status >= 500) log.error(line)
      else log.info(line)
    })
  }
}
