import { realpath } from 'node:fs/promises'
import { resolve } from 'node:path'
import fastifyStatic from '@fastify/static'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { problem } from '../errors.ts'
import { isOwnPath } from '../paths.ts'
import { cacheControlFor, STATIC_HEADERS } from './headers.ts'
import { decodePath, findFile, type StaticFile } from './lookup.ts'

/** Answers a request that no route has taken. Throws a `Problem` where there is nothing to answer with. */
export type ServeSpa = (request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply>

export interface SpaOptions {
  /** Folder of the app's build, with `index.html` in it; a relative path counts from the working directory. */
  dir: string
}

const START_PAGE = 'index.html'

/**
 * Prepares a folder to be served and gives the handler to call where no route matched. The handler answers GET and
 * HEAD with files, and navigations to unknown paths outside `/auth`, `/flux` and `/site` with `index.html` (history
 * fallback). It throws `not_found` for all else, and `method_not_allowed` for other methods on a file's path.
 *
 * It is no route on purpose: a wildcard would take over what the app answers on its own paths.
 *
 * Throws when the folder has no `index.html`.
 */
export async function registerSpa(app: FastifyInstance, options: SpaOptions): Promise<ServeSpa> {
  const root = await findRoot(options.dir)
  await app.register(fastifyStatic, {
    root,
    serve: false,
    cacheControl: false,
    // `decodePath` lets no other but `.well-known` through.
    dotfiles: 'allow',
    index: false,
  })

  return async function serveSpa(request, reply) {
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

/**
 * Whether the client is a person who opens a page: `Sec-Fetch-Mode: navigate`, or without that header an `Accept`
 * that names `text/html` (Fetch Metadata section 2.2).
 */
function isNavigation(request: FastifyRequest): boolean {
  const mode = request.headers['sec-fetch-mode']
  if (mode !== undefined) return mode === 'navigate'
  return /\btext\/html\b/i.test(request.headers.accept ?? '')
}

/** A range that cannot be served is ignored, as RFC 9110 section 14.2 allows: the answer is the whole file. */
function isServableRange(range: string | undefined, size: number): boolean {
  if (range === undefined) return true
  const match = /^bytes=(\d*)-(\d*)$/.exec(range)
  if (match === null) return false
  const [first, last] = [match[1] ?? '', match[2] ?? '']
  if (first === '') return Number(last) > 0 && size > 0
  return Number(first) < size && (last === '' || Number(last) >= Number(first))
}
