import type { FastifyInstance } from 'fastify'
import { SYSTEM_CLOCK } from './clock.ts'
import type { Config } from './config/config.ts'
import { addHooks } from './http/hooks.ts'
import { openApiDocument } from './http/openapi.ts'
import { createServer } from './http/server.ts'
import { createKeyring } from './keyring.ts'
import type { Logger } from './log.ts'
import { addLogin, loginOpenApi, loginPaths } from './login/routes.ts'
import { createAuthorizationServer } from './oauth/client.ts'
import { createMetrics } from './ops/metrics.ts'
import { createReadiness, type Readiness } from './ops/readiness.ts'
import { createOpsServer } from './ops/routes.ts'
import { createAnonymousCallers } from './proxy/anonymous.ts'
import { type Caller, createCallers } from './proxy/caller.ts'
import { addProxy, PROXY_PATHS, proxyOpenApi } from './proxy/routes.ts'
import { createResourceServer } from './proxy/upstream-request.ts'
import { createSessionCache } from './session/cache.ts'
import { createSessionCookies } from './session/cookies.ts'
import { createOutageGrace } from './session/outage.ts'
import { createSessions } from './session/sessions.ts'
import { addStaticFiles } from './spa/routes.ts'
import { createMemoryStore } from './store/memory/store.ts'
import { createRedisStore } from './store/redis/store.ts'
import { createReliableStore } from './store/reliable.ts'
import { createApplicationToken } from './tokens/application-token.ts'
import { createRevoker } from './tokens/revoker.ts'
import { createTokens } from './tokens/tokens.ts'

interface AppOptions {
  config: Config
  log: Logger
  /** Called when the store refuses the credentials. */
  onStoreRefused: (message: string) => void
}

export interface App {
  /** What browsers reach. */
  server: FastifyInstance
  /** Health and metrics. */
  ops: FastifyInstance
  /** Starts the background refreshes. */
  start(): void
  readiness: Readiness
  shareMetricsWithPrimary(): void
  /** Finishes open requests, stores refreshes in flight, then closes everything. */
  stop(): Promise<void>
}

const CACHED_SESSIONS = 20_000
/** Of the time for a stop, what is kept for closing everything after the last token answer. */
const CLOSING_MS = 3_000

/** Creates every object and registers the routes of every folder. */
export async function buildApp({ config, log, onStoreRefused }: AppOptions): Promise<App> {
  const clock = SYSTEM_CLOCK
  const idleMs = config.session.idleSeconds * 1_000
  const metrics = createMetrics({ storeUp: config.store.kind === 'memory' })
  const keyring = createKeyring(config.sessionSecrets)
  const cookies = createSessionCookies({ keyring, secure: config.secureCookies })

  const base =
    config.store.kind === 'memory'
      ? createMemoryStore({ now: () => performance.timeOrigin + clock.monotonic(), wall: clock.wall, idleMs })
      : createRedisStore({
          ...config.store,
          idleMs,
          onRefused: onStoreRefused,
          onUnreachable: (reason) =>
            log.warn(
              { event: 'store.unreachable', reason },
              'no connection to Redis: check REDIS_URL, and with TLS REDIS_CA_FILE',
            ),
          onReachable: () => log.info({ event: 'store.reachable' }, 'connected to Redis'),
          observe: metrics.store,
        })
  const authorizationServer = createAuthorizationServer({
    oauth: config.oauth,
    concurrency: config.refresh.concurrency,
    clock,
  })
  const store = createReliableStore({
    store: base,
    idleMs,
    clock,
    log,
    onRetried: metrics.retried,
    onRestored: metrics.restored,
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
    plan: (...session) => tokens.plan(...session),
    revoke: revoker.revoke,
    onStarted: metrics.started,
    onEnded: metrics.ended,
  })
  const tokens = createTokens({
    store,
    sessions,
    authorizationServer,
    revoker,
    keyring,
    timing: config.refresh,
    concurrency: config.refresh.concurrency,
    timeoutMs: config.oauth.tokenTimeoutMs,
    stopMs: Math.max(0, config.shutdownSeconds * 1_000 - CLOSING_MS),
    clock,
    random: Math.random,
    log,
    events: metrics,
  })
  const graceMs = config.session.outageGraceSeconds * 1_000
  const cache = createSessionCache<Caller>({ store, max: CACHED_SESSIONS, graceMs })
  const grace = createOutageGrace({ store, cache, graceMs, idleMs, clock, log })
  const callers = createCallers({
    cookies,
    cache,
    store,
    sessions,
    tokens,
    grace,
    timing: config.refresh,
    idleMs,
    graceMs,
    clock,
    observe: metrics.cache,
  })
  const anonymous =
    config.clientFluxAllowed === null
      ? null
      : createAnonymousCallers({
          token: createApplicationToken({
            authorizationServer,
            timing: config.refresh,
            clock,
            random: Math.random,
            log,
          }),
          allowed: config.clientFluxAllowed,
          clock,
        })
  const resourceServer = createResourceServer({
    baseUrl: config.baseUrl,
    timeoutMs: config.upstream.timeoutMs,
    tokenIn: config.upstream.tokenIn,
    secure: config.secureCookies,
  })

  const server = createServer(config)
  const fallback = config.staticDir === null ? null : await addStaticFiles(server, config.staticDir)
  addHooks(server, {
    secure: config.secureCookies,
    knownPaths: [...loginPaths(config.oauth), ...PROXY_PATHS],
    fallback,
    openApi: openApiDocument(config, [...loginOpenApi(config.oauth), ...proxyOpenApi(config)]),
    accessLog: config.accessLog,
    log,
    observe: metrics.request,
  })
  await addLogin(server, {
    config,
    authorizationServer,
    store,
    sessions,
    revoke: revoker.revoke,
    cookies,
    keyring,
    clock,
    log,
  })
  await addProxy(server, {
    publicUrl: config.publicUrl,
    callers,
    anonymous,
    resourceServer,
    accounts: config.wac,
    bodyLimitBytes: config.upstream.bodyLimitBytes,
    observe: metrics.upstream,
    log,
  })

  const readiness = createReadiness({ isListening: () => server.server.listening, store, grace })
  const ops = createOpsServer({ readiness, metrics })
  metrics.watch({
    unsaved: store.heldTokens,
    consecutiveFailures: tokens.consecutiveFailures,
    due: () => store.queueLength().catch(() => null),
  })

  return {
    server,
    ops,
    start: tokens.start,
    readiness,
    shareMetricsWithPrimary: metrics.shareWithPrimary,
    async stop() {
      // At once: a refresh that begins now might not be stored any more.
      const background = tokens.beginStop()
      await server.close()
      await resourceServer.close()
      await background
      await tokens.stop()
      await authorizationServer.close()
      await ops.close()
      await store.close()
    },
  }
}
