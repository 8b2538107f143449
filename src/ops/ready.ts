import fastifyPlugin from 'fastify-plugin'
import { problem, unavailable } from '../errors.ts'
import { problemResponse } from '../http/openapi.ts'
import { PATHS } from '../paths.ts'
import type { Readiness } from './readiness.ts'

/** `/readyz` on the public port, for reverse proxies that can only ask the port they forward to. */
export const ready = fastifyPlugin<{ readiness: Readiness }>(async (server, { readiness }) => {
  server.route({
    method: ['GET', 'HEAD'],
    url: PATHS.ready,
    schema: {
      operationId: 'ready',
      tags: ['session'],
      summary: 'Whether this replica should get traffic',
      security: [],
      response: {
        204: { type: 'null', description: 'It is ready.' },
        503: problemResponse('store_unavailable, shutting_down'),
      },
    },
    async handler(_request, reply) {
      const missing = await readiness.missing()
      const isExpected = true
      if (readiness.isStopping())
        throw problem('shutting_down', { headers: { 'retry-after': '1' }, isExpected })
      if (missing.length > 0)
        throw unavailable('store_unavailable', 1, { reason: missing.join(', '), isExpected })
      return reply.code(204).header('cache-control', 'no-store').send()
    },
  })
})
