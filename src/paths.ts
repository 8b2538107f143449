/**
 * The paths of the public port, as route patterns. Routes, 404 and 405, OpenAPI, the check of return
 * addresses, static files and the log all read this table. An optional flow has its path in its own file of login/.
 */
export const PATHS = {
  login: '/auth/login',
  callback: '/auth/callback',
  callbackOfLogin: '/auth/callback/:nonce',
  session: '/auth/session',
  logout: '/auth/logout',
  ready: '/auth/ready',
  device: '/auth/device',
  deviceRefresh: '/auth/device/refresh',
  flux: '/flux/:fluxId',
  fluxOfAccount: '/flux/:wac/:fluxId',
  site: '/site/:siteId',
  siteOfAccount: '/site/:wac/:siteId',
  siteInBody: '/site',
  siteInBodyAsJson: '/site.json',
  openApi: '/openapi.json',
  client: '/auth/client.js',
  clientTypes: '/auth/client.d.ts',
} as const

/** Declared operations are below it. */
export const DATA = '/data'

const OWN_FOLDERS: ReadonlySet<string | undefined> = new Set(
  Object.values(PATHS)
    .map(firstSegment)
    .filter((segment) => !segment?.includes('.')),
)

/** Whether a decoded path is `/auth`, `/flux`, `/site` or, with operations, `/data`, or lies below one. Case matters. */
export function isOwnPath(path: string, hasOperations: boolean): boolean {
  return OWN_FOLDERS.has(firstSegment(path)) || (hasOperations && folderOf(path) === DATA)
}

/** The path of a base URL, before the paths that are appended to it: '' for a bare origin. */
export function prefixOf({ pathname }: URL): string {
  return pathname.replace(/\/$/, '')
}

/** The first folder of a route pattern, as `/flux` of the routes of a Flux. */
export function folderOf(pattern: string): string {
  return `/${firstSegment(pattern)}`
}

/** Whether a path lies below the first folder of a route pattern, as `/flux/a` does for the routes of a Flux. */
export function isBelow(pattern: string, path: string): boolean {
  return path.startsWith(`${folderOf(pattern)}/`)
}

/**
 * The path of a request target as the router reads it: `/%66lux/a` is `/flux/a`, and `%2F` separates nothing. Unchanged
 * if it cannot be decoded: no route takes it.
 */
export function decodedPath(target: string): string {
  const path = target.split('?', 1)[0]!
  return decoded(path, decodeURI) ?? path
}

/** A percent-encoded text, decoded; null for one that cannot be decoded. */
export function decoded(text: string, decode = decodeURIComponent): string | null {
  try {
    return decode(text)
  } catch {
    return null
  }
}

function firstSegment(path: string): string | undefined {
  return path.split('/', 2)[1]
}

/** An account code, as a path segment of the resource server. */
export const WAC = segmentOf(64)

/** The id of a flux or another resource. `.` and `..` would be steps in the path of the resource server. */
export const ID = segmentOf(128)

/** One to `max` unreserved characters (RFC 3986), but neither `.` nor `..`. Without lookahead: Go's patterns have none. */
function segmentOf(max: number): RegExp {
  const [any, notDot] = ['[A-Za-z0-9_.~-]', '[A-Za-z0-9_~-]']
  return new RegExp(`^(${notDot}${any}?|\\.${notDot}|${any}{3,${max}})$`)
}
