import { weighted } from '../http/weights.ts'

/** How a file may be encoded on the way to the client. */
export type Coding = 'br' | 'gzip' | 'identity'

// The order decides between codings of equal weight.
const CODINGS: readonly Coding[] = ['br', 'gzip', 'identity']

/**
 * The codings that an `Accept-Encoding` header accepts, best first (RFC 9110 section 12.5.3). Without the header only
 * `identity`, which is last where it is refused: a file without another form is served all the same.
 */
export function preferredCodings(header: string | undefined): Coding[] {
  if (header === undefined) return ['identity']
  const weights = new Map<string, number>()
  for (const { name, q } of weighted(header)) weights.set(name === 'x-gzip' ? 'gzip' : name, q)
  const weightOf = (coding: Coding): number =>
    weights.get(coding) ?? weights.get('*') ?? (coding === 'identity' ? LEAST : 0)
  return CODINGS.filter((coding) => weightOf(coding) > 0 || coding === 'identity').sort(
    (a, b) => weightOf(b) - weightOf(a),
  )
}

/** `identity` is acceptable without being named, but a coding that is named comes first. */
const LEAST = 0.0001
