import { createHash } from 'node:crypto'
import { createSessionCookies } from '../../../src/http/cookies.ts'
import { createKeyring } from '../../../src/keyring.ts'
import { createLog } from '../../../src/log.ts'
import type { AuthorizationClient } from '../../../src/oauth/client.ts'
import {
  classifyFailure,
  type GrantedTokens,
  meaningOfRefresh,
  NoTokens,
  type TokenOutcome,
} from '../../../src/oauth/token-response.ts'
import { Secret } from '../../../src/secret.ts'
import type { Sessions } from '../../../src/vault/lifecycle.ts'
import { createParts } from '../../../src/vault/parts.ts'
import type { Access } from '../../../src/vault/refresh/renewals.ts'
import type { Tokens } from '../../../src/vault/refresh/tokens.ts'
import type { EndReason } from '../../../src/vault/session.ts'
import { createMemoryStore } from '../../../src/vault/store/memory/store.ts'
import type { OutboxStore } from '../../../src/vault/store/outbox.ts'
import type { RecordKey } from '../../../src/vault/store/record.ts'
import { type SessionStore, StoreUnavailable } from '../../../src/vault/store/store.ts'
import type { Teardown } from '../../helpers/child.ts'
import { elapsed } from '../../helpers/wait.ts'
import { installVirtualTime } from './virtual-time.ts'

export const TIMING = { aheadSeconds: 300, thresholdSeconds: 30 }
export const TIMEOUT_MS = 10_000
export const LIFE_SECONDS = 60
const PUBLIC_URL = 'http://localhost'
const SECRETS = ['the-first-secret-of-the-tests-of-32-characters']

/** How the authorization server handles a refresh, after `ms` if it is given. */
export type Behaviour =
  /** `early`: the server rotates at once, and only the response is delayed. */
  | { kind: 'granted'; ms?: number; early?: boolean }
  | { kind: 'refused'; ms?: number }
  /** `timedOut`: no connection was made in time. */
  | { kind: 'unavailable'; ms?: number; ofThisGrant?: boolean; timedOut?: boolean }
  /** An error without a usual meaning. `code` null: without a body. */
  | { kind: 'answers'; ms?: number; status: number; code: string | null }
  /** No readable response. `rotates`: the server has used up the refresh token. */
  | { kind: 'in_doubt'; ms?: number; rotates: boolean }

/** The token endpoint did nothing. */
export const UNAVAILABLE = {
  kind: 'unavailable',
  reason: 'no',
  retryAfterSeconds: null,
  timedOut: false,
  ofThisGrant: false,
} as const

/** What an answer of the token endpoint to a refresh means. */
export function answered(status: number, code: string | null): TokenOutcome {
  const body = code === null ? '' : JSON.stringify({ error: code })
  return classifyFailure(new NoTokens({ status, headers: {}, body }), meaningOfRefresh([]))
}

/** One presentation of a refresh token. Instants are in milliseconds of virtual time. */
export interface Presentation {
  family: number
  token: string
  at: number
  by: number
  /** Expiry of the access token that was issued with the refresh token. */
  expiresAt: number
  /** Infinite until the response, and forever if the replica died. */
  answeredAt: number
}

/** One simulated server process. */
export interface Replica {
  readonly id: number
  readonly sessions: Sessions
  readonly tokens: Tokens
  readonly store: OutboxStore
  readonly ended: EndReason[]
  readonly outcomes: TokenOutcome['kind'][]
  /** Number of commands to the store, by name. */
  readonly commands: Map<string, number>
  alive: boolean
}

export type VirtualReplicas = ReturnType<typeof createVirtualReplicas>

const LIMITS = {
  idleMs: 3_600_000,
  maxMs: 36_000_000,
  concurrency: 64,
  timeoutMs: TIMEOUT_MS,
  reuseMs: 0,
  shutdownMs: 20_000,
}

/**
 * A fleet on virtual time: replicas with the real sessions and tokens over one memory store, and an authorization
 * server that rotates refresh tokens and revokes their family at reuse.
 */
export function createVirtualReplicas(t: Teardown, limits: Partial<typeof LIMITS> = {}) {
  const time = installVirtualTime(t)
  /** Error of the wall clocks of the replicas and of the store, in milliseconds. */
  const steps = { wall: 0, store: 0 }
  const clock = { wall: () => time.now() + steps.wall, monotonic: time.clock.monotonic }
  const { idleMs, maxMs, concurrency, timeoutMs, reuseMs, shutdownMs } = { ...LIMITS, ...limits }
  /** The store behind all replicas, without faults. */
  const shared: SessionStore = createMemoryStore({ now: () => time.now() + steps.store, idleMs })
  t.teardown(() => shared.close())
  /** Oldest first. */
  const presentations: Presentation[] = []
  const revoked = new Set<string>()
  const families = new Map<string, { family: number; expiresAt: number; usedAt: number | null }>()
  const endedFamilies = new Set<number>()
  const replicas: Replica[] = []
  const warnings: Record<string, unknown>[] = []
  let lastToken = 0
  /** How long the access tokens of refreshes live. */
  let issuedSeconds = LIFE_SECONDS
  let behave: (presented: Presentation) => Behaviour = () => ({ kind: 'granted' })
  let storeIsDown = false
  /** Time of the last change of `storeIsDown`. */
  let storeTurnedAt = Number.NEGATIVE_INFINITY
  const incidentListeners: (() => void)[] = []

  function issue(family: number, lifeSeconds = issuedSeconds): GrantedTokens {
    lastToken += 1
    const refreshToken = `rt-${lastToken}`
    const expiresAt = time.now() + steps.wall + lifeSeconds * 1_000
    families.set(refreshToken, { family, expiresAt, usedAt: null })
    return {
      accessToken: new Secret(`at-${lastToken}`),
      refreshToken: new Secret(refreshToken),
      lifeSeconds,
      expiresAt,
      scope: null,
    }
  }

  function decide(presented: Presentation, behaviour: Behaviour): TokenOutcome {
    const known = families.get(presented.token)!
    switch (behaviour.kind) {
      case 'unavailable':
        return {
          ...UNAVAILABLE,
          timedOut: behaviour.timedOut === true,
          ofThisGrant: behaviour.ofThisGrant === true,
        }
      case 'answers':
        return answered(behaviour.status, behaviour.code)
      case 'refused':
        endedFamilies.add(known.family)
        return { kind: 'refused', reason: 'invalid_grant' }
      case 'in_doubt':
        if (behaviour.rotates) rotate(presented)
        return { kind: 'in_doubt', reason: 'lost', timedOut: true }
      case 'granted':
        if (!rotate(presented)) return { kind: 'refused', reason: 'invalid_grant' }
        return { kind: 'granted', tokens: issue(known.family) }
    }
  }

  /** Uses the refresh token up. false if it was used before, longer ago than `reuseMs`, or its family has ended. */
  function rotate(presented: Presentation): boolean {
    const known = families.get(presented.token)!
    if (known.usedAt !== null && time.now() - known.usedAt >= reuseMs) endedFamilies.add(known.family)
    if (endedFamilies.has(known.family)) return false
    known.usedAt ??= time.now()
    return true
  }

  function serverFor(replica: () => Replica): Pick<AuthorizationClient, 'refresh' | 'revoke'> {
    return {
      async refresh(refreshToken, { sendBefore, signal }) {
        if (clock.monotonic() >= sendBefore) return { ...UNAVAILABLE, timedOut: true }
        const token = refreshToken.reveal()
        const { family, expiresAt } = families.get(token)!
        const by = replica().id
        const answeredAt = Number.POSITIVE_INFINITY
        const presented: Presentation = { family, token, at: time.now(), by, expiresAt, answeredAt }
        presentations.push(presented)
        const behaviour = behave(presented)
        const ms = behaviour.ms ?? 0
        const decided = behaviour.kind === 'granted' && behaviour.early ? decide(presented, behaviour) : null
        if (ms > 0) await Promise.race([elapsed(ms), aborted(signal)])
        const late = signal.aborted
        const outcome =
          decided ??
          decide(presented, late ? { kind: 'in_doubt', rotates: behaviour.kind === 'granted' } : behaviour)
        // A dead process receives no response.
        if (!replica().alive) return await new Promise<TokenOutcome>(() => {})
        presented.answeredAt = time.now()
        return outcome
      },
      async revoke(token) {
        revoked.add(token.reveal())
        return null
      },
    }
  }

  const health = {
    ...shared.health,
    onIncident: (listener: () => void) => void incidentListeners.push(listener),
    msSinceIncident: () => time.now() - storeTurnedAt,
  }

  function storeFor(replica: () => Replica): SessionStore {
    return new Proxy(shared, {
      get(target, name: keyof SessionStore) {
        if (name === 'health') return health
        if (name === 'close') return target.close
        const begin = (): void => {
          const { commands, alive } = replica()
          commands.set(name, (commands.get(name) ?? 0) + 1)
          if (storeIsDown || !alive) throw new StoreUnavailable(new Error('down'))
        }
        if (name === 'keys')
          return async function* () {
            for await (const batch of target.keys()) {
              begin()
              yield batch
            }
          }
        return async (...args: never[]) => {
          begin()
          return await (target[name] as (...args: never[]) => Promise<unknown>)(...args)
        }
      },
    })
  }

  function addReplica(random: () => number = Math.random, secrets = SECRETS): Replica {
    const ended: EndReason[] = []
    const outcomes: TokenOutcome['kind'][] = []
    const it = (): Replica => replica
    const authorizationClient = serverFor(it)
    const keyring = createKeyring(secrets.map((text) => new Secret(text)))
    const log = createLog('silent')
    log.warn = (fields: unknown) => void warnings.push(fields as Record<string, unknown>)
    const { store, sessions, tokens } = createParts({
      config: {
        publicUrl: PUBLIC_URL,
        session: { idleSeconds: idleMs / 1_000, maxSeconds: maxMs / 1_000, cacheMs: 1_000, isBound: false },
        refresh: { ...TIMING, concurrency, reuseSeconds: reuseMs / 1_000 },
        oauth: { clientId: 'client', tokenTimeoutMs: timeoutMs },
        shutdownSeconds: shutdownMs / 1_000,
      },
      store: storeFor(it),
      authorizationClient,
      keyring,
      cookies: createSessionCookies({ keyring, publicUrl: PUBLIC_URL, secure: false }),
      clock,
      random,
      log,
      observe: {
        events: {
          refreshed: (_trigger, outcome) => void outcomes.push(outcome),
          ended: (reason) => void ended.push(reason),
          lagged() {},
          cache() {},
          retried() {},
          restored() {},
        },
      },
    })
    const commands = new Map<string, number>()
    const id = replicas.length
    const replica: Replica = { id, sessions, tokens, store, ended, outcomes, commands, alive: true }
    replicas.push(replica)
    tokens.start()
    return replica
  }

  return {
    time,
    steps,
    shared,
    presentations,
    revoked,
    replicas,
    addReplica,
    /** Creates a session with fresh tokens. `name` determines its key and its token family. */
    async addSession(replica: Replica, name: number, lifeSeconds = LIFE_SECONDS): Promise<RecordKey> {
      const key = createHash('sha256').update(`session ${name}`).digest('hex')
      await replica.sessions.begin(key, issue(name, lifeSeconds), 'code')
      await replica.store.confirm(key)
      return key
    },
    /** The result of one request of this session. `refusedGen`: the resource server refused the tokens of it. */
    async request(
      replica: Replica,
      key: RecordKey,
      refusedGen?: number,
    ): Promise<Access | { kind: 'store_unavailable' }> {
      try {
        const found = await replica.sessions.look(key)
        if (found.kind === 'ended') return found
        if (found.kind === 'unreadable') return { kind: 'ended', reason: null }
        return await replica.tokens.obtainAccessToken(found.session, refusedGen)
      } catch (error) {
        if (error instanceof StoreUnavailable) return { kind: 'store_unavailable' }
        throw error
      }
    },
    /** What the log warned of. */
    warnings,
    /** Sets how long the access tokens of refreshes live. */
    issueFor(seconds: number) {
      issuedSeconds = seconds
    },
    /** Sets the behaviour of the authorization server, for all presentations or for each. */
    behave(how: Behaviour | ((presented: Presentation) => Behaviour)) {
      behave = typeof how === 'function' ? how : () => how
    },
    /** Begins or ends an outage of the store. */
    storeDown(down: boolean) {
      if (storeIsDown === down) return
      storeIsDown = down
      storeTurnedAt = time.now()
      for (const listener of incidentListeners) listener()
    },
    /** Ends the process of a replica without a stop. */
    crash(replica: Replica) {
      replica.alive = false
      // A dead process has no timers.
      void replica.tokens.stop()
    },
  }
}

interface StartOptions extends Partial<typeof LIMITS> {
  lifeSeconds?: number
  replicas?: number
  sessions?: number
  /** Until the sessions begin. A process that has just started cannot rely on its observations of others. */
  upMs?: number
  random?: () => number
}

/** One or more replicas and sessions, by default one of each with an access token that has expired. */
export async function startSessions(t: Teardown, options: StartOptions = {}) {
  const {
    lifeSeconds = 0,
    replicas = 1,
    sessions = 1,
    upMs = replicas > 1 ? 6_000 : 0,
    random,
    ...limits
  } = options
  const setup = createVirtualReplicas(t, limits)
  for (let count = 0; count < replicas; count += 1) setup.addReplica(random)
  await setup.time.advance(upMs)
  const [replica, other] = setup.replicas as [Replica, Replica]
  const keys: RecordKey[] = []
  for (let name = 1; name <= sessions; name += 1)
    keys.push(await setup.addSession(replica, name, lifeSeconds))
  return { ...setup, replica, other, keys, key: keys[0]! }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))
}

/** Whether the promise has been settled. */
export function follow(promise: Promise<unknown>): { isOver: boolean } {
  const state = { isOver: false }
  void promise.finally(() => Object.assign(state, { isOver: true }))
  return state
}
