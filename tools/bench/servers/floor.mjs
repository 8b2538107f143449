// The lower bound with our packages: Fastify finds the route, undici sends our header fields, and the response gets ours. With
// ASKS_REDIS=1 ioredis first reads what proves a session. No session is verified, nothing is checked, limited or counted.
import Fastify from 'fastify'
import { Redis } from 'ioredis'
import { Pool } from 'undici'

const { PORT, UPSTREAM_URL, REDIS_PORT, ASKS_REDIS } = process.env
const pool = new Pool(UPSTREAM_URL, { connections: 128, pipelining: 1 })
const redis = ASKS_REDIS === '1' ? new Redis(Number(REDIS_PORT)) : null
const authorization = `Bearer ${'a'.repeat(800)}`
const OURS = ['x-content-type-options', 'nosniff', 'cross-origin-resource-policy', 'same-origin']
OURS.push('content-security-policy', "default-src 'none'; frame-ancestors 'none'; sandbox")
OURS.push('referrer-policy', 'no-referrer', 'cache-control', 'private, no-cache', 'vary', 'Cookie')

function send({ id, raw: request }, response) {
  const { accept, 'accept-encoding': coding, 'accept-language': language } = request.headers
  const ours = [
    'user-agent',
    'token-handler-bff',
    'x-request-id',
    id,
    'via',
    '1.1 bff',
    'content-type',
    accept,
  ]
  const sent = [...ours, 'authorization', authorization, 'accept', accept]
  sent.push('accept-encoding', coding, 'accept-language', language)
  const handler = {
    onRequestStart() {},
    onResponseStart(_controller, status, { 'content-type': type, 'content-length': length }) {
      response.writeHead(status, [
        ...OURS,
        'x-request-id',
        id,
        'content-type',
        type,
        'content-length',
        length,
      ])
    },
    // As this server does: with the head in one write, and ended one tick later.
    onResponseData: (_controller, chunk) => response.write(chunk.toString('latin1'), 'latin1'),
    onResponseEnd: () => process.nextTick(() => response.end()),
    onResponseError: () => response.destroy(),
  }
  pool.dispatch({ path: request.url, method: 'GET', headers: sent }, handler)
}

const server = Fastify({ keepAliveTimeout: 72_000 })
server.get('/', (_request, reply) => reply.send())
server.get('/flux/:wac/:fluxId', (request, reply) => {
  reply.hijack()
  if (redis === null) send(request, reply.raw)
  else redis.hmget('session', 'gen', 'seenAt', 'endsAt').then(() => send(request, reply.raw))
})
await server.listen({ port: Number(PORT), host: '127.0.0.1' })
// An orderly end, so that `--cpu-prof` writes its file.
process.on('SIGTERM', () => process.exit(0))
