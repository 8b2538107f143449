// The usual way with Fastify: its session package over Redis, tokens in the session, its proxy package.
import cookie from '@fastify/cookie'
import replyFrom from '@fastify/reply-from'
import session from '@fastify/session'
import Fastify from 'fastify'
import { createRedisSessions } from './redis-sessions.mjs'

const app = Fastify({ logger: false, keepAliveTimeout: 72_000 })

await app.register(cookie)
await app.register(session, {
  secret: 'a-secret-of-the-benchmark-longer-than-32-characters',
  cookie: { secure: false },
  // With the default, true, each request writes the session too.
  rolling: false,
  saveUninitialized: false,
  store: createRedisSessions('fastify:'),
})
await app.register(replyFrom, {
  base: process.env.UPSTREAM_URL,
  undici: { connections: 128, pipelining: 1 },
})
app.get('/sign-in', async (request) => {
  request.session.tokens = { access: 'a'.repeat(800), refresh: 'r'.repeat(64) }
  return 'signed in'
})
app.get('/flux/:wac/:fluxId', (request, reply) => {
  const { tokens } = request.session
  if (tokens === undefined) return reply.code(401).send('sign in first')
  const authorization = `Bearer ${tokens.access}`
  return reply.from(request.url, {
    rewriteRequestHeaders: (_request, { cookie: _kept, ...headers }) => ({ ...headers, authorization }),
  })
})
await app.listen({ port: Number(process.env.PORT), host: '127.0.0.1' })
