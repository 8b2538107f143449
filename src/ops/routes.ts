import type { FastifyInstance } from 'fastify'
import Fastify from 'fastify'

export interface OpsOptions {
  /** Why the process should get no traffic now; empty when it should. */
  objections: () => Promise<string[]>
  metrics: { text(): Promise<string>; readonly contentType: string }
}

/**
 * Health and metrics on a listener of their own, so that they are not reachable where the browser
 * is. `/livez` depends on nothing; `/readyz` says what is missing.
 */
export function createOps({ objections, metrics }: OpsOptions): FastifyInstance {
  const ops = Fastify({ logger: false, forceCloseConnections: true })

  ops.get('/livez', async () => ({ status: 'alive' }))

  ops.get('/readyz', async (_request, reply) => {
    const missing = await objections()
    reply.code(missing.length === 0 ? 200 : 503)
    return { status: missing.length === 0 ? 'ready' : 'not ready', missing }
  })

  ops.get('/metrics', async (_request, reply) => {
    try {
      const text = await metrics.text()
      return reply.type(metrics.contentType).send(text)
    } catch {
      return reply.code(503).type('text/plain').send('A worker does not answer.\n')
    }
  })

  return ops
}
