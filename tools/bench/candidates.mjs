// The servers that are compared. A candidate is `{ name, title, start }`, and perhaps `goal`: at most so many times the
// CPU of `bare`; `asksRedis`: whether each call does; `signInPath`: none without sessions; `isInstalled`: false leaves
// it out; `peers`: it needs the packages of this folder. `start(services, { nodeArgs })` resolves with
// `{ url, pid, stop }`, and perhaps `cookies` of browsers that need not sign in.
import { closeSync, existsSync, openSync } from 'node:fs'
import { join } from 'node:path'
import { get, require200 } from './browser.mjs'
import { BENCH, findProgram, MAIN } from './machine.mjs'
import { freePort } from './processes.mjs'
import { APACHE_OIDC, startApache } from './servers/apache.mjs'
import { OAUTH2_PROXY, startOauth2Proxy, startWonderwall, WONDERWALL } from './servers/go-peers.mjs'

/** This server. All replicas of a run have one Redis and one public URL, where the browsers sign in. */
export const OURS = {
  name: 'ours',
  title: 'this server by default',
  goal: 1.2,
  asksRedis: false,
  signInPath: '/auth/login',
  start: startOurs,
}

export const UNCACHED = configured('uncached', 'asks Redis in each call: `SESSION_CACHE_MS=0`', {
  goal: 1.5,
  asksRedis: true,
  env: () => ({ SESSION_CACHE_MS: '0' }),
})

export const CONFIGURED = [
  UNCACHED,
  configured('logged', '`ACCESS_LOG=all`, `/metrics` read each second', { goal: 1.5, start: startLogged }),
  configured('traced', 'every request traced', {
    goal: 2.2,
    // Takes any POST.
    env: ({ upstreamUrl: url }) => ({
      OTEL_EXPORTER_OTLP_ENDPOINT: url,
      OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
    }),
  }),
]

export const BARE = {
  name: 'bare',
  title: 'bare: node:http + undici, no session',
  start: (services, options) => startPeer(services, 'bare', options),
}

/** What our packages alone cost, for the work of `ours` and of the first two that are configured. */
export const FLOORS = [
  floor('fastify', 'floor: Fastify + undici, our header fields, no session'),
  floor('redis', 'floor that asks Redis: the same with ioredis'),
  floor('log', 'floor that logs: the same with a line of pino'),
]

/** The same for open pages: a session that was not asked for in the last second is read first. */
export const FLOOR_OF_USERS = floor('recent', 'floor that asks Redis once a second for a session')

export const PEERS = [
  peer('fastify-session', 'Fastify + @fastify/session + reply-from', '/sign-in'),
  peer('express-oidc', 'express-openid-connect + http-proxy-middleware', '/login'),
  {
    ...peer('apache', 'Apache + mod_auth_openidc', '/flux/small/s1'),
    peers: false,
    start: startApache,
    isInstalled: () => findProgram('apache2') !== null && existsSync(APACHE_OIDC),
  },
]

/** Programs that the environment names. */
export const GO_PEERS = [
  goPeer('oauth2-proxy', OAUTH2_PROXY, '/oauth2/start?rd=/flux/small/s1', startOauth2Proxy),
  goPeer('wonderwall', WONDERWALL, '/oauth2/login?redirect=/flux/small/s1', startWonderwall),
]

/** The same program once more: how much two equal candidates differ is what a run cannot resolve. */
export function again(candidate) {
  const title = 'the same again: shows the noise'
  return { ...candidate, name: `${candidate.name}-again`, title, goal: undefined }
}

function floor(kind, title) {
  const start = (services, options) => startPeer(services, 'bare', { ...options, env: { FLOOR: kind } })
  return { name: `floor-${kind}`, title, asksRedis: kind === 'redis', start }
}

function configured(name, title, { env, ...more }) {
  const start = (services, options) => startOurs(services, { ...options, env: env(services) })
  return { ...OURS, name: `ours-${name}`, title, start, ...more }
}

function peer(name, title, signInPath) {
  const start = (services, options) => startPeer(services, name, options)
  return { name, title, signInPath, asksRedis: true, peers: true, start }
}

function goPeer(name, program, signInPath, start) {
  const isInstalled = () => program !== undefined
  return { name, title: name, signInPath, asksRedis: true, start, isInstalled }
}

/** Environment of this server, and of the worker that uses its parts. */
export function ourEnv(services, env = {}) {
  return {
    HOST: '127.0.0.1',
    PUBLIC_URL: services.publicUrl ?? 'http://127.0.0.1:3000',
    AUTH_URL: services.authUrl,
    BASE_URL: services.upstreamUrl,
    CLIENT_ID: 'bench',
    CLIENT_SECRET: 'bench-secret',
    SESSION_SECRET: 'a-secret-of-the-benchmark-longer-than-32-characters',
    // Takes any token request.
    OAUTH_TOKEN_URL: `${services.upstreamUrl}/oauth/token`,
    REDIS_URL: services.store.url,
    REDIS_PREFIX: 'bench:',
    LOGIN_RATE_PER_MINUTE: '0',
    ...env,
  }
}

export async function startOurs(services, { env, nodeArgs = [], stdout } = {}) {
  const [port, opsPort] = [await freePort(), await freePort()]
  const [url, opsUrl] = [port, opsPort].map((each) => `http://127.0.0.1:${each}`)
  services.publicUrl ??= url
  const { pid, stop } = await services.processes.start(process.execPath, [...nodeArgs, MAIN], {
    core: 'server',
    stdout,
    env: { ...ourEnv(services, env), PORT: String(port), OPS_PORT: String(opsPort) },
    ready: () => require200(`${opsUrl}/readyz`),
  })
  return { pid, url, opsUrl, stop }
}

async function startLogged(services, options) {
  const file = openSync(join(services.processes.folder, 'access.log'), 'w')
  const { stop, ...started } = await startOurs(services, {
    ...options,
    env: { ACCESS_LOG: 'all' },
    stdout: file,
  })
  const timer = setInterval(() => get(`${started.opsUrl}/metrics`).catch(() => {}), 1_000)
  return {
    ...started,
    async stop() {
      clearInterval(timer)
      await stop()
      closeSync(file)
    },
  }
}

/** A program of servers/. */
export async function startPeer(services, name, { nodeArgs = [], env } = {}) {
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const file = join(BENCH, 'servers', `${name}.mjs`)
  const { pid, stop } = await services.processes.start(process.execPath, [...nodeArgs, file], {
    core: 'server',
    ready: () => get(url),
    env: {
      PORT: String(port),
      UPSTREAM_URL: services.upstreamUrl,
      AUTH_URL: services.authUrl,
      REDIS_PORT: String(services.store.port),
      ...env,
    },
  })
  return { pid, url, stop }
}

/** The worker that uses the server's own store, on the cores `server` or `load`. `ask({ job, ... })` runs a job of it. */
export function startWorker(services, { core = 'load', env = {} } = {}) {
  const args = ['--import', import.meta.resolve('tsx'), join(BENCH, 'worker.mjs')]
  return services.processes.start(process.execPath, args, {
    core,
    ready: /ready/,
    ipc: true,
    env: ourEnv(services, env),
  })
}
