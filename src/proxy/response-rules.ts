import type { IncomingHttpHeaders } from 'node:http'
import type { OutgoingRequest } from './outgoing-request.ts'

/** The resource server gave no response that may be relayed; nothing was written to the browser. */
export type Failure =
  /** A status of 400 or more with a body that must not be relayed. */
  | { kind: 'upstream_error'; status: number; retryAfter: string | null }
  /** A redirect, a page, a script, a body without a type, or no proper HTTP. `reason` is for the log. */
  | { kind: 'unusable'; reason: string }
  /** No connection, or the connection was lost before the response. */
  | { kind: 'unavailable'; cause: unknown }
  | { kind: 'timeout' }

/** The rule for a response with this head. `relay_if_empty`: relay it only if no body follows. */
export function ruleFor(
  status: number,
  headers: IncomingHttpHeaders,
  { method, jsonp }: Pick<OutgoingRequest, 'method' | 'jsonp'>,
): 'relay' | 'relay_if_empty' | Failure {
  if (status === 304) return 'relay'
  if (status >= 300 && status < 400) return rejection(status, headers, 'redirect')
  const coding: string | string[] | undefined = headers['transfer-encoding']
  // undici decodes chunks. Another transfer coding would reach the browser undeclared.
  if (coding !== undefined && String(coding).toLowerCase() !== 'chunked')
    return rejection(status, headers, 'transfer coding')

  switch (mediaKind(headers['content-type'])) {
    case 'data':
      return 'relay'
    case 'html':
      return rejection(status, headers, 'text/html')
    case 'script':
      return jsonp ? 'relay' : rejection(status, headers, 'script')
    case 'untyped':
      if (hasNoBody(method, status) || headers['content-length'] === '0') return 'relay'
      return headers['content-length'] === undefined ? 'relay_if_empty' : untypedBody(status, headers)
  }
}

/** The failure of a response that has a body without a media type. */
export function untypedBody(status: number, headers: IncomingHttpHeaders): Failure {
  return rejection(status, headers, 'body without a type')
}

/** RFC 9112 section 6.3: these responses end with their head, whatever their fields say. */
export function hasNoBody(method: string, status: number): boolean {
  return method === 'HEAD' || status === 204 || status === 304
}

function rejection(status: number, headers: IncomingHttpHeaders, reason: string): Failure {
  if (status < 400 || status > 599) return { kind: 'unusable', reason }
  const retryAfter: string | string[] | undefined = headers['retry-after']
  return { kind: 'upstream_error', status, retryAfter: typeof retryAfter === 'string' ? retryAfter : null }
}

/** The failure for an error of undici before the head was written to the browser. */
export function failureOf(error: Error): Failure {
  const code = codeOf(error)
  switch (code) {
    case 'UND_ERR_CONNECT_TIMEOUT':
    case 'UND_ERR_HEADERS_TIMEOUT':
    case 'UND_ERR_BODY_TIMEOUT':
      return { kind: 'timeout' }
    case 'UND_ERR_HEADERS_OVERFLOW':
    case 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH':
      return { kind: 'unusable', reason: code }
    default:
      // undici leaves this one's code empty.
      if (error.name === 'HTTPParserError') return { kind: 'unusable', reason: 'not HTTP/1.1' }
      return { kind: 'unavailable', cause: error }
  }
}

/** Whether the connection was lost, as opposed to slow or not HTTP. */
export function isLostConnection(error: Error): boolean {
  const code = codeOf(error)
  return code === 'UND_ERR_SOCKET' || code === 'ECONNRESET' || code === 'EPIPE'
}

function codeOf(error: Error): string {
  return 'code' in error && typeof error.code === 'string' ? error.code : ''
}

/** How a browser treats a body of this type when it is opened or included on its own. */
type MediaKind = 'data' | 'html' | 'script' | 'untyped'

// Browsers show the parts of the last one as documents of their own types.
const HTML = new Set([
  ...['text/html', 'application/xhtml+xml', 'application/vnd.wap.xhtml+xml', 'multipart/x-mixed-replace'],
])

const SHOWN = /^(?:image|audio|video|font|text)\/|^application\/(?:pdf|json|xml)$|\+(?:json|xml)$/

/** Whether a response of any type has one that browsers do not show, and does not say what to do with it. */
export function opensAsFile(headers: IncomingHttpHeaders): boolean {
  const type = headers['content-type']
  if (headers['content-disposition'] !== undefined || type === undefined) return false
  return !SHOWN.test(type.split(';', 1)[0]!.trim().toLowerCase())
}

// The JavaScript MIME types of the WHATWG MIME Sniffing standard.
const SCRIPT = new Set([
  'application/ecmascript',
  'application/javascript',
  'application/x-ecmascript',
  'application/x-javascript',
  'text/ecmascript',
  'text/javascript',
  'text/javascript1.0',
  'text/javascript1.1',
  'text/javascript1.2',
  'text/javascript1.3',
  'text/javascript1.4',
  'text/javascript1.5',
  'text/jscript',
  'text/livescript',
  'text/x-ecmascript',
  'text/x-javascript',
])

const ESSENCE = /^[!#$%&'*+.^_`|~0-9a-z-]+\/[!#$%&'*+.^_`|~0-9a-z-]+$/

/**
 * The kind of a `Content-Type` value. A value that is not one plain media type is `untyped`, since browsers find
 * a type in several field lines, in a list, or in half a type by rules of their own.
 */
function mediaKind(contentType: string | string[] | undefined): MediaKind {
  if (typeof contentType !== 'string') return 'untyped'
  // Nearly all responses have the same type.
  if (contentType !== last.contentType) last = { contentType, kind: classify(contentType) }
  return last.kind
}

let last: { contentType: string; kind: MediaKind } = { contentType: '', kind: 'untyped' }

function classify(contentType: string): MediaKind {
  if (contentType.includes(',')) return 'untyped'
  const semicolon = contentType.indexOf(';')
  const essence = (semicolon === -1 ? contentType : contentType.slice(0, semicolon)).trim().toLowerCase()
  if (HTML.has(essence)) return 'html'
  if (SCRIPT.has(essence)) return 'script'
  return ESSENCE.test(essence) ? 'data' : 'untyped'
}
