import { relayedHeaders } from '../http/headers.ts'
import { isGone } from './browser.ts'
import type { Call, Outcome } from './call.ts'
import { Exchange } from './exchange.ts'
import { requestHeaders } from './request-headers.ts'
import { createUpstream } from './upstream.ts'

export type { Call, Outcome } from './call.ts'

export interface ForwarderOptions {
  /** The resource server; may have a path prefix; no trailing slash. */
  baseUrl: string
  /** For connecting (or waiting for a connection), for the answer's head, and between two parts of its body. */
  timeoutMs: number
  /** `query`: `access_token` is appended to the query, and no `Authorization` is sent. */
  tokenIn: 'header' | 'query'
  /** Browsers come by https. */
  secure: boolean
  /** Connections to the resource server at most, for reads and for updates each. */
  connections?: number
  /** A browser that takes nothing of a waiting answer for so long counts as gone. */
  readerTimeoutMs?: number
}

export interface Forwarder {
  /**
   * Sends one call and relays its answer; `settle` is called once, when it is known what became of it.
   * Where nothing was written, the same response may then be used for another call, or for an error.
   */
  forward(call: Call, settle: (outcome: Outcome) => void): void
  /** Waits for the calls under way, then closes the connections. */
  close(): Promise<void>
}

/** The way to the resource server for both operations. */
export function createForwarder(options: ForwarderOptions): Forwarder {
  const { timeoutMs, tokenIn, connections = 128, readerTimeoutMs = 60_000 } = options
  const base = new URL(options.baseUrl)
  const prefix = base.pathname.replace(/\/$/, '')
  const upstream = createUpstream({ origin: base.origin, timeoutMs, connections })
  const terms = { upstream, timeoutMs, readerTimeoutMs, protection: relayedHeaders(options.secure) }
  let underWay = 0
  let whenIdle: (() => void) | null = null

  return {
    forward(call, settle) {
      const { request, method, accept, contentType } = call
      if (isGone(call)) return settle({ kind: 'client_gone' })
      const authorization = tokenIn === 'header' ? call.authorization : null
      const path = prefix + (tokenIn === 'header' ? call.path : withToken(call.path, call.authorization))
      const headers = requestHeaders(request, { method, accept, contentType, authorization })
      underWay += 1
      const over = (outcome: Outcome): void => {
        underWay -= 1
        if (underWay === 0) whenIdle?.()
        settle(outcome)
      }
      new Exchange(call, path, headers, terms, over).start()
    },
    async close() {
      if (underWay > 0) await new Promise<void>((resolve) => (whenIdle = resolve))
      await upstream.destroy()
    },
  }
}

function withToken(path: string, authorization: string | null): string {
  if (authorization === null) return path
  const token = encodeURIComponent(authorization.slice('Bearer '.length))
  return `${path}${path.includes('?') ? '&' : '?'}access_token=${token}`
}
