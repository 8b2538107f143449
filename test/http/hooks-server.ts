import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Test } from 'tap'
import { type HooksOptions, hooks } from '../../src/http/hooks.ts'
import { createServer } from '../../src/http/server.ts'
import { createLog } from '../../src/log.ts'
import { navigationPage } from '../../src/login/pages.ts'
import { configOf } from '../config/environment.ts'
import { collectLog } from '../helpers/log-lines.ts'

/** A server that has the hooks of all requests and no routes, and what it logs. */
export async function withHooks(
  t: Test,
  fallback: (request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply>,
  { observe = () => {}, env = {} }: { observe?: HooksOptions['observe']; env?: Record<string, string> } = {},
) {
  const { sink, text, lines } = collectLog()
  const server = createServer(configOf({ PUBLIC_URL: 'http://localhost:3000', ...env }), createLog('silent'))
  t.teardown(() => server.close())
  await server.register(hooks, {
    ...{ secure: false, hasOperations: false, accessLog: 'errors', log: createLog('info', sink) },
    ...{ observe, sessionOf: () => null, fallback, navigationPage },
  })
  return { server, text, lines, listen: () => server.listen({ host: '127.0.0.1', port: 0 }) }
}
