import { isOwnPath } from '../paths.ts'

/** Longer addresses would not fit the login cookie. Bytes. */
const MAX_BYTES = 512

/**
 * The local address to go to after sign-in, in the form that a browser would make of it, or null
 * where `given` is anything else. It must be a path on our own origin after parsing as browsers
 * parse, not one of our own routes, and free of what servers and browsers read differently.
 */
export function localPath(given: string, publicUrl: string): string | null {
  if (Buffer.byteLength(given) > MAX_BYTES) return null
  if (!/^\/(?![/\\]|%2f|%5c)/i.test(given) || /[\\\s\p{Cc}\p{Cf}]/u.test(given)) return null
  const url = URL.canParse(given, publicUrl) ? new URL(given, publicUrl) : null
  if (url === null || url.origin !== new URL(publicUrl).origin) return null
  const path = url.pathname + url.search + url.hash
  const decoded = decode(url.pathname)
  if (decoded === null || /^\/[/\\]/.test(decoded) || isOwnPath(decoded.toLowerCase())) return null
  return Buffer.byteLength(path) > MAX_BYTES ? null : path
}

/**
 * The address with `name=value` added to its query. The fragment is kept, or `#_` stands where there
 * is none: a redirect without one hands the fragment of the address that it came from on to the app.
 */
export function comingBack(returnTo: string, added?: { name: string; value: string }): string {
  const [rest, fragment = '_'] = splitOnce(returnTo, '#')
  const query = added === undefined ? '' : `${rest.includes('?') ? '&' : '?'}${added.name}=${added.value}`
  return `${rest}${query}#${fragment}`
}

function splitOnce(text: string, mark: string): [string, string?] {
  const at = text.indexOf(mark)
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)]
}

function decode(path: string): string | null {
  try {
    return decodeURIComponent(path)
  } catch {
    return null
  }
}
