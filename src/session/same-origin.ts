/** The headers that say where a request comes from. */
interface OriginHeaders {
  'sec-fetch-site'?: string | string[] | undefined
  origin?: string | string[] | undefined
  'x-csrf'?: string | string[] | undefined
}

/** What to tell whom `comesFromOwnOrigin` does not let pass. */
export const OWN_ORIGIN_ONLY =
  'Only pages of the public origin may ask; a program that is no browser sends X-CSRF: 1.'

/**
 * Whether a request may use the session of the browser that sends it. Fetch Metadata decides where
 * the browser sends it; elsewhere an exact `Origin`, or a header that no other origin can send
 * without being asked. An `Origin` that differs is refused whatever else is there.
 */
export function comesFromOwnOrigin(method: string, headers: OriginHeaders, publicUrl: string): boolean {
  const { origin } = headers
  if (origin !== undefined && origin !== publicUrl) return false
  const site = headers['sec-fetch-site']
  if (site !== undefined) {
    return site === 'same-origin' || (site === 'none' && (method === 'GET' || method === 'HEAD'))
  }
  return origin === publicUrl || headers['x-csrf'] === '1'
}
