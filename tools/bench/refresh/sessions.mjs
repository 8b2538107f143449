// The server's own sessions and tokens over a real Redis, composed as in src/app.ts, without HTTP.
import { randomBytes } from 'node:crypto'
import { importServerParts } from './server-parts.mjs'

const { SYSTEM_CLOCK, openTokens, sealTokens, ...parts } = await importServerParts()
const { parseConfig, createKeyring, createLog, createAuthorizationServer, createRedisStore, Secret } = parts
const { createOutbox, createSessions, createRevoker, createTokens } = parts

export { openTokens, SYSTEM_CLOCK, sealTokens }

/** The environment of a replica that uses these sessions. */
export function replicaEnv({ redisPort, tokenUrl, prefix, env }) {
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
    ...env,
  }
}

/** The store of such a replica, and the keyring that seals its tokens. */
export function openStore(settings) {
  const parsed = parseConfig(replicaEnv(settings))
  if (!parsed.ok) throw new Error(parsed.faults.join('\n'))
  const { config } = parsed
  const idleMs = config.session.idleSeconds * 1_000
  const keyring = createKeyring(config.sessionSecrets)
  const store = createRedisStore({
    ...config.store,
    idleMs,
    onRefused(message) {
      throw new Error(message)
    },
    onUnreachable() {},
    onReachable() {},
    observe() {},
  })
  return { config, keyring, store, idleMs }
}

/** New tokens. The access token has so many random bytes, in base64url a third more characters. */
export function newTokens(leftSeconds, accessTokenBytes) {
  return {
    accessToken: new Secret(randomBytes(accessTokenBytes).toString('base64url')),
    refreshToken: new Secret(randomBytes(48).toString('base64url')),
    lifeSeconds: 3_600,
    expiresAt: Date.now() + leftSeconds * 1_000,
    scope: null,
  }
}

/** `onRefreshed` receives the outcome of each token request. */
export function openSessions(settings, onRefreshed) {
  const { config, keyring, store: redisStore, idleMs } = openStore(settings)
  const { oauth, egress, refresh } = config
  const { concurrency } = refresh
  const clock = SYSTEM_CLOCK
  const log = createLog('warn')
  const authorizationServer = createAuthorizationServer({ oauth, egress, concurrency, clock })
  const store = createOutbox({
    store: redisStore,
    clock,
    log,
    onRetried() {},
    onRestored() {},
  })
  const revoker = createRevoker({ authorizationServer, log })
  const sessions = createSessions({
    store,
    keyring,
    idleMs,
    maxMs: config.session.maxSeconds * 1_000,
    clientId: config.oauth.clientId,
    clock,
    log,
    schedule: (...session) => tokens.schedule(...session),
    revoke: revoker.revoke,
    onEnded() {},
  })
  const tokens = createTokens({
    store,
    sessions,
    authorizationServer,
    revoker,
    pace: {
      timing: config.refresh,
      concurrency,
      timeoutMs: config.oauth.tokenTimeoutMs,
      // The background work starts and stops with each job, and no token request may begin so long after a stop.
      shutdownMs: 86_400_000,
      random: Math.random,
    },
    clock,
    log,
    observe: {
      events: { refreshed: (_trigger, outcome) => onRefreshed(outcome), lagged() {}, endedByOperator() {} },
    },
  })

  /** A session as after a sign-in, whose access token is valid for so many seconds more. */
  async function signedIn(leftSeconds) {
    const key = randomBytes(32).toString('hex')
    await sessions.create(key, newTokens(leftSeconds, 600), 'code')
    await store.confirm(key)
    return key
  }

  return { sessions, tokens, store: redisStore, signedIn, concurrency, authorizationServer, keyring }
}

/** Runs `work` for 0 to `count` - 1, so many at a time. */
export async function forEach(count, atOnce, work) {
  let next = 0
  const lane = async () => {
    while (next < count) await work(next++)
  }
  await Promise.all(Array.from({ length: atOnce }, lane))
}
