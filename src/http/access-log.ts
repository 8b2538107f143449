import type { ServerResponse } from 'node:http'
import type { FastifyRequest } from 'fastify'
import type { Config } from '../config/config.ts'
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
 * Tells of an answer that is over, whoever wrote it. `errors` logs answers from 400 on, at `info`, and
 * from 500 on at `error`.
 */
export function createRequestLog({ mode, log, observe }: RequestLogOptions) {
  return function answered(request: FastifyRequest, response: ServerResponse, ms: number): void {
    const status = response.headersSent ? response.statusCode : CLIENT_GONE
    observe(request.routeOptions.url ?? 'none', request.method, status, ms / 1_000)
    if (mode === 'off' || (mode === 'errors' && status < 400)) return
    const line = {
      event: 'request',
      reqId: request.id,
      method: request.method,
      path: pathOf(request.url),
      status,
      ms: Math.round(ms * 1e3) / 1e3,
      complete: response.writableFinished,
    }
    if (status >= 500) log.error(line)
    else log.info(line)
  }
}
