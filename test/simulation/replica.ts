import { Problem } from '../../src/errors.ts'
import { createSessionCookies, recordKeyOf } from '../../src/http/cookies.ts'
import type { Logger } from '../../src/log.ts'
import { createLibraryStore } from '../../src/login/fastify-session.ts'
import { createLogout } from '../../src/login/logout.ts'
import { createSessionFacts, createSessionInfo } from '../../src/login/session-info.ts'
import { createSignIn } from '../../src/login/sign-in.ts'
import type { GrantedTokens } from '../../src/oauth/token-response.ts'
import { createForward, type Forward } from '../../src/proxy/forward.ts'
import type { Outcome } from '../../src/proxy/resource-client.ts'
import { createVault, type RecordKey, type Vault, type VaultOptions } from '../../src/vault/vault.ts'
import { type Connection, FleetTransport } from './connections.ts'
import type { Deployment } from './deployment.ts'
import { createCheapKeyring } from './keyring.ts'
import { Random } from './random.ts'
import type { Settings } from './settings.ts'
import { createSimulatedStore } from './simulated-store.ts'
import type { Owner, ScheduledEvent } from './virtual-clock.ts'

/** What a browser sends. */
export interface BrowserRequest {
  readonly kind: 'call' | 'session' | 'logout' | 'sign-in'
  readonly cookies: ReadonlyMap<string, string>
  /** Of a sign-in: what the authorization code brought, issued when it reaches the process. */
  readonly redeem?: (wall: number) => GrantedTokens
  /** Of a sign-in: called with the key of the session that begins. */
  readonly onKey?: (key: RecordKey) => void
}

export interface BrowserResponse {
  readonly status: number
  readonly code?: string
  /** Whose data the resource server sent. */
  readonly user?: number | null
  /** Of the session poll. */
  readonly authenticated?: boolean
  readonly setCookies?: ReadonlyMap<string, string>
  readonly clearsCookies?: boolean
}

const OUTGOING = {
  operation: 'GetFlux',
  method: 'GET',
  path: '/flux',
  accept: 'application/json',
  contentType: 'application/json',
  body: null,
  jsonp: false,
  uploadLength: null,
  anyType: false,
  wac: 'DEMO',
  application: false,
  targetId: '1',
} as const

const PUBLIC_URL = 'http://localhost'
const NOTHING_COUNTED = {
  refreshed() {},
  lagged() {},
  ended() {},
  cache() {},
  retried() {},
  restored() {},
}

/** One server process: the real code of sessions, tokens, cache and caller over simulated connections. */
export class Replica implements Owner {
  readonly id: number
  readonly index: number
  readonly name: string
  alive = true
  stalled = false
  /** Whether the load balancer sends it requests. */
  ready = true
  wallOffset = 0
  /** The last step of its wall clock. */
  step = { at: Number.NEGATIVE_INFINITY, byMs: 0 }
  readonly held: ScheduledEvent[] = []
  timers = 0
  readonly random: Random
  readonly transport: FleetTransport
  readonly vault: Vault
  readonly #deployment: Deployment
  readonly #cookies: ReturnType<typeof createSessionCookies>
  readonly #forward: Forward
  readonly #logout: ReturnType<typeof createLogout>
  readonly #sessionInfo: ReturnType<typeof createSessionInfo>
  readonly #libraryStore: ReturnType<typeof createLibraryStore>
  /** Of sign-outs. */
  readonly #endingStore: ReturnType<typeof createLibraryStore>
  readonly #signIn: ReturnType<typeof createSignIn>
  readonly #stalls: { from: number; to: number }[] = []
  #underWay = 0
  #whenIdle: (() => void) | null = null
  /** Calls a browser whose connection has ended with this process. */
  readonly waiting = new Set<() => void>()
  /** Of the request that is being forwarded, when it came. */
  readonly #receivedAt = new Map<string, number>()
  #requests = 0

  constructor(deployment: Deployment, id: number, index: number) {
    const { clock, settings } = deployment
    this.#deployment = deployment
    this.id = id
    this.index = index
    this.name = `replica-${index}.${id}`
    this.random = new Random(deployment.seed, this.name)
    this.wallOffset = deployment.wallOffsets[index] ?? 0
    clock.current = this
    this.transport = new FleetTransport(this, deployment)
    const keyring = createCheapKeyring()
    const clocks = { wall: () => clock.wall(this), monotonic: () => clock.now }
    const log = this.#createLog()
    this.#cookies = createSessionCookies({ keyring, publicUrl: PUBLIC_URL, secure: false })
    const vault = createVault({
      config: configOf(settings),
      store: createSimulatedStore(this.transport, settings.idleMs, deployment.is02(index)),
      authorizationClient: deployment.authorizationServer.clientOf(this),
      keyring,
      cookies: this.#cookies,
      clock: clocks,
      random: () => this.random.next(),
      log,
      observe: { events: NOTHING_COUNTED },
    })
    this.vault = vault
    const cookies = this.#cookies
    this.#forward = createForward({
      callers: vault,
      // The browsers of the simulation know 503 as the answer of a store that is away.
      storeWait: (_response, ask) => ask(),
      application: null,
      resourceClient: { send: (call, onOutcome) => this.#send(call, onOutcome) },
      accounts: { allowed: null, default: null },
      observe() {},
      log,
    })
    this.#logout = createLogout({ endSessionUrl: null, vault, cookies, log })
    this.#sessionInfo = createSessionInfo({ vault, cookies, requireDevice: () => null })
    const ofLibrary = {
      vault,
      sessionFacts: createSessionFacts({ now: () => 0, defaultWac: null }),
    }
    this.#libraryStore = createLibraryStore(ofLibrary)
    this.#endingStore = createLibraryStore({ ...ofLibrary, reads: false })
    this.#signIn = createSignIn({
      vault,
      cookies,
      keyring,
      log,
      identify: null,
      observe: { signedIn() {} },
    })
    vault.start()
    clock.current = null
  }

  note(text: string): void {
    this.#deployment.trace.note(this.#deployment.clock.now, this.name, text)
  }

  /** Handles a request of a browser. Calls `respond` once, unless the process dies. */
  handle(request: BrowserRequest, respond: (response: BrowserResponse) => void): void {
    this.#requests += 1
    this.#underWay += 1
    const id = `${this.name}-${this.#requests}`
    this.#receivedAt.set(id, this.#deployment.clock.now)
    const failed = (error: unknown): BrowserResponse => {
      if (error instanceof Problem) return { status: error.status, code: error.code }
      this.#deployment.checker.violated('a request fails in a way that is not a problem', String(error))
      return { status: 500 }
    }
    const finish = (response: BrowserResponse): void => {
      this.#receivedAt.delete(id)
      this.#underWay -= 1
      if (this.#underWay === 0) this.#whenIdle?.()
      respond(response)
    }
    void this.#respondTo(id, request).catch(failed).then(finish)
  }

  #respondTo(id: string, request: BrowserRequest): Promise<BrowserResponse> {
    switch (request.kind) {
      case 'call':
        return this.#call(id, request)
      case 'session':
        return this.#poll(request)
      case 'logout':
        return this.#signOut(request)
      case 'sign-in':
        return this.#begin(request)
    }
  }

  #call(id: string, { cookies }: BrowserRequest): Promise<BrowserResponse> {
    return new Promise((resolve, reject) => {
      const raw = { finish: (user: number | null) => resolve({ status: 200, user }), once() {} }
      const reply = { raw, send: reject }
      const request = { id, headers: { cookie: headerOf(cookies) }, raw: {} }
      this.#forward(request as never, reply as never, OUTGOING)
    })
  }

  /** The way to the resource server. */
  #send(
    call: { authorization: string | null; requestId: string; response: unknown },
    onOutcome: (outcome: Outcome) => void,
  ): void {
    const { resourceServer, checker, authorizationServer } = this.#deployment
    const token = authorizationServer.accessToken(call.authorization!.slice('Bearer '.length))
    const receivedAt = this.#receivedAt.get(call.requestId)!
    if (token !== null) checker.used(token, this, receivedAt)
    resourceServer.call(token, this, (outcome, user) => {
      onOutcome(outcome)
      if (outcome.kind === 'finished') (call.response as { finish(user: number | null): void }).finish(user)
    })
  }

  async #poll({ cookies }: BrowserRequest) {
    const setCookies = new Map<string, string>()
    const request = await this.#loaded(cookies)
    const reply = { setCookie: (name: string, text: string) => void setCookies.set(name, text) }
    const facts = (await this.#sessionInfo(request as never, reply as never)) as { authenticated: boolean }
    return { status: 200, authenticated: facts.authenticated, setCookies }
  }

  async #signOut({ cookies }: BrowserRequest) {
    const request = await this.#loaded(cookies, this.#endingStore)
    const reply = { clearCookie() {}, code: () => reply, header: () => reply, send: () => reply }
    await this.#logout(request as never, reply as never)
    return { status: 204, clearsCookies: true }
  }

  /** A request with its session, as @fastify/session makes it. */
  async #loaded(cookies: BrowserRequest['cookies'], store = this.#libraryStore) {
    const verified = this.#cookies.verifyIn(headerOf(cookies))
    const request = { headers: { cookie: headerOf(cookies) }, cookies: Object.fromEntries(cookies) }
    if (verified === null) return { ...request, session: {} }
    const { sessionId } = verified
    const found = await new Promise<object>((resolve) =>
      store.get(sessionId, (_error, session) => resolve(session!)),
    )
    const session = {
      ...found,
      sessionId,
      encryptedSessionId: this.#cookies.sign(sessionId),
      destroy: () => settled((done) => store.destroy(sessionId, done)),
    }
    return { ...request, sessionCookie: verified, session }
  }

  async #begin({ cookies, redeem, onKey }: BrowserRequest) {
    const sessionId = this.#newSessionId()
    const setCookies = new Map<string, string>()
    const { sessionName } = this.#cookies
    const key = recordKeyOf(sessionId)
    onKey!(key)
    const request = {
      id: `${this.name} sign-in`,
      headers: { cookie: headerOf(cookies) },
      cookies: Object.fromEntries(cookies),
      session: {
        sessionId,
        save: () => settled((done) => this.#libraryStore.set(sessionId, {} as never, done)),
      },
    }
    const reply = { setCookie: (name: string, text: string) => void setCookies.set(name, text) }
    const tokens = redeem!(this.#deployment.clock.wall(this))
    await this.#signIn(request as never, reply as never, { tokens, flow: 'code' })
    setCookies.set(sessionName, this.#cookies.sign(sessionId))
    return { status: 303, setCookies }
  }

  #newSessionId(): string {
    let id = ''
    while (id.length < 43) id += this.random.bits().toString(36)
    return id.slice(0, 43)
  }

  /** From now on nothing happens here until `resume`. */
  stall(): void {
    this.stalled = true
    this.#stalls.push({ from: this.#deployment.clock.now, to: Number.POSITIVE_INFINITY })
  }

  resume(): void {
    if (!this.alive || !this.stalled) return
    this.#stalls[this.#stalls.length - 1]!.to = this.#deployment.clock.now
    this.#deployment.clock.resume(this)
  }

  /** How long this process has been stalled since then. */
  stalledMsSince(since: number): number {
    const { now } = this.#deployment.clock
    let sum = 0
    for (const { from, to } of this.#stalls) sum += Math.max(0, Math.min(to, now) - Math.max(from, since))
    return sum
  }

  commandsOf(key: RecordKey): Connection {
    return this.transport.commandsOf(key)
  }

  /** The process dies without a stop. */
  crash(): void {
    if (!this.alive) return
    this.ready = false
    this.alive = false
    this.#deployment.checker.died(this, false)
    void this.transport.close()
    this.#deployment.died(this)
  }

  /** As src/app.ts stops: open requests finish and refreshes under way are stored. */
  async stop(): Promise<void> {
    this.ready = false
    const background = this.vault.beginStop()
    if (this.#underWay > 0) await new Promise<void>((resolve) => (this.#whenIdle = resolve))
    await background
    await this.vault.stop()
    await this.transport.close()
    this.#deployment.checker.died(this, true)
    this.alive = false
    this.#deployment.died(this)
  }

  #createLog(): Logger {
    const { trace, clock, checker } = this.#deployment
    const write = (level: string) => (fields: { event?: string; err?: unknown }, text?: string) => {
      trace.note(clock.now, this.name, `${level} ${fields.event ?? ''} ${text ?? ''}`)
      // Faults of the schedule explain a sign-in whose tokens could not be stored.
      if (level === 'error' && fields.event !== 'login.unsaved') {
        const { err } = fields
        const stack = err instanceof Error ? err.stack : ''
        checker.violated('an unexpected error is logged', `${this.name}: ${fields.event} ${stack}`)
      }
    }
    const log = { trace() {}, debug() {}, info: write('info'), warn: write('warn'), error: write('error') }
    return log as unknown as Logger
  }
}

/** The configuration of the server with these settings. */
function configOf(settings: Settings): VaultOptions['config'] {
  const { timing, concurrency, idleMs, maxMs, cacheMs, timeoutMs, reuseMs, shutdownMs } = settings
  return {
    publicUrl: PUBLIC_URL,
    session: { idleSeconds: idleMs / 1_000, maxSeconds: maxMs / 1_000, cacheMs, isBound: false },
    refresh: { ...timing, concurrency, reuseSeconds: reuseMs / 1_000 },
    oauth: { clientId: 'client', tokenTimeoutMs: timeoutMs },
    shutdownSeconds: shutdownMs / 1_000,
  }
}

function headerOf(cookies: ReadonlyMap<string, string>): string | undefined {
  return cookies.size === 0 ? undefined : [...cookies].map(([name, value]) => `${name}=${value}`).join('; ')
}

/** What a function of the library's store says by its callback. */
function settled(run: (done: (error?: unknown) => void) => void): Promise<void> {
  return new Promise((resolve, reject) => run((error) => (error == null ? resolve() : reject(error))))
}
