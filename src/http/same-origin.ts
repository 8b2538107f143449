import { type Problem, problem } from '../errors.ts'

/** The headers that say where a request comes from. */
interface OriginHeaders {
  'sec-fetch-site'?: string | string[] | undefined
  origin?: string | string[] | undefined
  referer?: string | string[] | undefined
  'x-csrf'?: string | string[] | undefined
}

/**
 * Whether a request may use the session of the browser that sends it. An `Origin` that differs is refused whatever else
 * is there; `null` does not differ where `Sec-Fetch-Site` vouches for a page whose referrer policy hides its origin.
 * Then `Sec-Fetch-Site` decides where the browser sends it: `none`, as of a typed address, passes on GET and HEAD only.
 * Without it an exact `Origin` passes, or `X-CSRF: 1`: another origin can send that only after a CORS preflight, and
 * this server grants none.
 */
export function comesFromOwnOrigin(method: string, headers: OriginHeaders, publicUrl: string): boolean {
  const { origin, 'sec-fetch-site': site } = headers
  if (origin === 'null' && site === 'same-origin') return true
  if (origin !== undefined && origin !== publicUrl) return false
  if (site !== undefined) {
    return site === 'same-origin' || (site === 'none' && (method === 'GET' || method === 'HEAD'))
  }
  return origin === publicUrl || headers['x-csrf'] === '1'
}

/** The problem for a request that `comesFromOwnOrigin` refuses; names the origin that asked and the public one. */
export function crossOrigin(headers: OriginHeaders, publicUrl: string): Problem {
  return problem(
    'cross_origin',
    `This request comes ${cameFrom(headers, publicUrl)}. Only pages of ${publicUrl} may ask; a program that is no browser sends X-CSRF: 1.`,
  )
}

/** Where a refused request comes from, for the detail of a problem: an origin if the headers have another than ours. */
export function cameFrom(
  { origin, referer, 'sec-fetch-site': site }: OriginHeaders,
  publicUrl: string,
): string {
  if (isOrigin(origin) && origin !== publicUrl) return `from ${origin}`
  // Its text is not repeated: log lines and pages must not contain arbitrary text from a client.
  if (origin !== undefined && origin !== publicUrl) return 'with an Origin that no browser writes'
  // A navigation by GET has no Origin.
  const referrer = typeof referer === 'string' ? originOf(referer) : null
  if (referrer !== null && referrer !== publicUrl) return `from ${referrer}`
  return site === undefined ? 'without an origin' : `marked ${nameOf(site)}`
}

/** The origin of an address by http or https, else null. Nothing but its beginning is parsed: the rest may fill the head. */
function originOf(address: string): string | null {
  const [beginning = ''] = /^https?:\/\/[^/?#\\]+/i.exec(address.slice(0, 2 * LONGEST_ORIGIN)) ?? []
  const origin = URL.canParse(beginning) ? new URL(beginning).origin : null
  return isOrigin(origin) ? origin : null
}

const LONGEST_ORIGIN = 200

/** Whether this is the serialization of an origin, and no other text of the client. */
function isOrigin(text: unknown): text is string {
  if (text === 'null') return true
  return (
    typeof text === 'string' &&
    text.length <= LONGEST_ORIGIN &&
    URL.canParse(text) &&
    new URL(text).origin === text
  )
}

function nameOf(site: string | string[]): string {
  return ['cross-site', 'same-site', 'same-origin', 'none'].find((known) => known === site) ?? 'unknown'
}
