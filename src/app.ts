import { SYSTEM_CLOCK } from './clock.ts'
import type { Config } from './config/config.ts'
import { responsesEnded } from './http/connections.ts'
import { createSessionCookies } from './http/cookies.ts'
import { hooks } from './http/hooks.ts'
import { openApi } from './http/openapi.ts'
import { createServer } from './http/server.ts'
import { createKeyring } from './keyring.ts'
import type { Logger } from './log.ts'
import { navigationPage, sendHomePage } from './login/pages.ts'
import { login } from './login/routes.ts'
import { createAuthorizationClient } from './oauth/client.ts'
import { createDeploymentWarnings } from './ops/deployment-warnings.ts'
import { createMetrics } from './ops/metrics.ts'
import { createReadiness } from './ops/readiness.ts'
import { ready } from './ops/ready.ts'
import { createOpsServer } from './ops/routes.ts'
import { createIdentify } from './proxy/identity.ts'
import { proxy } from './proxy/routes.ts'
import { browserClient } from './spa/client.ts'
import { addStaticFiles } from './spa/routes.ts'
import type { Tracing } from './tracing/spans.ts'
import { createVault, openStore } from './vault/vault.ts'

/**
 * `server` is what browsers reach; `ops` serves health and metrics. `server.close()` is the one way down: it finishes open
 * requests, stores refreshes in flight, then closes everything.
 */
export type App = Awaited<ReturnType<typeof buildApp>>

/** Creates every object and registers the routes of every folder. `onStoreRefused`: the store refuses the credentials or the database. */
export async function buildApp(config: Config, log: Logger, onStoreRefused: (message: string) => void) {
  const { publicUrl, oauth, egress, secureCookies: secure } = config
  const clock = SYSTEM_CLOCK
  // At once: a refresh that begins now might not be stored any more.
  const server = createServer(config, log, () => void vault.beginStop())
  // Hooks that are added later run earlier: what is made first is closed last.
  const closeLater = (close: () => Promise<unknown>) =>
    server.addHook('onClose', async () => void (await close()))
  const keyring = createKeyring(config.sessionSecrets)
  const metrics = createMetrics()
  const warnings = createDeploymentWarnings({ log, clock, publicUrl, scope: oauth.scope })
  const tracing = await startTracing(config, log)
  if (tracing !== undefined) closeLater(() => tracing.close())
  const cookies = createSessionCookies({ keyring, publicUrl, secure })

  const opened = openStore(
    config,
    { clock, log },
    {
      onRefused: onStoreRefused,
      onFinding: warnings.store,
      onCommand(command, seconds, ok) {
        metrics.store(command, seconds)
        tracing?.command(command, seconds, ok)
      },
    },
  )
  const { store } = opened
  closeLater(store.close)

  const isListening = () => server.server.listening
  const readiness = createReadiness({ isListening, ping: store.ping, warnings: warnings.texts })
  const ops = createOpsServer({ readiness, metrics, log })
  closeLater(ops.close)

  const authorizationClient = createAuthorizationClient({
    oauth,
    egress,
    concurrency: config.refresh.concurrency,
    clock,
    onDate: warnings.platformDate,
    wrapTokenFetch: tracing?.wrapTokenFetch,
  })
  closeLater(authorizationClient.close)
  const services = { config, authorizationClient, cookies, keyring, clock, log }
  const vault = createVault({
    ...services,
    store,
    random: Math.random,
    observe: { events: metrics, wrapRefresh: tracing?.wrapRefresh },
  })
  closeLater(vault.stop)
  metrics.watch(vault.gauges)

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
    sessionOf: ({ headers }) => vault.sessionInLog(headers.cookie),
  })
  await server.register(openApi, { sessionCookie: cookies.sessionName })
  await server.register(browserClient)
  await server.register(ready, { readiness })
  const identity = config.identity === null ? null : createIdentify(config.identity, config)
  if (identity !== null) closeLater(identity.close)
  await server.register(login, {
    ...services,
    vault,
    identify: identity?.identify ?? null,
    observe: {
      ...metrics,
      signedIn(flow, granted) {
        metrics.signedIn(flow)
        warnings.signedIn(flow, granted)
      },
    },
  })
  await server.register(proxy, {
    ...services,
    vault,
    observe: metrics.upstream,
    wrapResourceClient: tracing?.wrapResourceClient,
  })

  // The first step after the last connection has ended.
  closeLater(responsesEnded)

  return {
    server,
    ops,
    /**
     * Resolves as soon as the store is connected, at the latest after one second. Until then the public port should stay
     * closed: calls would be refused although nothing is wrong.
     */
    storeTried: opened.tried,
    /** Starts the background refreshes. */
    start: vault.start,
    readiness,
    /** How many sessions have refreshed tokens that the store has not taken. */
    pendingTokens: vault.gauges.unsaved,
    /** From now on the server is not ready, and each response ends its connection. */
    announceStop(): void {
      readiness.announceStop()
      server.drain()
    },
    /** Cuts off what is still open, for a stop that is late. Its lines are in the log by then, its spans exported. */
    async cutOpen(): Promise<void> {
      server.server.closeAllConnections()
      await responsesEnded()
      await tracing?.close(true)
    },
  }
}

/** undefined without a collector: then nothing of OpenTelemetry is loaded, and no request does more than before. */
async function startTracing(config: Config, log: Logger): Promise<Tracing | undefined> {
  if (config.tracing === null) return undefined
  const tracing = await import('./tracing/spans.ts')
  return tracing.startTracing(config, config.tracing, log)
}
