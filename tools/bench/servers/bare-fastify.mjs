// The lower bound for Fastify: one route, undici's dispatch for upstream, nothing else.
import Fastify from 'fastify'
import { forward } from './dispatch.mjs'

const server = Fastify({ keepAliveTimeout: 72_000 })
const forwarded = (request, reply) => {
  reply.hijack()
  forward(request.raw, reply.raw)
}
server.get('/', forwarded)
server.get('/flux/:wac/:fluxId', forwarded)
await server.listen({ host: '127.0.0.1', port: Number(process.env.PORT) })
