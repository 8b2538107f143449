import { setTimeout as pause } from 'node:timers/promises'
import { SYSTEM_CLOCK } from './clock.ts'
import type { Config } from './config/config.ts'
import { createSessionCookies } from './http/cookies.ts'
import { hooks } from './http/hooks.ts'
import { openApi } from './http/openapi.ts'
import { createServer } from './http/server.ts'
import { createKeyring } from './keyring.ts'
import type { Logger } from './log.ts'
import { navigationPage, sendHomePage } from './login/pages.ts'
import { login } from './login/routes.ts'
import { createAuthorizationServer } from './oauth/client.ts'
import { createDeploymentWarnings } from './ops/deployment-warnings.ts'
import { createMetrics } from './ops/metrics.ts'
import { createReadiness } from './ops/readiness.ts'
import { ready } from './ops/ready.ts'
import { createOpsServer } from './ops/routes.ts'
import { PATHS } from './paths.ts'
import { createIdentify } from './proxy/identity.ts'
import { proxy } from './proxy/routes.ts'
import { browserClient } from './spa/client.ts'
import { addStaticFiles } from './spa/routes.ts'
import type { Tracing } from './tracing/spans.ts'
import { createBinding } from './vault/binding.ts'
import { createSessionCache } from './vault/cache.ts'
import type { Caller } from './vault/caller.ts'
import { createSessions } from './vault/lifecycle.ts'
import { createRevoker } from './vault/refresh/revoker.ts'
import { createTokens } from './vault/refresh/tokens.ts'
import { createMemoryStore } from './vault/store/memory/store.ts'
import { createOutbox, type OutboxStore } from './vault/store/outbox.ts'
import { createRedisStore } from './vault/store/redis/store.ts'
import { reportWrites } from './vault/store/report-writes.ts'
import { inLog } from './vault/store/store.ts'
import { whenConnected } from './vault/store/when-connected.ts'

/**
 * `server` is what browsers reach; `ops` serves health and metrics. `server.close()` is the one way down: it finishes open
 * requests, stores refreshes in flight, then closes everything.
 */
export type App = Awaited<ReturnType<typeof buildApp>>

const DEVICE_PATHS = { register: PATHS.device, refresh: PATHS.deviceRefresh }

export const CACHED_SESSIONS = 20_000
/** Longest wait of a start for the store. */
const STORE_WAIT_MS = 1_000

/** Creates every object and registers the routes of every folder. `onStoreRefused`: the store refuses the credentials. */
export async function buildApp(config: Config, log: Logger, onStoreRefused: (message: string) => void) {
  const server = createServer(config, log)
  // Hooks that are added later run earlier: what is made first is closed last.
  const closeLater = (close: () => Promise<unknown>) =>
    server.addHook('onClose', async () => void (await close()))
  const common = await createCommon(config, log)
  const { clock, keyring, metrics, tracing, warnings } = common
  if (tracing !== undefined) closeLater(tracing.close)
  const { publicUrl, secureCookies: secure } = config
  const cookies = createSessionCookies({ keyring, publicUrl, secure })
  const binding = config.session.isBound
    ? createBinding({ keyring, publicUrl, paths: DEVICE_PATHS, now: clock.wall })
    : null

  const { base, storeTried } = openStore(common, onStoreRefused)
  const { retried: onRetried, restored: onRestored } = metrics
  const trustMs = config.session.cacheMs
  const cache = createSessionCache<Caller>({ max: CACHED_SESSIONS, trustMs, monotonic: clock.monotonic })
  const reported = reportWrites(base, { onTouched: cache.distrust, onChanged: cache.drop })
  const store = createOutbox({ store: reported, clock, log, onRetried, onRestored })
  closeLater(store.close)

  const readiness = createReadiness({
    isListening: () => server.server.listening,
    store,
    warnings: warnings.texts,
  })
  const ops = createOpsServer({ readiness, metrics, log })
  closeLater(ops.close)

  const { authorizationServer, revoker, sessions, tokens } = createSessionsWithTokens(common, store)
  closeLater(authorizationServer.close)
  // At once: a refresh that begins now might not be stored any more.
  server.addHook('preClose', async () => void tokens.beginStop())
  closeLater(tokens.stop)

  tracing?.traceRequests(server)
  const fallback =
    config.static === null
      ? sendHomePage
      : await addStaticFiles(server, { settings: config.static, operations: config.operations, log })
  await server.register(hooks, {
    secure,
    hasOperations: config.operations.length > 0,
    fallback,
    navigationPage,
    accessLog: config.accessLog,
    log,
    observe: metrics.request,
    sessionOf({ headers }) {
      const cookie = cookies.read(headers.cookie)
      if (cookie === null) return null
      // To verify one again would cost more than its line.
      const key = cache.keyOf(cookie) ?? cookies.verify(cookie)?.recordKey
      return key === undefined ? null : inLog(key)
    },
  })
  await server.register(openApi, { sessionCookie: cookies.sessionName })
  await server.register(browserClient)
  await server.register(ready, { readiness })
  const identity = config.identity === null ? null : createIdentify(config.identity, config)
  if (identity !== null) closeLater(identity.close)
  const services = { binding, config, authorizationServer, store, sessions, cookies, clock, log }
  await server.register(login, {
    ...services,
    revoke: revoker.revoke,
    keyring,
    identify: identity?.identify ?? null,
    onSignedIn(flow, granted) {
      metrics.signedIn(flow)
      warnings.signedIn(flow, granted)
    },
    onSignInFailed: metrics.signInFailed,
    onBound: metrics.bound,
    onDeviceRefresh: metrics.deviceRefreshed,
  })
  await server.register(proxy, {
    ...services,
    tokens,
    cache,
    metrics,
    wrapResourceServer: tracing?.wrapResourceServer,
  })

  metrics.watch({
    unsaved: store.pendingTokens,
    consecutiveFailures: tokens.consecutiveFailures,
    due: () => store.queueLength().catch(() => null),
    takesWrites: () =>
      store.ping().then(
        () => true,
        () => false,
      ),
  })

  return {
    server,
    ops,
    /**
     * Resolves as soon as the store is connected or known to be unreachable, at the latest after one second. Until then
     * the public port should stay closed: calls would be refused although nothing is wrong.
     */
    storeTried,
    /** Starts the background refreshes. */
    start: tokens.start,
    readiness,
    /** How many sessions have refreshed tokens that the store has not taken. */
    pendingTokens: store.pendingTokens,
    /** From now on the server is not ready, and each response ends its connection. */
    announceStop(): void {
      readiness.announceStop()
      server.drain()
    },
  }
}

type Common = Awaited<ReturnType<typeof createCommon>>

/** What every part of the app uses. */
async function createCommon(config: Config, log: Logger) {
  const { publicUrl, oauth, sessionSecrets } = config
  const clock = SYSTEM_CLOCK
  return {
    config,
    log,
    clock,
    keyring: createKeyring(sessionSecrets),
    metrics: createMetrics(),
    tracing: await startTracing(config, log),
    warnings: createDeploymentWarnings({ log, clock, publicUrl, scope: oauth.scope }),
  }
}

/** The store as the configuration names it. */
function openStore(
  { config, log, clock, metrics, tracing, warnings }: Common,
  onStoreRefused: (message: string) => void,
) {
  const idleMs = config.session.idleSeconds * 1_000
  let noteUnreachable = (): void => {}
  const unreachable = new Promise<void>((resolve) => {
    noteUnreachable = resolve
  })
  const base =
    config.store.kind === 'memory'
      ? createMemoryStore({ now: clock.wall, idleMs })
      : createRedisStore({
          ...config.store,
          idleMs,
          onRefused: onStoreRefused,
          onUnreachable(reason) {
            noteUnreachable()
            log.warn(
              { event: 'store.unreachable', reason },
              'no connection to Redis: check REDIS_URL, and with TLS REDIS_CA_FILE',
            )
          },
          onReachable: () => log.info({ event: 'store.reachable' }, 'connected to Redis'),
          onFinding: warnings.store,
          observe(command, seconds, ok) {
            metrics.store(command, seconds)
            tracing?.command(command, seconds, ok)
          },
        })
  const tried = () => whenConnected(base.ping, STORE_WAIT_MS).catch(() => {})
  return { base, storeTried: () => Promise.race([tried(), unreachable, pause(STORE_WAIT_MS)]) }
}

/** A new session is scheduled, and a refresh may end a session: both are made here. */
function createSessionsWithTokens(
  { config, log, clock, keyring, metrics, tracing, warnings }: Common,
  store: OutboxStore,
) {
  const { oauth, egress, refresh: timing } = config
  const { concurrency } = timing
  const authorizationServer = createAuthorizationServer({
    oauth,
    egress,
    concurrency,
    clock,
    onDate: warnings.platformDate,
    wrapTokenFetch: tracing?.wrapTokenFetch,
  })
  const revoker = createRevoker({ authorizationServer, log })
  const services = { store, keyring, clock, log }
  const sessions = createSessions({
    ...services,
    idleMs: config.session.idleSeconds * 1_000,
    maxMs: config.session.maxSeconds * 1_000,
    clientId: oauth.clientId,
    schedule: (...session) => tokens.schedule(...session),
    revoke: revoker.revoke,
    onEnded: ({ reason }) => metrics.ended(reason),
  })
  const tokens = createTokens({
    ...services,
    sessions,
    authorizationServer,
    revoker,
    pace: {
      timing,
      concurrency,
      timeoutMs: oauth.tokenTimeoutMs,
      reuseMs: config.refresh.reuseSeconds * 1_000,
      shutdownMs: config.shutdownSeconds * 1_000,
      random: Math.random,
    },
    observe: { events: metrics, wrapRefresh: tracing?.wrapRefresh },
  })
  return { authorizationServer, revoker, sessions, tokens }
}

/** undefined without a collector: then nothing of OpenTelemetry is loaded, and no request does more than before. */
async function startTracing(config: Config, log: Logger): Promise<Tracing | undefined> {
  if (config.tracing === null) return undefined
  const tracing = await import('./tracing/spans.ts')
  return tracing.startTracing(config, config.tracing, log)
}
