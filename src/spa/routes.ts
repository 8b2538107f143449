import { realpath } from 'node:fs/promises'
import { resolve } from 'node:path'
import fastifyStatic from '@fastify/static'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { problem } from '../errors.ts'
import { STATIC_HEADERS } from '../http/headers.ts'
import { isNavigation } from '../http/problems.ts'
import { isOwnPath } from '../paths.ts'
import { cacheControlFor, decodePath, findFile, type StaticFile } from './files.ts'

const START_PAGE = 'index.html'

/**
 * Prepares the build in `dir` to be served and returns the handler for requests that no route takes. It answers
 * GET and HEAD with files, and navigations to unknown paths with `index.html` (history fallback). It throws
 * `not_found` for our own paths and all else, and `method_not_allowed` for other methods on a file.
 * Rejects when the folder has no `index.html`.
 */
export async function addStaticFiles(server: FastifyInstance, dir: string) {
  const root = await findRoot(dir)
  // No wildcard route: it would take over responses of the server on its own paths.
  await server.register(fastifyStatic, {
    root,
    serve: false,
    cacheControl: false,
    // `decodePath` refuses all dot files but `.well-known`.
    dotfiles: 'allow',
    index: false,
  })

  return async function serveFile(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const path = decodePath(request.raw.url ?? '')
    // A page here would hide a misspelled call, and a file would sit among the addresses of the API.
    if (path === null || isOwnPath(path)) throw problem('not_found')

    const file = await findFile(root, path)
    const reads = request.method === 'GET' || request.method === 'HEAD'
    if (file !== null) {
      if (!reads) throw problem('method_not_allowed', { headers: { allow: 'GET, HEAD' } })
      return send(request, reply, file)
    }

    if (!reads || !isNavigation(request)) throw problem('not_found')
    const start = await findFile(root, '/')
    if (start === null) throw problem('not_found')
    // The same path is 404 for a script or a fetch.
    reply.header('vary', 'sec-fetch-mode, accept')
    return send(request, reply, start)
  }
}

async function findRoot(dir: string): Promise<string> {
  const root = await realpath(resolve(dir)).catch(() => null)
  if (root === null || (await findFile(root, '/')) === null) {
    throw new Error(`The folder of static files has no ${START_PAGE}: ${dir}`)
  }
  return root
}

function send(request: FastifyRequest, reply: FastifyReply, file: StaticFile): FastifyReply {
  const { headers } = request
  if (headers['if-match'] !== undefined || headers['if-unmodified-since'] !== undefined) {
    throw problem('invalid_request', 'If-Match and If-Unmodified-Since are not supported on files.')
  }
  reply.headers(STATIC_HEADERS)
  reply.header('cache-control', cacheControlFor(file.path))
  return reply.sendFile(file.path, { acceptRanges: isServableRange(headers.range, file.size) })
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
