import { readFile, realpath } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Config } from '../config/config.ts'
import { START_PAGE } from '../config/kinds.ts'
import { problem } from '../errors.ts'
import { staticHeaders } from '../http/headers.ts'
import { isNavigation, varyByNavigation } from '../http/navigation.ts'
import type { Logger } from '../log.ts'
import { decodedPath, isOwnPath, PATHS } from '../paths.ts'
import { type Coding, preferredCodings } from './codings.ts'
import { cacheControlFor, decodePath, findFile, type StaticFile } from './files.ts'
import { blockedInline } from './inline-scripts.ts'

const SUFFIX: Record<Exclude<Coding, 'identity'>, string> = { br: '.br', gzip: '.gz' }

interface StaticOptions {
  settings: NonNullable<Config['static']>
  operations: Config['operations']
  log: Logger
}

/**
 * Prepares the build in `dir` to be served and returns the handler for requests that no route takes. It answers
 * GET and HEAD with files, and navigations to paths that name no file with `index.html` (history fallback). It throws
 * `not_found` for our own paths and all else, and `method_not_allowed` for other methods on a file.
 * Rejects when the folder has no `index.html`.
 */
export async function addStaticFiles(server: FastifyInstance, { settings, operations, log }: StaticOptions) {
  const root = await findRoot(settings.dir)
  await warnOfInlineScripts(root, settings.csp['script-src'] ?? [], log)
  const pageHeaders = staticHeaders(settings)
  // Most servers serve no files, and loading it takes a sixteenth of a start.
  const { default: fastifyStatic } = await import('@fastify/static')
  // No wildcard route: it would take over responses of the server on its own paths.
  await server.register(fastifyStatic, {
    root,
    serve: false,
    cacheControl: false,
    // `decodePath` refuses all dot files but `.well-known`.
    dotfiles: 'allow',
    index: false,
    // Adds `Vary: Accept-Encoding`, and the type of the file that was compressed.
    preCompressed: true,
  })

  return async function serveFile(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const path = decodePath(request.url)
    // A page here would hide a misspelled call, and a file would sit among the addresses of the API.
    if (isOwnPath(path ?? decodedPath(request.url), operations.length > 0)) throw problem('not_found')

    const file = path === null ? null : await findFile(root, path)
    const reads = request.method === 'GET' || request.method === 'HEAD'
    if (file !== null) {
      if (!reads) throw problem('method_not_allowed', { headers: { allow: 'GET, HEAD' } })
      return await send(request, reply, file)
    }

    // `POST /site.json` is a route, so the page there would hide a wrong method.
    if (!reads || !isNavigation(request) || path === PATHS.siteInBodyAsJson) throw problem('not_found')
    const start = await findFile(root, '/')
    if (start === null) throw problem('not_found')
    varyByNavigation(reply)
    return await send(request, reply, start)
  }

  async function send(request: FastifyRequest, reply: FastifyReply, file: StaticFile): Promise<FastifyReply> {
    const { headers } = request
    if (headers['if-match'] !== undefined || headers['if-unmodified-since'] !== undefined) {
      throw problem('invalid_request', 'If-Match and If-Unmodified-Since are not supported on files.')
    }
    const { coding, size } = await chooseVariant(file, headers['accept-encoding'])
    // The library would prefer any coding to none, whatever their weights: it gets the one choice.
    if (coding === 'identity') delete headers['accept-encoding']
    else headers['accept-encoding'] = coding
    reply.headers(pageHeaders)
    reply.header('cache-control', cacheControlFor(file.path))
    return reply.sendFile(file.path, { acceptRanges: isServableRange(headers.range, size) })
  }

  /** The form of a file that the client prefers among those that exist, with its size in bytes. */
  async function chooseVariant(
    { path, size }: StaticFile,
    accepted: string | undefined,
  ): Promise<{ coding: Coding; size: number }> {
    for (const coding of preferredCodings(accepted)) {
      if (coding === 'identity') break
      const variant = await findFile(root, `/${path}${SUFFIX[coding]}`)
      if (variant !== null) return { coding, size: variant.size }
    }
    return { coding: 'identity', size }
  }
}

async function findRoot(dir: string): Promise<string> {
  const root = await realpath(resolve(dir)).catch(() => null)
  if (root === null || (await findFile(root, '/')) === null) {
    throw new Error(`The folder of static files has no ${START_PAGE}: ${dir}`)
  }
  return root
}

/** What the page's policy blocks shows only in the console of a browser, so the start says it. */
async function warnOfInlineScripts(root: string, sources: readonly string[], log: Logger): Promise<void> {
  const html = await readFile(join(root, START_PAGE), 'utf8')
  for (const found of blockedInline(html, sources)) {
    const text =
      found.kind === 'script'
        ? `${START_PAGE} has an inline script that browsers will block: put it into a file, or add script-src ${found.source} to STATIC_CSP`
        : `${START_PAGE} has an inline ${found.attribute} that browsers will block: build the page without it (with Angular: inlineCritical false)`
    log.warn({ event: 'page.script_blocked' }, text)
  }
}

/** A range that cannot be served is ignored (RFC 9110 section 14.2): the response is the whole file. */
function isServableRange(range: string | undefined, size: number): boolean {
  if (range === undefined) return true
  const match = /^bytes=(\d*)-(\d*)$/.exec(range)
  if (match === null) return false
  const [first, last] = [match[1] ?? '', match[2] ?? '']
  if (first === '') return Number(last) > 0 && size > 0
  return Number(first) < size && (last === '' || Number(last) >= Number(first))
}
