import Fastify, { type FastifyInstance } from 'fastify'
import type { Readiness } from './readiness.ts'

interface OpsOptions {
  readiness: Pick<Readiness, 'missing' | 'warnings'>
  metrics: { text(): Promise<string>; readonly contentType: string }
}

/**
 * Health and metrics on a server of their own, so that browsers cannot reach them. `/livez` depends on nothing;
 * `/readyz` says what is missing.
 */
export function createOpsServer({ readiness, metrics }: OpsOptions): FastifyInstance {
  const server = Fastify({ logger: false, forceCloseConnections: true })

  server.get('/livez', async () => ({ status: 'alive' }))

  server.get('/readyz', async (_request, reply) => {
    const missing = await readiness.missing()
    reply.code(missing.length === 0 ? 200 : 503)
    const warnings = readiness.warnings()
    return {
      status: missing.length === 0 ? 'ready' : 'not ready',
      missing,
      ...(warnings.length === 0 ? {} : { warnings }),
    }
  })

  server.get('/metrics', async (_request, reply) => {
    try {
      const text = await metrics.text()
      return reply.type(metrics.contentType).send(text)
    } catch {
      return reply.code(503).type('text/plain').send('A worker does not answer.\n')
    }
  })

  return server
}
