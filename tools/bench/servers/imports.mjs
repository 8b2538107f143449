// What any server of these five packages loads before it listens.
import { createServer } from 'node:http'

await Promise.all(
  ['fastify', '@fastify/session', '@fastify/cookie', 'openid-client', 'ioredis'].map((name) => import(name)),
)
createServer((_request, response) => response.end()).listen(Number(process.env.PORT), '127.0.0.1')
