// Fastify with its own proxy package, without sign-in.
import replyFrom from '@fastify/reply-from'
import Fastify from 'fastify'

const app = Fastify({ logger: false, keepAliveTimeout: 72_000 })
const authorization = `Bearer ${'a'.repeat(800)}`

await app.register(replyFrom, {
  base: process.env.UPSTREAM_URL,
  undici: { connections: 128, pipelining: 1 },
})
app.get('/flux/:wac/:fluxId', (request, reply) =>
  reply.from(request.url, {
    rewriteRequestHeaders: (_request, { cookie: _kept, ...headers }) => ({ ...headers, authorization }),
  }),
)
await app.listen({ port: Number(process.env.PORT), host: '127.0.0.1' })
