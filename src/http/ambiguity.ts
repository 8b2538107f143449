import type { IncomingMessage } from 'node:http'
import { type Problem, problem } from '../errors.ts'
import { MAX_TARGET_LENGTH } from './client-errors.ts'

/** Lines of a head that are read. Reverse proxies pass on a hundred, few of them more. */
const MAX_HEADER_LINES = 1_000

/** For `maxHeadersCount`: Node drops further lines without a word, so one too many is kept, for `ambiguityOf` to refuse. */
export const HEADER_LINES_KEPT = MAX_HEADER_LINES + 1

/**
 * Judges the raw lines of a request that Node's parser accepts, and that another server on the way could
 * read differently or that expects what this server does not do; null for a clear one. RFC 9112 sections 3.2 and 6.
 */
export function ambiguityOf({
  headers,
  httpVersionMinor,
  rawHeaders,
  url = '',
}: IncomingMessage): Problem | null {
  if (url.length > MAX_TARGET_LENGTH) return problem('uri_too_long')
  // A line that was dropped may be the `X-Forwarded-For` of a reverse proxy, which some put last.
  if (rawHeaders.length > 2 * MAX_HEADER_LINES)
    return problem('headers_too_large', `A request has at most ${MAX_HEADER_LINES} header lines.`)
  if (!url.startsWith('/')) return problem('invalid_request', 'The request target must be a path.')
  if (url.includes('#')) return problem('invalid_request', 'The request target holds a fragment.')
  let hosts = 0
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at]!
    // Lengths first: this runs on every header line of every request.
    if (name.length === 4 && name.toLowerCase() === 'host') hosts += 1
    else if (name.length === 17 && name.toLowerCase() === 'transfer-encoding') {
      if (rawHeaders[at + 1]!.trim().toLowerCase() !== 'chunked') {
        return problem('invalid_request', 'The transfer encoding must be chunked.')
      }
      // RFC 9112 section 6.1: the framing is faulty.
      if (httpVersionMinor === 0) return problem('invalid_request', 'HTTP/1.0 has no transfer encoding.')
    }
  }
  // HTTP/1.0 needs none: HAProxy's health checks have none by default.
  if (hosts !== 1 && (hosts > 1 || httpVersionMinor > 0))
    return problem('invalid_request', 'Exactly one Host header is expected.')
  const { expect } = headers
  if (expect === undefined || expect.toLowerCase() === '100-continue') return null
  return problem('invalid_request', 'The Expect header must be 100-continue.')
}
