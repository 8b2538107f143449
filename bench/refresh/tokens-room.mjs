// The product's own tokens room over a real Redis, put together as src/app.ts does, and nothing else
// of it: no HTTP in front.
import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { DIST } from '../places.mjs'

const load = (file) => import(pathToFileURL(join(DIST, file)).href)
const { parseConfig } = await load('config.js')
const { createKeyring } = await load('keyring.js')
const { createLog } = await load('log.js')
const { createAuthorizationServer } = await load('oauth/authorization-server.js')
const { createRedisStore } = await load('store/redis.js')
const { SYSTEM_CLOCK } = await load('clock.js')
const { createTokens } = await load('tokens/tokens.js')
const { Secret } = await load('secret.js')

/** The environment of a replica whose sessions these are. */
export function replicaEnv({ redisPort, tokenUrl, prefix }) {
  return {
    HOST: '127.0.0.1',
    PUBLIC_URL: 'http://127.0.0.1:3000',
    AUTH_URL: 'http://127.0.0.1:9',
    BASE_URL: 'http://127.0.0.1:9',
    OAUTH_TOKEN_URL: tokenUrl,
    CLIENT_ID: 'bench',
    CLIENT_SECRET: 'bench-secret',
    SESSION_SECRET: 'a-secret-of-the-benchmark-longer-than-32-characters',
    REDIS_URL: `redis://127.0.0.1:${redisPort}`,
    REDIS_PREFIX: prefix,
    LOG_LEVEL: 'warn',
  }
}

/** The store of such a replica, and the keys that seal its tokens. */
export function openStore(settings) {
  const parsed = parseConfig(replicaEnv(settings))
  if (!parsed.ok) throw new Error(parsed.faults.join('\n'))
  const { config } = parsed
  const idleMs = config.session.idleSeconds * 1_000
  const keyring = createKeyring(config.sessionSecrets)
  const store = createRedisStore({
    ...config.store,
    onRefused(message) {
      throw new Error(message)
    },
    onUnreachable() {},
    onReachable() {},
    observe() {},
  })
  return { config, keyring, store, idleMs }
}

/** New tokens whose access token has so many random bytes, a third more in characters. */
export function newTokens(leftSeconds, accessTokenBytes) {
  return {
    accessToken: new Secret(randomBytes(accessTokenBytes).toString('base64url')),
    refreshToken: new Secret(randomBytes(48).toString('base64url')),
    lifeSeconds: 3_600,
    expiresAt: Date.now() + leftSeconds * 1_000,
    scope: null,
  }
}

/** `onRefreshed` gets the outcome of each token request. */
export function openRoom(settings, onRefreshed) {
  const { config, keyring, store, idleMs } = openStore(settings)
  const authorizationServer = createAuthorizationServer({
    oauth: config.oauth,
    concurrency: config.refresh.concurrency,
    clock: SYSTEM_CLOCK,
  })
  const tokens = createTokens({
    store,
    authorizationServer,
    keyring,
    timing: config.refresh,
    concurrency: config.refresh.concurrency,
    timeoutMs: config.oauth.tokenTimeoutMs,
    idleMs,
    maxMs: config.session.maxSeconds * 1_000,
    clientId: config.oauth.clientId,
    clock: SYSTEM_CLOCK,
    random: Math.random,
    log: createLog('warn'),
    events: {
      refreshed: (_trigger, outcome) => onRefreshed(outcome),
      lagged() {},
      started() {},
      ended() {},
      retried() {},
    },
  })

  /** A session as a sign-in leaves it behind, whose access token lives for so many seconds more. */
  async function signedIn(leftSeconds) {
    const key = randomBytes(32).toString('hex')
    await tokens.keep(key, newTokens(leftSeconds, 600), 'code')
    await store.confirm(key)
    return key
  }

  return { tokens, store, signedIn, concurrency: config.refresh.concurrency }
}

/** Does `work` for 0 to `count` - 1, so many at a time. */
export async function forEach(count, atOnce, work) {
  let next = 0
  const lane = async () => {
    while (next < count) await work(next++)
  }
  await Promise.all(Array.from({ length: atOnce }, lane))
}
