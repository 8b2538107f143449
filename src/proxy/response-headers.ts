import type { IncomingHttpHeaders, ServerResponse } from 'node:http'
import { connectionOptions } from './connection-options.ts'

/** What undici hands over: lower-case names, a list where a field line was repeated. */
export type AnswerHeaders = IncomingHttpHeaders

// Fields with a list syntax may be repeated and are joined; of the others a repetition has no meaning.
const SINGLE = [
  'content-type',
  'content-disposition',
  'content-range',
  'etag',
  'last-modified',
  'retry-after',
] as const
const LISTS = ['content-encoding', 'content-language', 'accept-ranges'] as const

/**
 * Writes the head of a relayed answer: status, the resource server's fields that are on the
 * allow-list, and the fixed `protection` fields. This is the only place that does, since hooks that
 * normally add such fields do not run for a response that was taken over.
 */
export function writeAnswerHead(
  response: ServerResponse,
  status: number,
  received: AnswerHeaders,
  requestId: string,
  protection: readonly string[],
): void {
  const hop = connectionOptions(received.connection)
  const keepable = !hop.has('cache-control') && mayBeKept(received['cache-control'])
  const sent: string[] = [
    ...protection,
    'cache-control',
    keepable ? 'private, no-cache' : 'no-store',
    'x-request-id',
    requestId,
  ]
  if (keepable) sent.push('vary', 'Cookie')

  for (const name of SINGLE) {
    const value = received[name]
    if (typeof value !== 'string') continue
    // It was judged with the body, so it stays with the body, whatever `Connection` says. A 304 has none, and
    // must not give another type to a body that a browser has kept.
    if (name === 'content-type' ? status !== 304 : !hop.has(name)) sent.push(name, value)
  }
  for (const name of LISTS) {
    const value: string | string[] | undefined = received[name]
    if (value !== undefined && !hop.has(name)) sent.push(name, String(value))
  }
  // RFC 9110 section 8.6: a 204 carries no Content-Length.
  const length = received['content-length']
  if (typeof length === 'string' && status !== 204) sent.push('content-length', length)

  response.writeHead(status, sent)
}

const PRIVATE = /(?:^|[\s,])private(?=$|[\s,=])/i
const NO_STORE = /(?:^|[\s,])no-store(?=$|[\s,])/i

/** RFC 9111 section 5.2.2: `no-store` outweighs `private`. */
function mayBeKept(cacheControl: string | string[] | undefined): boolean {
  if (cacheControl === undefined) return false
  const directives = String(cacheControl)
  return PRIVATE.test(directives) && !NO_STORE.test(directives)
}
