// Servers of bench/servers: each a small program of the kind that one would write with these packages.
import { fileURLToPath } from 'node:url'
import { freePort } from '../processes.mjs'
import { get, manyTimes, signIn } from '../sign-in.mjs'

const file = (name) => fileURLToPath(new URL(`../servers/${name}.mjs`, import.meta.url))

export const bare = {
  name: 'bare',
  title: 'node:http + undici dispatch, no session',
  start: (world) => startServer(world, 'bare'),
}

export const replyFrom = {
  name: 'reply-from',
  title: 'Fastify + @fastify/reply-from, no session',
  needsPeers: true,
  start: (world) => startServer(world, 'reply-from'),
}

export const fastifySession = {
  name: 'fastify-session',
  title: 'Fastify + @fastify/session (Redis) + @fastify/reply-from',
  needsPeers: true,
  start: (world) => startServer(world, 'fastify-session', '/sign-in'),
}

export const expressOidc = {
  name: 'express-oidc',
  title: 'express-openid-connect (Redis) + http-proxy-middleware',
  needsPeers: true,
  start: (world) => startServer(world, 'express-oidc', '/login'),
}

async function startServer(world, name, signInPath = null) {
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const { pid } = await world.processes.start(process.execPath, [file(name)], {
    core: 'server',
    ready: () => get(url, {}),
    env: {
      PORT: String(port),
      UPSTREAM_URL: world.upstreamUrl,
      AUTH_URL: world.authUrl,
      REDIS_PORT: String(world.redisPort),
    },
  })
  const cookies =
    signInPath === null ? null : await manyTimes(world.sessions, () => signIn(`${url}${signInPath}`))
  return { pid, url, cookies }
}
