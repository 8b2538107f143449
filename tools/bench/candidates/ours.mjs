// This server as shipped, in some configurations: replicas of one deployment over one Redis, so that all of them
// know the browsers that signed in at the first.
import { closeSync, openSync } from 'node:fs'
import { join } from 'node:path'
import { DIST } from '../places.mjs'
import { freePort } from '../processes.mjs'
import { get, manyTimes, signIn } from '../sign-in.mjs'

const PREFIX = 'bench:'

/** Redis commands per request that show whether the cache was used. Each session is read again once a minute. */
const NEXT_TO_NONE = 0.5
const ONE_EACH = 0.9

export const ours = {
  name: 'ours',
  title: 'this server, as it starts by default',
  start: (services) => startOurs(services),
  check: (redisCommands) =>
    redisCommands < NEXT_TO_NONE ? null : `${redisCommands} Redis commands a request: the cache was not used`,
}

export const oursUncached = {
  name: 'ours-uncached',
  title: 'this server, SESSION_CACHE_MS=0: a Redis read each',
  async start(services) {
    return await startOurs(services, { env: { SESSION_CACHE_MS: '0' } })
  },
  check: (redisCommands) =>
    redisCommands > ONE_EACH ? null : `${redisCommands} Redis commands a request: the cache was used`,
}

export const oursLogged = {
  name: 'ours-logged',
  title: 'this server, ACCESS_LOG=all, /metrics read each second',
  async start(services) {
    const file = openSync(join(services.folder, 'access.log'), 'w')
    const started = await startOurs(services, { env: { ACCESS_LOG: 'all' }, stdout: file })
    return {
      ...started,
      alongside() {
        const timer = setInterval(() => get(`${started.opsUrl}/metrics`, {}).catch(() => {}), 1_000)
        return () => clearInterval(timer)
      },
      async stop() {
        await started.stop()
        closeSync(file)
      },
    }
  },
}

export const oursTraced = {
  name: 'ours-traced',
  title: 'this server, every request traced (OpenTelemetry)',
  start: (services) =>
    startOurs(services, {
      env: {
        // Takes any POST.
        OTEL_EXPORTER_OTLP_ENDPOINT: services.upstreamUrl,
        OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
      },
    }),
}

/** The same program again: how much two equal candidates differ is what a run cannot resolve. */
export const oursAgain = { ...ours, name: 'ours-again', title: 'this server a second time' }

/** Starts a replica, on free ports unless they are given. The first one signs the browsers in. */
export async function startOurs(
  services,
  { env = {}, nodeArgs = [], stdout, core = 'server', ports: given } = {},
) {
  const { port, opsPort } = given ?? { port: await freePort(), opsPort: await freePort() }
  const url = `http://127.0.0.1:${port}`
  const opsUrl = `http://127.0.0.1:${opsPort}`
  services.publicUrl ??= url
  const { pid, stop } = await services.processes.start(
    process.execPath,
    [...nodeArgs, join(DIST, 'main.js')],
    {
      core,
      stdout,
      ready: () => requireStore(url),
      env: {
        HOST: '127.0.0.1',
        PORT: String(port),
        OPS_PORT: String(opsPort),
        // Sign-ins happen at the first replica; all others only know its sessions.
        PUBLIC_URL: services.publicUrl,
        AUTH_URL: services.authUrl,
        BASE_URL: services.upstreamUrl,
        CLIENT_ID: 'bench',
        CLIENT_SECRET: 'bench-secret',
        SESSION_SECRET: 'a-secret-of-the-benchmark-longer-than-32-characters',
        REDIS_URL: `redis://127.0.0.1:${services.redisPort}`,
        REDIS_PREFIX: PREFIX,
        LOGIN_RATE_PER_MINUTE: '0',
        ...env,
      },
    },
  )
  services.ourCookies ??= await manyTimes(services.sessions, () => signIn(`${services.publicUrl}/auth/login`))
  return { pid, url, opsUrl, cookies: services.ourCookies, stop }
}

/** Rejects until the replica reaches Redis. */
async function requireStore(url) {
  const { status } = await get(`${url}/auth/session`, {})
  if (status !== 200) throw new Error(`${url} responds ${status}`)
}
