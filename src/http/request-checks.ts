import type { IncomingMessage } from 'node:http'
import type { Problem } from '../errors.ts'
import { problem } from '../errors.ts'

const MAX_TARGET_LENGTH = 8_192

/**
 * What Node's parser lets through and another server on the way could read differently, judged by
 * the raw header lines. null when there is nothing to object to. RFC 9112 sections 3.2 and 6.
 */
export function objectionTo(request: IncomingMessage): Problem | null {
  const { rawHeaders, url = '' } = request
  if (url.length > MAX_TARGET_LENGTH) return problem('uri_too_long')
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
    }
  }
  return hosts === 1 ? null : problem('invalid_request', 'Exactly one Host header is expected.')
}
