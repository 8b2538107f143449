// Servers of bench/servers: each is a small, typical program with these packages.
import { fileURLToPath } from 'node:url'
import { freePort } from '../processes.mjs'
import { get, manyTimes, signIn } from '../sign-in.mjs'

const file = (name) => fileURLToPath(new URL(`../servers/${name}.mjs`, import.meta.url))

export const bare = {
  name: 'bare',
  title: 'node:http + undici dispatch, no session',
  start: (services, options) => startServer(services, 'bare', options),
}

export const bareFields = {
  name: 'bare-fields',
  title: 'node:http + undici, with the fields and limits of this server',
  start: (services) => startServer(services, 'bare-fields'),
}

export const bareFastify = {
  name: 'bare-fastify',
  title: 'Fastify + undici dispatch, no session',
  start: (services) => startServer(services, 'bare-fastify'),
}

export const replyFrom = {
  name: 'reply-from',
  title: 'Fastify + @fastify/reply-from, no session',
  needsPeers: true,
  start: (services) => startServer(services, 'reply-from'),
}

export const fastifySession = {
  name: 'fastify-session',
  title: 'Fastify + @fastify/session (Redis) + @fastify/reply-from',
  needsPeers: true,
  start: (services) => startServer(services, 'fastify-session', { signInPath: '/sign-in' }),
}

export const expressOidc = {
  name: 'express-oidc',
  title: 'express-openid-connect (Redis) + http-proxy-middleware',
  needsPeers: true,
  start: (services) => startServer(services, 'express-oidc', { signInPath: '/login' }),
}

async function startServer(services, name, { signInPath = null, nodeArgs = [], env = {} } = {}) {
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const { pid, stop } = await services.processes.start(process.execPath, [...nodeArgs, file(name)], {
    core: 'server',
    ready: () => get(url, {}),
    env: {
      PORT: String(port),
      UPSTREAM_URL: services.upstreamUrl,
      AUTH_URL: services.authUrl,
      REDIS_PORT: String(services.redisPort),
      ...env,
    },
  })
  const cookies =
    signInPath === null ? null : await manyTimes(services.sessions, () => signIn(`${url}${signInPath}`))
  return { pid, url, cookies, stop }
}
