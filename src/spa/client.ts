import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { FastifyReply, FastifyRequest } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import { problem } from '../errors.ts'
import { headersNamed } from '../http/openapi.ts'
import { PATHS } from '../paths.ts'

const FILES = [
  {
    url: PATHS.client,
    name: 'bff-client.js',
    type: 'text/javascript',
    operationId: 'browserClient',
    summary: 'The browser client of this version, as a module',
  },
  {
    url: PATHS.clientTypes,
    name: 'bff-client.d.ts',
    type: 'text/plain',
    operationId: 'browserClientTypes',
    summary: 'The types of the browser client, for TypeScript',
  },
]

/** Where the server runs from its sources. */
const NEVER_BUILT = 'The browser client was never built: npm run build makes it.'

/** Serves the browser client that fits this server. */
export const browserClient = fastifyPlugin(
  async (server) => {
    for (const { url, name, type, operationId, summary } of FILES) {
      const text = readBuilt(name)
      const etag = `"${createHash('sha256')
        .update(text ?? '')
        .digest('base64url')}"`
      server.route({
        method: ['GET', 'HEAD'],
        url,
        schema: {
          operationId,
          tags: ['session'],
          summary,
          security: [],
          response: {
            200: {
              description: 'The file.',
              headers: headersNamed('X-Request-Id', 'ETag'),
              content: { [type]: { schema: { type: 'string' } } },
            },
            304: { type: 'null', description: 'Unchanged since `If-None-Match`.' },
          },
        },
        handler(request: FastifyRequest, reply: FastifyReply) {
          if (text === null) throw problem('not_found', NEVER_BUILT)
          reply.header('etag', etag).header('cache-control', 'no-cache')
          if (request.headers['if-none-match'] === etag) return reply.code(304).send()
          return reply.type(`${type}; charset=utf-8`).send(text)
        },
      })
    }
  },
  { name: 'browser-client', dependencies: ['hooks', 'openapi'] },
)

/** A file of the built client: beside the bundle, or of the last build where the server runs from its sources. */
function readBuilt(name: string): string | null {
  for (const folder of ['./client/', '../../dist/client/']) {
    try {
      return readFileSync(new URL(folder + name, import.meta.url), 'utf8')
    } catch {}
  }
  return null
}
