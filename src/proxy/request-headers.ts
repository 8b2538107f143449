import type { IncomingMessage } from 'node:http'
import { connectionOptions } from './connection-options.ts'

const ANY_METHOD = ['if-match', 'if-unmodified-since', 'accept-language']
const READS_ONLY = ['if-none-match', 'if-modified-since', 'if-range', 'range']

// https://www.w3.org/TR/trace-context/#traceparent-header: a value of another shape is to be dropped.
const TRACEPARENT = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?$/

export interface OwnHeaders {
  method: string
  accept: string
  contentType: string
  /** A whole `Authorization` value; null sends none. */
  authorization: string | null
}

/**
 * The header fields of a request to the resource server, as a flat list of names and values: our own,
 * then those of the browser that are on the allow-list and that it did not tie to its own connection.
 * Each name occurs once. Field lines that the browser repeated arrive here as Node joins them, so a
 * repeated single-valued field becomes one malformed value and never two lines.
 */
export function requestHeaders(request: IncomingMessage, own: OwnHeaders): string[] {
  const received = request.headers
  const hop = connectionOptions(received.connection)

  const sent: string[] = []
  if (own.authorization !== null) sent.push('authorization', own.authorization)
  sent.push('accept', own.accept, 'content-type', own.contentType)

  // RFC 9110 section 7.6.3: the protocol version is that of the message received.
  const via = request.httpVersionMinor === 0 ? '1.0 bff' : '1.1 bff'
  const earlier = received.via
  sent.push('via', earlier === undefined || hop.has('via') ? via : `${earlier}, ${via}`)

  // Without the field a server may pick any coding, and this browser did not say that it can read one.
  const coding = received['accept-encoding']
  const accepted = typeof coding === 'string' && !hop.has('accept-encoding') ? coding : 'identity'
  sent.push('accept-encoding', accepted)

  for (const name of ANY_METHOD) pass(name)
  if (own.method === 'GET' || own.method === 'HEAD') for (const name of READS_ONLY) pass(name)

  const trace = received.traceparent
  if (typeof trace === 'string' && TRACEPARENT.test(trace) && !hop.has('traceparent')) {
    sent.push('traceparent', trace)
  }
  return sent

  function pass(name: string): void {
    const value = received[name]
    if (typeof value === 'string' && !hop.has(name)) sent.push(name, value)
  }
}
