import type { IncomingHttpHeaders } from 'node:http'
import type { Format } from '../config/operation.ts'
import { either, problem } from '../errors.ts'
import { type Weighted, weighted } from '../http/weights.ts'

/** The media type that names a format to the resource server, in `Accept` and, as documented, in `Content-Type`. */
export const MEDIA_TYPE: Readonly<Record<Format, string>> = {
  JSON: 'application/json',
  XML: 'application/xml',
  CSV: 'text/csv',
  JSV: 'text/jsv',
}

// The order decides between types of equal weight. The negotiator package (1.1.0) takes the order of the header instead,
// accepts nothing for `application/json; charset=utf-8`, and needs the rule for HTML on top.
const ACCEPTED: readonly (readonly [type: string, format: Format])[] = [
  ['application/json', 'JSON'],
  ['application/xml', 'XML'],
  ['text/xml', 'XML'],
  ['text/csv', 'CSV'],
  ['text/jsv', 'JSV'],
  ['application/jsv', 'JSV'],
]

/** The format that a `format` parameter names, in any case, if it is one of `formats`. Throws `invalid_request`. */
export function namedFormat(value: string, formats: readonly Format[]): Format {
  const name = value.toUpperCase()
  for (const format of formats) if (format === name) return format
  throw problem('invalid_request', `The parameter format must be ${either(formats)}.`)
}

/**
 * The best of `formats` for the `Accept` header (RFC 9110 section 12.5.1). Throws `not_acceptable` if it accepts none. A
 * header that names HTML comes from the address bar, so every format is acceptable, as without the header. Then
 * `Content-Type` names the format (service document, section 4.2). An `Accept` of JSON does not refuse an operation that
 * has none.
 */
export function acceptedFormat(
  { accept, 'content-type': contentType }: IncomingHttpHeaders,
  formats: readonly Format[],
): Format {
  if (accept === undefined || accept === '*/*') return typedFormat(contentType, formats)
  if (accept === 'application/json' && formats[0] === 'JSON') return 'JSON'
  const ranges = weighted(accept)
  const [first] = ranges
  const isAny = ranges.length === 1 && (first?.name === '' || (first?.name === '*/*' && first.q > 0))
  if (isAny || ranges.some(({ name }) => name === 'text/html')) return typedFormat(contentType, formats)
  let best: { format: Format; q: number } | null = null
  for (const [type, format] of ACCEPTED) {
    const q = formats.includes(format) ? quality(type, ranges) : 0
    if (q > 0 && (best === null || q > best.q)) best = { format, q }
  }
  // Clients that are generated name JSON in each request, whatever the operation responds with.
  if (best === null && !formats.includes('JSON') && ranges.some(({ name }) => name === 'application/json'))
    return typedFormat(contentType, formats)
  if (best === null) throw problem('not_acceptable', `This comes as ${either(formats)}.`)
  return best.format
}

function typedFormat(contentType: string | undefined, formats: readonly Format[]): Format {
  // The configuration lists JSON first.
  const usual = formats[0] ?? 'JSON'
  if (contentType === undefined) return usual
  const essence = contentType.split(';', 1)[0]!.trim().toLowerCase()
  return ACCEPTED.find(([type, format]) => type === essence && formats.includes(format))?.[1] ?? usual
}

/** The most specific matching range decides, whatever the others say. */
function quality(type: string, ranges: readonly Weighted[]): number {
  const group = `${type.slice(0, type.indexOf('/'))}/*`
  for (const pattern of [type, group, '*/*']) {
    const range = ranges.find((candidate) => candidate.name === pattern)
    if (range !== undefined) return range.q
  }
  return 0
}
