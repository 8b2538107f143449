import { problem } from '../errors.ts'

export type Format = 'JSON' | 'XML' | 'CSV' | 'JSV'

/** The media type that states a format to the resource server, in `Accept` and, as documented, in `Content-Type`. */
export const MEDIA_TYPE: Record<Format, string> = {
  JSON: 'application/json',
  XML: 'application/xml',
  CSV: 'text/csv',
  JSV: 'text/jsv',
}

/** In order of preference where a browser likes several equally. */
const ACCEPTED: readonly (readonly [type: string, format: Format])[] = [
  ['application/json', 'JSON'],
  ['application/xml', 'XML'],
  ['text/xml', 'XML'],
  ['text/csv', 'CSV'],
  ['text/jsv', 'JSV'],
  ['application/jsv', 'JSV'],
]

/** The format that a `format` parameter names, in any case; an unknown one is 400. */
export function namedFormat(value: string): Format {
  const name = value.toUpperCase()
  if (name === 'JSON' || name === 'XML' || name === 'CSV' || name === 'JSV') return name
  throw problem('invalid_request', 'The parameter format must be JSON, XML, CSV or JSV.')
}

/**
 * The best of the four formats for an `Accept` header (RFC 9110 section 12.5.1), or null where it
 * accepts none of them. A header that names HTML comes from an address bar, so anything will do.
 */
export function acceptedFormat(accept: string | undefined): Format | null {
  if (accept === undefined || accept === '*/*' || accept === 'application/json' || accept.trim() === '')
    return 'JSON'
  const ranges = accept.split(',').map(parseRange)
  if (ranges.some(({ type }) => type === 'text/html')) return 'JSON'
  let best: { format: Format; q: number } | null = null
  for (const [type, format] of ACCEPTED) {
    const q = quality(type, ranges)
    if (q > 0 && (best === null || q > best.q)) best = { format, q }
  }
  return best?.format ?? null
}

interface Range {
  type: string
  q: number
}

function parseRange(text: string): Range {
  const [type = '', ...parameters] = text.split(';').map((part) => part.trim().toLowerCase())
  const weight = parameters.find((parameter) => parameter.startsWith('q='))
  const q = weight === undefined ? 1 : Number(weight.slice(2))
  return { type, q: q >= 0 && q <= 1 ? q : 0 }
}

/** The most specific range that matches decides, whatever the others say. */
function quality(type: string, ranges: Range[]): number {
  const group = `${type.slice(0, type.indexOf('/'))}/*`
  for (const pattern of [type, group, '*/*']) {
    const range = ranges.find((candidate) => candidate.type === pattern)
    if (range !== undefined) return range.q
  }
  return 0
}
