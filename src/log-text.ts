import { readFileSync } from 'node:fs'
import { SourceMap } from 'node:module'
import { decoded, PATHS } from './paths.ts'

// What a log line may hold of a request and of an error. A request: method and path, never query, cookie, header or body,
// which hold codes and session ids. An error: type, message, code, stack and causes; libraries add commands with passwords.

/** Longest text of a request in a line, in characters. */
const MAX_TEXT = 200
/** Depth of logged causes; an error can be its own cause. */
const MAX_CAUSES = 4

/** A request in a line: its id, method and path. */
export function describeRequest(request: { method?: string; url?: string; id?: unknown }): object {
  return { id: request.id, method: request.method, path: pathOf(request.url ?? '') }
}

/** A response in a line: its status. */
export function describeResponse(response: { statusCode?: number }): object {
  return { status: response.statusCode }
}

/** An error in a line, with its causes. The stack names the places in the source. */
export function describeError(error: unknown, depth = 0): object {
  if (!(error instanceof Error)) return { message: String(error).slice(0, MAX_TEXT) }
  const { stack, cause } = error
  return {
    type: error.constructor.name,
    message: messageOf(error),
    ...('code' in error && typeof error.code === 'string' ? { code: error.code } : {}),
    stack: stack === undefined ? undefined : withSourcePlaces(withoutQueries(withoutArguments(stack))),
    ...(cause !== undefined && depth < MAX_CAUSES ? { cause: describeError(cause, depth + 1) } : {}),
  }
}

/** The message of an error, without the command arguments that Redis repeats (they may be credentials) and without queries. */
export function messageOf(error: Error): string {
  return withoutQueries(withoutArguments(error.message))
}

function withoutArguments(text: string): string {
  return text.replace(/, with args beginning with:.*/g, '')
}

/** The stack with the places of `src/` for those of the bundle. Node can do so too, for 10 MB of memory. */
function withSourcePlaces(stack: string): string {
  return stack.replace(/(file:\/\/[^\s()]+\.js):(\d+):(\d+)/g, (place, url: string, line, column) => {
    const origin = sourceMapOf(url)?.findOrigin(Number(line), Number(column))
    // Packages have no places in the map.
    if (origin === undefined || !('fileName' in origin) || !origin.fileName.includes('/src/')) return place
    return `${origin.fileName}:${origin.lineNumber}:${origin.columnNumber}`
  })
}

/** Source maps of the bundle by its files; null for a file without one. */
const sourceMaps = new Map<string, SourceMap | null>()

function sourceMapOf(url: string): SourceMap | null {
  let map = sourceMaps.get(url)
  if (map === undefined) {
    map = readSourceMap(url)
    sourceMaps.set(url, map)
  }
  return map
}

function readSourceMap(url: string): SourceMap | null {
  try {
    return new SourceMap(JSON.parse(readFileSync(new URL(`${url}.map`), 'utf8')))
  } catch {
    return null
  }
}

/** A message without the queries of the addresses in it: Fastify names whole addresses in some. */
export function withoutQueries(text: string): string {
  return text.replace(/[^\s"']+/g, (word) => (word.startsWith('/') ? pathOf(word) : word))
}

const CALLBACK_PREFIX = `${PATHS.callback}/`

/** The path of a request target for a log line: without query and nonce, cut to `MAX_TEXT`. */
export function pathOf(url: string): string {
  const end = url.search(/[?#]/)
  const path = end < 0 ? url : url.slice(0, end)
  // The path of the callback ends in the nonce of a sign-in, which the log must not hold. The router decodes paths.
  const routed = path.includes('%') ? (decoded(path, decodeURI) ?? path) : path
  const holdsNonce = routed.startsWith(CALLBACK_PREFIX) && routed.length > CALLBACK_PREFIX.length
  return holdsNonce ? `${CALLBACK_PREFIX}-` : path.slice(0, MAX_TEXT)
}
