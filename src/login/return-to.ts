import { DATA, decoded, folderOf, isOwnPath } from '../paths.ts'

/** Bytes. A longer address would not fit the login cookie. */
const MAX_BYTES = 512

/**
 * The local address to go to after sign-in, as a browser would normalize it, or null for anything else. It must be a
 * path on our own origin by the URL parser of browsers, not one of our own routes, and free of characters that servers
 * and browsers read differently.
 */
export function localPath(given: string, publicUrl: string): string | null {
  if (Buffer.byteLength(given) > MAX_BYTES) return null
  if (!/^\/(?![/\\]|%2f|%5c)/i.test(given) || /[\\\s\p{Cc}\p{Cf}]/u.test(given)) return null
  const url = URL.canParse(given, publicUrl) ? new URL(given, publicUrl) : null
  if (url === null || url.origin !== new URL(publicUrl).origin) return null
  const path = url.pathname + url.search + url.hash
  const plain = decoded(url.pathname)
  if (plain === null || /^\/[/\\]/.test(plain) || isOwn(plain.toLowerCase())) return null
  return Buffer.byteLength(path) > MAX_BYTES ? null : path
}

/** Those of declared operations too, declared or not: an address must not change its meaning by a configuration. */
function isOwn(path: string): boolean {
  return isOwnPath(path) || folderOf(path) === DATA
}

/**
 * Where to redirect the browser at the end of a sign-in, with `login_error` in the query if it failed. An address
 * without a fragment gets `#_`: otherwise the browser would keep the fragment of the address that it comes from.
 */
export function returnLocation(returnTo: string, loginError?: string): string {
  const [rest, fragment = '_'] = splitOnce(returnTo, '#')
  const query = loginError === undefined ? '' : `${rest.includes('?') ? '&' : '?'}login_error=${loginError}`
  return `${rest}${query}#${fragment}`
}

function splitOnce(text: string, mark: string): [string, string?] {
  const at = text.indexOf(mark)
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)]
}
