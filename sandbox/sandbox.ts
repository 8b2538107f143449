import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import createAjvCompiler from '@fastify/ajv-compiler'
import fastify, { type FastifyInstance } from 'fastify'
import { createAccounts } from './accounts.ts'
import { createAnswers } from './answers.ts'
import { registerAuthorizationServer } from './authorization-server.ts'
import { createAuthorizations, type End } from './authorizations.ts'
import { createAuthorizeEndpoint } from './authorize-endpoint.ts'
import { keepBodies } from './bodies.ts'
import { registerControlRoutes } from './control-routes.ts'
import { createFaults, type Endpoint, type FaultSwitches, noFaults } from './faults.ts'
import { createFiles } from './files.ts'
import { createGates, type Gate, type GateOptions } from './gates.ts'
import { createJournal, type Journal } from './journal.ts'
import { createPipeline } from './pipeline.ts'
import { environmentFor } from './profile.ts'
import { registerResourceServer } from './resource-server.ts'
import type { TokenResponseBody } from './response.ts'
import { createScenarios } from './scenarios.ts'
import { type SandboxOptions, settingsOf } from './settings.ts'
import { createSites } from './sites.ts'
import { createTokenEndpoint } from './token-endpoint.ts'

/** The imitated platform: both roles of the document on one listener, and the means to steer it. */
export interface Sandbox {
  /** Listens and returns the base URL without a trailing slash. Port 0 picks a free port. */
  listen(at?: { host?: string; port?: number }): Promise<string>
  /** Stops permanently: releases the gates and resets the connections. */
  close(): Promise<void>
  /** Refuses new connections and resets open ones, like a platform that is down. Keeps its state. */
  goOffline(): Promise<void>
  /** Listens again on the same address. */
  goOnline(): Promise<void>
  /** Address of the listener. */
  readonly url: string
  /** `{auth_url}`: `url` and `authPath`. */
  readonly authUrl: string
  /** `{base_url}`: `url` and `resourcePath`. */
  readonly baseUrl: string
  /** The variables of the server for the profile, its addresses included; none without one. */
  readonly env: Record<string, string>
  readonly faults: Omit<FaultSwitches, 'take'>
  readonly journal: Pick<Journal, 'entries' | 'until' | 'clear'>
  /** Requests by `endpoint kind outcome`, and `reuseDetected`. */
  counters(): Record<string, number>
  /** Stops requests at a point until the gate is released. */
  hold(endpoint: Endpoint, options?: GateOptions): Gate
  /** Releases every gate. */
  release(): void
  /** Switches, gates, journal and counters as at the start; tokens and sites stay. */
  reset(): void
  /** Issues tokens for a user without a sign-in (null: for the client itself). */
  issueTokens(username: string | null): TokenResponseBody
  /** Ends every authorization of the user, as the user or an administrator does, or with the account. Returns their number. */
  revokeUser(username: string, reason?: End): number
  revokeAll(): number
  /** Revokes every access token. Refresh tokens stay valid. */
  expireAccessTokens(): void
}

/** A sandbox that does not listen yet. */
export function createSandbox(options: SandboxOptions): Sandbox {
  const settings = settingsOf(options)
  const { now } = settings
  const closing = new AbortController()
  const faults = createFaults({
    ...noFaults(settings.tokenLifeSeconds),
    ...settings.profile?.faults,
    ...options.faults,
  })
  const gates = createGates()
  const journal = createJournal({ size: settings.journalSize, now })
  const accounts = createAccounts({ settings })
  const authorizations = createAuthorizations({ now })
  const sites = createSites({ now })
  const files = createFiles()
  const scenarios = createScenarios({ faults, gates, authorizations })
  const pipeline = createPipeline({ gates, faults, journal, closing: closing.signal })
  let reuseDetected = 0
  let address: { host: string; port: number } | null = null
  let server: Server | null = null

  function url(): string {
    if (address === null) throw new Error('the sandbox does not listen yet')
    const host = address.host.includes(':') ? `[${address.host}]` : address.host
    return `http://${host}:${address.port}`
  }

  const ownAddress = () => `${url()}${settings.resourcePath}`
  const onReuse = () => {
    reuseDetected += 1
  }
  const issuer = () => `${url()}${settings.authPath}${settings.profile?.paths.base ?? ''}`
  const answers = createAnswers(settings.profile, issuer)
  const context = { settings, accounts, authorizations, faults, answers, ownAddress, onReuse }
  const tokens = createTokenEndpoint(context)
  const authorize = createAuthorizeEndpoint({ ...context, tokens, issuer })

  function counters(): Record<string, number> {
    return { ...journal.counters(), reuseDetected }
  }

  function reset(): void {
    scenarios.begin('fine')
    faults.reset()
    gates.releaseAll()
    journal.clear()
    reuseDetected = 0
  }

  const app = createApp(journal)
  app.register(
    async (scope) => {
      keepBodies(scope)
      registerAuthorizationServer(scope, {
        authorize,
        tokens,
        answers,
        profile: settings.profile,
        journal,
        pipeline,
      })
    },
    { prefix: settings.authPath },
  )
  if (settings.control) {
    app.register(async (scope) => {
      registerControlRoutes(scope, { faults, gates, journal, authorizations, scenarios, counters, reset })
    })
  }
  app.register(
    async (scope) => {
      keepBodies(scope)
      registerResourceServer(scope, {
        settings,
        accounts,
        answers,
        authorizations,
        faults,
        sites,
        files,
        journal,
        pipeline,
      })
    },
    { prefix: settings.resourcePath },
  )

  async function open(host: string, port: number): Promise<void> {
    await app.ready()
    const opened = createServer((request, response) => app.routing(request, response))
    // Longer than any client keeps an idle connection: a connection that this side closes at the
    // moment of reuse would look like an unplanned fault.
    opened.keepAliveTimeout = 120_000
    await new Promise<void>((resolve, reject) => {
      opened.once('error', reject)
      opened.listen(port, host, resolve)
    })
    server = opened
    address = { host, port: (opened.address() as AddressInfo).port }
  }

  async function shut(): Promise<void> {
    const closed = server
    server = null
    if (closed === null) return
    await new Promise<void>((resolve) => {
      closed.close(() => resolve())
      closed.closeAllConnections()
    })
  }

  return {
    async listen({ host = '127.0.0.1', port = 0 } = {}) {
      await open(host, port)
      return url()
    },
    async close() {
      // Connections first: what waits below must not get a response out any more.
      const down = shut()
      closing.abort()
      scenarios.begin('fine')
      gates.releaseAll()
      await down
      await app.close()
    },
    goOffline: shut,
    async goOnline() {
      if (address === null) throw new Error('the sandbox has not listened yet')
      if (server === null) await open(address.host, address.port)
    },
    get url() {
      return url()
    },
    get authUrl() {
      return `${url()}${settings.authPath}`
    },
    get baseUrl() {
      return ownAddress()
    },
    get env() {
      return settings.profile === null ? {} : environmentFor(settings.profile, `${url()}${settings.authPath}`)
    },
    faults,
    journal,
    counters,
    hold: gates.hold,
    release: gates.releaseAll,
    reset,
    issueTokens(username) {
      const scope = settings.profile?.env.OAUTH_SCOPE ?? settings.scope ?? ownAddress()
      const kind = username === null ? 'none' : 'new'
      return tokens.tokenResponse(authorizations.open(username, scope), kind)
    },
    revokeUser: (username, reason = 'withdrawn') => authorizations.end(reason, username),
    revokeAll: () => authorizations.end('withdrawn'),
    expireAccessTokens: () => authorizations.expireAccessTokens(),
  }
}

const compile = createAjvCompiler()(
  {},
  { customOptions: { removeAdditional: false, coerceTypes: false, useDefaults: false } },
)
/** By schema: compiling them takes most of the time of a start, and a test process starts many sandboxes. */
const validators = new Map<string, ReturnType<typeof compile>>()

function createApp(journal: Journal): FastifyInstance {
  const app = fastify({
    // However little CPU it gets: many start at once in the tests.
    pluginTimeout: 0,
    routerOptions: { maxParamLength: 512 },
  })
  app.setValidatorCompiler((part) => {
    const key = JSON.stringify(part.schema)
    const validator = validators.get(key) ?? compile(part as never)
    validators.set(key, validator)
    return validator
  })
  app.setNotFoundHandler((request, reply) => {
    const entry = journal.recordArrival(request, { endpoint: 'unknown', kind: null })
    journal.recordOutcome(entry, 'not_found')
    journal.recordStatus(entry, 404)
    return reply.code(404).send({ error: 'not_found' })
  })
  app.setErrorHandler((error: Error & { statusCode?: number }, _request, reply) => {
    const status = error.statusCode ?? 500
    return reply
      .code(status)
      .send({ error: status < 500 ? 'invalid_request' : 'server_error', error_description: error.message })
  })
  return app
}
