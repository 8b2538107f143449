import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import type { Clock } from '../clock.ts'
import type { Config } from '../config/config.ts'
import { proxyFor } from '../config/egress.ts'
import { addExactJsonBodies, dropBody, leaveBodyUnread, requireJson, requireNoBody } from '../http/body.ts'
import { comesFromOwnOrigin, crossOrigin } from '../http/same-origin.ts'
import type { Logger } from '../log.ts'
import type { AuthorizationClient } from '../oauth/client.ts'
import type { Callers } from '../vault/vault.ts'
import { type ApplicationCallers, createApplicationCallers } from './application-caller.ts'
import { createApplicationToken } from './application-token.ts'
import { createBodyBudget } from './body-budget.ts'
import { declaredOperations } from './declared-operation.ts'
import { createForward, type ForwardOptions } from './forward.ts'
import { getFlux } from './get-flux.ts'
import type { Params, RoutedOperation } from './operation.ts'
import { PLATFORM_ERROR } from './outgoing-request.ts'
import { createOwnPaths } from './own-paths.ts'
import { createResourceClient, type ResourceClient, type ResourceClientOptions } from './resource-client.ts'
import { createStoreWait } from './store-wait.ts'
import { updateSite } from './update-site.ts'
import { leaveBodies, requireUpload } from './upload.ts'

interface ProxyOptions {
  config: Config
  authorizationClient: Pick<AuthorizationClient, 'redeemClient'>
  /** The callers of sessions. */
  vault: Callers
  clock: Clock
  log: Logger
  observe: ForwardOptions['observe']
  wrapResourceClient?: WrapResourceClient | undefined
}

/** Surrounds each call of the resource server, for example with a span. */
export type WrapResourceClient = (inner: ForwardOptions['resourceClient']) => ForwardOptions['resourceClient']

/**
 * The operations of the resource server, GetFlux, UpdateSite and those of `OPERATIONS_FILE`, called with the access
 * token of the browser's session or, where that is permitted, with the application's own. They do not use @fastify/session, which
 * would cost more than the forwarding itself.
 */
export const proxy = fastifyPlugin<ProxyOptions>(addProxy, {
  name: 'proxy',
  dependencies: ['hooks', 'openapi'],
  encapsulate: true,
})

/** A page that was opened after another one was left should not wait for the reads of that one. */
const OVERTAKE_MS = 1_000

async function addProxy(scope: FastifyInstance, options: ProxyOptions): Promise<void> {
  const { config, authorizationClient, vault: callers, clock, log, observe } = options
  const { publicUrl, wac: accounts, upstream, clientFluxAllowed } = config
  const ownPathOf = createOwnPaths(config.baseUrl, config.operations, accounts)
  const connected: ResourceClient[] = []
  let saidInsufficientScope = false
  const forward = createForward({
    callers,
    storeWait: createStoreWait({ waitMs: config.storeWaitMs, clock }),
    resourceClient: connect({ overtakeMs: OVERTAKE_MS }),
    application:
      clientFluxAllowed === null
        ? null
        : {
            callers: applicationCallers(clientFluxAllowed),
            // Anybody may read these, slowly too, and must leave the sessions' connections alone.
            resourceClient: connect({ connections: 16, share: 8 }),
          },
    accounts,
    observe,
    log,
  })

  function connect(limits: Pick<ResourceClientOptions, 'connections' | 'share' | 'overtakeMs'>) {
    const resourceClient = createResourceClient({
      ...upstream,
      ...limits,
      baseUrl: config.baseUrl,
      proxy: proxyFor(config.egress, config.baseUrl),
      secure: config.secureCookies,
      onInsufficientScope,
      ownPathOf,
    })
    connected.push(resourceClient)
    return options.wrapResourceClient?.(resourceClient) ?? resourceClient
  }

  /** One warning for a process: it concerns every session. */
  function onInsufficientScope(): void {
    if (saidInsufficientScope) return
    saidInsufficientScope = true
    log.warn(
      { event: 'platform.insufficient_scope' },
      'the resource server refused a call because of the scope of the access token (insufficient_scope): check OAUTH_SCOPE',
    )
  }

  function applicationCallers(allowed: NonNullable<typeof clientFluxAllowed>): ApplicationCallers {
    const token = { authorizationClient, timing: config.refresh, clock, random: Math.random, log }
    return createApplicationCallers({ token: createApplicationToken(token), allowed, clock })
  }

  // Fastify calls this when the last call is over.
  scope.addHook('onClose', async () => void (await Promise.all(connected.map(({ close }) => close()))))
  scope.addHook('onRequest', (request, _reply, done) => {
    const own = comesFromOwnOrigin(request.method, request.headers, publicUrl)
    done(own ? undefined : crossOrigin(request.headers, publicUrl))
  })

  scope.addSchema(PLATFORM_ERROR)
  addExactJsonBodies(scope)

  // To parse and check 64 KB of anybody's body would take twenty milliseconds. The cookie alone decides, not the store.
  function requireCookie(request: FastifyRequest, reply: FastifyReply, done: (error?: Error) => void): void {
    try {
      callers.requireCookie(request.headers.cookie)
      done()
    } catch (error) {
      dropBody(request, reply)
      done(error as Error)
    }
  }

  const countBody = createBodyBudget(upstream.bodyLimitBytes)
  function requireReadable(request: FastifyRequest, reply: FastifyReply): void {
    requireJson(request)
    countBody(request, reply)
  }

  const operations = [
    getFlux(accounts, clientFluxAllowed === '*' || (clientFluxAllowed?.size ?? 0) > 0),
    ...updateSite(accounts, upstream.tokenIn),
    ...declaredOperations(config.operations, accounts),
  ]
  await scope.register(async function withBodies(embodied) {
    embodied.addHook('onRequest', requireCookie)
    for (const one of operations)
      if (one.body !== null && !('types' in one.body)) addOperation(embodied, one, requireReadable)
    await embodied.register(async function withUploads(uploads) {
      leaveBodies(uploads)
      for (const one of operations) {
        const { body } = one
        if (body === null || !('types' in body)) continue
        addOperation(uploads, one, (request, reply) => {
          try {
            requireUpload(request, body)
          } catch (error) {
            leaveBodyUnread(request, reply)
            throw error
          }
        })
      }
    })
  })
  await scope.register(async function withoutBodies(bodiless) {
    leaveBodies(bodiless)
    for (const one of operations) if (one.body === null) addOperation(bodiless, one, requireNoBody)
  })

  function addOperation(
    scope: FastifyInstance,
    { routes, schemas, read }: RoutedOperation,
    checkHeaders: (request: FastifyRequest, reply: FastifyReply) => void,
  ): void {
    for (const schema of schemas) scope.addSchema(schema)
    for (const route of routes) {
      scope.route<{ Params: Params }>({
        ...route,
        method: route.method === 'GET' ? ['GET', 'HEAD'] : route.method,
        // The schemas describe: the operation reads path and query, and validates the body after it has filled it in.
        validatorCompiler: () => () => true,
        bodyLimit: upstream.bodyLimitBytes,
        onRequest(request, reply, done) {
          checkHeaders(request, reply)
          done()
        },
        handler(request, reply) {
          const outgoing = read(request)
          // A call that waits keeps its body as it is sent: parsed it can take twenty times as much.
          request.body = undefined
          forward(request, reply, outgoing)
        },
      })
    }
  }
}
