import type { IncomingHttpHeaders, IncomingMessage } from 'node:http'
import type { FixedHeader } from '../config/upstream.ts'
import { weighted } from '../http/weights.ts'
import { USER_AGENT } from '../version.ts'
import { DECODED } from './invalid-token.ts'

const ANY_METHOD = ['if-match', 'if-none-match', 'if-unmodified-since', 'accept-language']
const READS_ONLY = ['if-modified-since', 'if-range', 'range']

// https://www.w3.org/TR/trace-context/#traceparent-header: a value of another shape is to be dropped.
const TRACEPARENT = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?$/

/** Our own header fields of a request to the resource server. */
interface OwnHeaders {
  method: string
  accept: string
  contentType: string | null
  /** Of a body that is sent as it comes. */
  contentLength?: number | null
  /** A whole `Authorization` value; null sends none. */
  authorization: string | null
  /** Sent instead of the browser's (W3C Trace Context). */
  traceparent: string | null
  requestId: string
  /** Whether to say that this server is on the way (RFC 9110 section 7.6.3). */
  via: boolean
  /** The same for each request: names and values in turn. */
  fixed: readonly string[]
}

/** The fields that are the same for each request to the resource server, names and values in turn. */
export function fixedHeaders(headers: readonly FixedHeader[]): readonly string[] {
  return ['user-agent', USER_AGENT, ...headers.flatMap(({ name, value }) => [name, value.reveal()])]
}

/**
 * The header fields of a request to the resource server, names and values in turn: our own, then those of
 * the browser that are on the allow-list and not named in its `Connection` field. Each name occurs once: a
 * field that the browser repeated arrives joined, or the first of them alone, and never as two lines.
 */
export function headersToSend(request: IncomingMessage, own: OwnHeaders): string[] {
  const received = request.headers
  const hop = connectionOptions(received.connection)

  const fields = [...own.fixed, 'x-request-id', own.requestId]
  if (own.authorization !== null) fields.push('authorization', own.authorization)
  fields.push('accept', own.accept)
  if (own.contentType !== null) fields.push('content-type', own.contentType)
  if (typeof own.contentLength === 'number') fields.push('content-length', String(own.contentLength))

  if (own.via) {
    // RFC 9110 section 7.6.3: the protocol version is that of the message received.
    const via = request.httpVersionMinor === 0 ? '1.0 bff' : '1.1 bff'
    const earlier = received.via
    fields.push('via', earlier === undefined || hop.has('via') ? via : `${earlier}, ${via}`)
  }

  // Without the field a server may pick any coding, and this browser did not say that it can read one.
  const coding = received['accept-encoding']
  const accepted = typeof coding === 'string' && !hop.has('accept-encoding') ? coding : 'identity'
  fields.push('accept-encoding', readableCodings(accepted))

  for (const name of ANY_METHOD) pass(name)
  if (own.method === 'GET' || own.method === 'HEAD') for (const name of READS_ONLY) pass(name)

  const trace = received.traceparent
  if (own.traceparent !== null) fields.push('traceparent', own.traceparent)
  else if (typeof trace === 'string' && TRACEPARENT.test(trace) && !hop.has('traceparent')) {
    fields.push('traceparent', trace)
  }
  return fields

  function pass(name: string): void {
    const value = received[name]
    if (typeof value === 'string' && !hop.has(name)) fields.push(name, value)
  }
}

// Browsers send the same few.
let lastCodings = { received: '', sent: '' }

/** Without what this Node cannot decode: a refused token may hide in such a body. `*` becomes what it can decode. */
function readableCodings(received: string): string {
  if (received !== lastCodings.received) lastCodings = { received, sent: withoutUnreadable(received) }
  return lastCodings.sent
}

function withoutUnreadable(received: string): string {
  const read = weighted(received)
  const named = new Set(read.map(({ name }) => name))
  const sent = read.flatMap(({ name, q }) => {
    const weight = q === 1 ? '' : `;q=${q}`
    if (name === '*') return DECODED.filter((coding) => !named.has(coding)).map((coding) => coding + weight)
    return DECODED.includes(name) || name === 'identity' ? [name + weight] : []
  })
  return sent.length === 0 ? 'identity' : sent.join(', ')
}

// Fields with a list syntax may be repeated and are joined; of the others a repetition has no meaning.
const SINGLE = [
  'content-type',
  'content-disposition',
  'content-range',
  'etag',
  'last-modified',
  'retry-after',
  'x-total-count',
] as const
const LISTS = ['content-encoding', 'content-language', 'accept-ranges'] as const

/**
 * The header fields of a relayed response, names and values in turn: the security headers, `Cache-Control`,
 * then those of the resource server that are on the allow-list. `received`: as undici gives them, with
 * lower-case names and a list if a field line was repeated.
 */
export function responseHeaders(
  status: number,
  received: IncomingHttpHeaders,
  securityHeaders: readonly string[],
): string[] {
  const hop = connectionOptions(received.connection)
  const fields = [...securityHeaders]
  if (!hop.has('cache-control') && mayBeKept(received['cache-control'])) {
    fields.push('cache-control', 'private, no-cache', 'vary', 'Cookie')
  } else {
    fields.push('cache-control', 'no-store')
  }

  for (const name of SINGLE) {
    const value = received[name]
    if (typeof value !== 'string') continue
    // The rules have judged the type, so `Connection` cannot remove it. A 304 has no body, and must not
    // change the type of a body that a browser has kept.
    if (name === 'content-type' ? status !== 304 : !hop.has(name)) fields.push(name, value)
  }
  for (const name of LISTS) {
    const value: string | string[] | undefined = received[name]
    if (value !== undefined && !hop.has(name)) fields.push(name, String(value))
  }
  const links = received.link === undefined || hop.has('link') ? null : pagingLinks(String(received.link))
  if (links !== null) fields.push('link', links)
  // RFC 9110 section 8.6: a 204 carries no Content-Length.
  const length = received['content-length']
  if (typeof length === 'string' && status !== 204) fields.push('content-length', length)
  return fields
}

/** Relations of pages of a list. Others may make a browser load something, as `preload` does. */
const PAGING: ReadonlySet<string> = new Set([
  ...['first', 'last', 'next', 'prev', 'previous', 'self', 'current', 'up', 'collection', 'item'],
])
const LINK = /\s*<([^<>"]*)>((?:\s*;\s*[\w*-]+\s*=\s*(?:"[^"]*"|[^\s";,<>]+))*)\s*(?:,|$)/y
const RELATION = /;\s*rel\s*=\s*(?:"([^"]*)"|([^\s";,<>]+))/gi
const MAX_LINKS_LENGTH = 8_192

/** A `Link` field (RFC 8288) that leads to pages of a list alone, as it is; null for any other. */
function pagingLinks(value: string): string | null {
  if (value.length > MAX_LINKS_LENGTH) return null
  for (let at = 0; at < value.length; at = LINK.lastIndex) {
    LINK.lastIndex = at
    const link = LINK.exec(value)
    if (link === null) return null
    const relations = [...link[2]!.matchAll(RELATION)].flatMap(([, quoted, token]) =>
      (quoted ?? token ?? '').toLowerCase().trim().split(/\s+/),
    )
    if (relations.length === 0 || !relations.every((relation) => PAGING.has(relation))) return null
  }
  return value
}

const PRIVATE = /(?:^|[\s,])private(?=$|[\s,=])/i
const NO_STORE = /(?:^|[\s,])no-store(?=$|[\s,])/i

/** RFC 9111 section 5.2.2: `no-store` outweighs `private`. */
function mayBeKept(cacheControl: string | string[] | undefined): boolean {
  if (cacheControl === undefined) return false
  const directives = String(cacheControl)
  return PRIVATE.test(directives) && !NO_STORE.test(directives)
}

const NONE: ReadonlySet<string> = new Set()

/** The names, in lower case, of the fields that belong to one connection (RFC 9110 section 7.6.1). */
function connectionOptions(value: string | string[] | undefined): ReadonlySet<string> {
  // Nearly every message has exactly one of these, and they name no field that is ever passed on.
  if (value === undefined || value === 'keep-alive' || value === 'close') return NONE
  const names = new Set<string>()
  for (const option of String(value).toLowerCase().split(',')) names.add(option.trim())
  return names
}
