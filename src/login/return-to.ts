import { decoded, isOwnPath } from '../paths.ts'

const MAX_BYTES = 512

/**
 * Whether a browser may be sent to this address after sign-in: a path on our own origin by the URL parser of browsers,
 * not one of our own routes, and free of characters that servers and browsers read differently.
 */
export function isLocalPath(given: string, publicUrl: string): boolean {
  // As text of JSON, where a quote takes two bytes: a longer one would not fit the login cookie.
  if (Buffer.byteLength(JSON.stringify(given)) - 2 > MAX_BYTES) return false
  if (!/^\/(?![/\\]|%2f|%5c)/i.test(given) || /[\\\s\p{Cc}\p{Cf}]/u.test(given)) return false
  const url = URL.canParse(given, publicUrl) ? new URL(given, publicUrl) : null
  if (url === null || url.origin !== new URL(publicUrl).origin) return false
  const plain = decoded(url.pathname)
  return plain !== null && !/^\/[/\\]/.test(plain) && !isOwnPath(plain.toLowerCase(), HAS_OPERATIONS)
}

/** Whatever is declared: an address must not change its meaning by a configuration. */
const HAS_OPERATIONS = true

/**
 * Where to redirect the browser at the end of a sign-in, as a browser writes that address, with `login_error` in the query
 * if the sign-in failed. One without a fragment gets `#_`: else the browser would keep that of the address it comes from.
 */
export function returnLocation(returnTo: string, loginError?: string): string {
  const { pathname, search, hash } = new URL(returnTo, 'http://localhost')
  const query =
    loginError === undefined ? search : `${search === '' ? '?' : `${search}&`}login_error=${loginError}`
  return `${pathname}${query}${hash || '#_'}`
}
