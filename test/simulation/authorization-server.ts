import type { RefusedGrant } from '../../src/config/oauth.ts'
import type { RevocationFailure } from '../../src/oauth/client.ts'
import type { RequestBounds } from '../../src/oauth/token-fetch.ts'
import {
  classifyFailure,
  meaningOfRefresh,
  NoTokenResponse,
  NoTokens,
  type TokenOutcome,
} from '../../src/oauth/token-response.ts'
import { Secret } from '../../src/secret.ts'
import type { Deployment } from './deployment.ts'
import type { ProtocolStep } from './faults.ts'
import type { InvariantChecker } from './invariants.ts'
import { Random } from './random.ts'
import type { Replica } from './replica.ts'
import type { ServerModel } from './server-models.ts'
import { leaseMs } from './settings.ts'
import type { VirtualClock } from './virtual-clock.ts'

/** All tokens that descend from one sign-in. */
export interface Family {
  readonly id: number
  readonly user: number
  readonly lifeSeconds: number
  readonly rotates: boolean
  serial: number
  revoked: boolean
  /** Of the newest access token, milliseconds of virtual time. */
  expiresAt: number
}

export interface RefreshToken {
  readonly text: string
  readonly family: Family
  readonly serial: number
  /** At its first use it brought the tokens of this serial. */
  used: { readonly at: number; readonly serial: number; times: number } | null
  /** When its access token expires by the clock of the process that received it. */
  clientExpiresAt: number
  /** Milliseconds of virtual time. */
  issuedAt: number
  /** For so long the process whose refresh brought it may have been stalled under its lease. */
  stalledMs: number
  readonly presentations: Presentation[]
}

export interface AccessToken {
  readonly text: string
  readonly family: Family
  readonly serial: number
  /** True time, milliseconds of virtual time. */
  readonly expiresAt: number
  /** A call has shown it to a resource server. */
  used: boolean
}

/** One presentation of a refresh token, from the moment it leaves the process. */
export interface Presentation {
  readonly token: RefreshToken
  readonly by: Replica
  /** Milliseconds of virtual time. */
  readonly sentAt: number
  /** `open`: the connection stands and no response has come. `closed`: it ended without a response. */
  state: 'open' | 'finished' | 'closed'
  outcome: TokenOutcome['kind'] | null
  /** When its response arrived or its connection closed. */
  overAt: number
  /** The serial of the tokens that the server issued for it, 0 for none. */
  issued: number
}

/** The fate of a request that reaches the token endpoint. */
export type Behaviour =
  | { kind: 'responds' }
  /** `rotatesFirst`: the server rotates at once, and only the response is delayed. */
  | { kind: 'slow'; ms: number; rotatesFirst: boolean }
  /** No response ever comes. `connection`: it breaks at once, or hangs. */
  | { kind: 'loses'; rotates: boolean; connection: 'breaks' | 'hangs' }
  | ({ kind: 'error'; rotates: boolean } & ErrorResponse)

interface ErrorResponse {
  status: number
  /** The error code in the body; null for a body without one. */
  error: string | null
  retryAfterSeconds: number | null
}

/** A behaviour of the token endpoint for a time. */
interface BehaviourFault {
  readonly share: number
  readonly behaviour: Behaviour
}

/** The network faults between a process and the authorization server. */
interface EndpointFaults {
  cut: number
  /** Extra time for a request on its way to the server. */
  delayMs: number
}

/** A token request that has left its process. Its connection stands while its presentation is open. */
interface Exchange {
  readonly presentation: Presentation
  /** By the clock of the process. */
  readonly requestedAt: number
  /** Runs in the process: the response has arrived. */
  readonly finish: (outcome: TokenOutcome) => void
  /** Runs in the process: the connection broke. */
  readonly broken: () => void
}

/**
 * The token and revocation endpoints. Rotation is strict or lenient; everything else that may happen to a request
 * is a fault of the schedule.
 */
export class SimulatedAuthorizationServer {
  readonly behaviours = new Set<BehaviourFault>()
  refusesConnections = 0
  /** What it has taken, it works through one after the other, each for so long; 0: at once. */
  serviceMs = 0
  #freeAt = 0
  /** By the index of the replica. */
  readonly faults: EndpointFaults[]
  readonly #clock: VirtualClock
  readonly #random: Random
  readonly #checker: InvariantChecker
  readonly #model: ServerModel
  readonly #namesDead: boolean
  readonly #leaseMs: number
  /** Called at each step that an aimed fault may wait for. */
  readonly #onStep: (step: ProtocolStep, by: Replica) => void
  readonly #refreshTokens = new Map<string, RefreshToken>()
  readonly #accessTokens = new Map<string, AccessToken>()
  /** What a cut holds back, by the index of the replica. */
  readonly #held: (() => void)[][]
  #families = 0

  constructor(deployment: Deployment) {
    this.#clock = deployment.clock
    this.#random = new Random(deployment.seed, 'authorization server')
    this.#checker = deployment.checker
    this.#model = deployment.settings.server
    this.#namesDead = deployment.settings.namesDead
    this.#leaseMs = leaseMs(deployment.settings)
    this.serviceMs = deployment.settings.crowd?.serviceMs ?? 0
    const replicas = { length: deployment.settings.replicas }
    this.faults = Array.from(replicas, () => ({ cut: 0, delayMs: 0 }))
    this.#held = Array.from(replicas, () => [])
    this.#onStep = (step, by) => deployment.onStep(step, by.index)
  }

  newFamily(user: number, lifeSeconds: number): Family {
    const { rotates } = this.#model
    this.#families += 1
    return { id: this.#families, user, lifeSeconds, rotates, serial: 0, revoked: false, expiresAt: 0 }
  }

  /** Tokens for a request that began at `requestedAt` by the clock of the process. */
  issue(family: Family, requestedAt: number, stalledMs = 0) {
    family.serial += 1
    const { id, serial, lifeSeconds } = family
    const accessToken = `at-${id}-${serial}`
    const refreshToken = `rt-${id}-${serial}`
    const expiresAt = requestedAt + lifeSeconds * 1_000
    this.#refreshTokens.set(refreshToken, {
      text: refreshToken,
      family,
      serial,
      used: null,
      clientExpiresAt: expiresAt,
      issuedAt: this.#clock.now,
      stalledMs,
      presentations: [],
    })
    const trueExpiry = this.#clock.now + lifeSeconds * 1_000
    family.expiresAt = trueExpiry
    this.#accessTokens.set(accessToken, {
      text: accessToken,
      family,
      serial,
      expiresAt: trueExpiry,
      used: false,
    })
    // One of long ago decides there whether a refresh token is granted again.
    if (!this.#model.untilUsed) this.#accessTokens.delete(`at-${id}-${serial - 4}`)
    return {
      accessToken: new Secret(accessToken),
      refreshToken: new Secret(refreshToken),
      lifeSeconds,
      expiresAt,
      scope: null,
    }
  }

  accessToken(text: string): AccessToken | null {
    return this.#accessTokens.get(text) ?? null
  }

  /** The endpoints as one process reaches them. */
  clientOf(by: Replica) {
    return {
      refresh: (refreshToken: Secret, bounds: Required<RequestBounds>): Promise<TokenOutcome> =>
        this.#refresh(by, refreshToken.reveal(), bounds),
      revoke: (token: Secret): Promise<RevocationFailure | null> => this.#revoke(by, token.reveal()),
    }
  }

  #isCutFrom(by: Replica): boolean {
    return this.faults[by.index]!.cut > 0
  }

  #latency(): number {
    return this.#random.between(1, 8)
  }

  #refresh(by: Replica, text: string, { sendBefore, signal }: RequestBounds): Promise<TokenOutcome> {
    const clock = this.#clock
    return new Promise((resolve) => {
      let over = false
      let presentation: Presentation | null = null
      const finish = (outcome: TokenOutcome): void => {
        if (over) return
        over = true
        signal.removeEventListener('abort', onAbort)
        if (presentation !== null) this.#checker.finished(presentation, outcome)
        resolve(outcome)
      }
      const noResponse = (cause: unknown): void => {
        if (presentation !== null) this.#checker.closed(presentation)
        finish(classifyFailure(new NoTokenResponse(presentation !== null, cause)))
      }
      const onAbort = (): void => {
        if (presentation !== null && presentation.state === 'open') this.#checker.reset(presentation)
        noResponse(signal.reason)
      }
      const broken = (): void => noResponse(new Error('the connection broke'))
      if (signal.aborted) return onAbort()
      signal.addEventListener('abort', onAbort)
      const requestedAt = clock.wall(by)
      const write = (): void => {
        if (over) return
        // The first byte leaves within the lease or not at all.
        if (clock.now >= sendBefore) return void noResponse(new Error('it could not be sent in time'))
        const token = this.#refreshTokens.get(text)
        if (token === undefined) throw new Error(`an unknown refresh token was presented: ${text}`)
        const sent = this.#checker.presented(token, by)
        presentation = sent
        by.note(`presents ${text}`)
        this.#onStep('request sent', by)
        const arrive = (): void => {
          if (sent.state !== 'open') return
          if (this.#isCutFrom(by)) return void this.#hold(by, arrive)
          this.#checker.delivered(sent)
          this.#onStep('request delivered', by)
          this.#take({ presentation: sent, requestedAt, finish, broken })
        }
        clock.in(this.#latency() + this.faults[by.index]!.delayMs, null, arrive)
      }
      if (this.refusesConnections > 0) {
        return void clock.in(this.#latency(), by, () => noResponse(new Error('the connection was refused')))
      }
      // Half of the requests find a connection that stands; the others have to connect.
      const connects = this.#random.chance(0.5)
      if (connects && this.#isCutFrom(by)) {
        const waitMs = Math.max(0, sendBefore - clock.now)
        return void clock.in(waitMs, by, () => noResponse(new Error('no connection')))
      }
      clock.in(connects ? this.#latency() : 0.1, by, write)
    })
  }

  #behaviour(): Behaviour {
    for (const { share, behaviour } of this.behaviours) if (this.#random.chance(share)) return behaviour
    return { kind: 'responds' }
  }

  /** A request has reached the token endpoint. */
  #take(exchange: Exchange): void {
    const clock = this.#clock
    const behaviour = this.#behaviour()
    switch (behaviour.kind) {
      case 'responds': {
        const ms = this.serviceMs === 0 ? this.#random.between(2, 40) : this.#queueMs()
        clock.in(ms, null, () => this.#respond(exchange, this.#decide(exchange)))
        return
      }
      case 'slow': {
        const decided = behaviour.rotatesFirst ? this.#decide(exchange) : null
        const ms = behaviour.ms * this.#random.between(0.8, 1.2)
        clock.in(ms, null, () => this.#respond(exchange, decided ?? this.#decide(exchange)))
        return
      }
      case 'loses':
        if (behaviour.rotates) this.#decide(exchange)
        if (behaviour.connection === 'breaks')
          clock.in(this.#latency(), exchange.presentation.by, () => {
            if (exchange.presentation.state === 'open') exchange.broken()
          })
        return
      case 'error': {
        if (behaviour.rotates) this.#decide(exchange)
        clock.in(this.#latency(), null, () => this.#respond(exchange, outcomeOf(behaviour)))
      }
    }
  }

  /** Until the end of a request that is taken now. One whose connection was closed is worked through like any other. */
  #queueMs(): number {
    const { now } = this.#clock
    this.#freeAt = Math.max(this.#freeAt, now) + this.serviceMs * this.#random.between(0.8, 1.2)
    return this.#freeAt - now
  }

  #respond(exchange: Exchange, outcome: TokenOutcome): void {
    const { presentation } = exchange
    const { by } = presentation
    const send = (): void => {
      if (presentation.state !== 'open') return
      if (this.#isCutFrom(by)) return void this.#hold(by, send)
      this.#clock.in(this.#latency(), by, () => {
        if (presentation.state !== 'open') return
        exchange.finish(outcome)
        by.note(`receives the response: ${outcome.kind}`)
        this.#onStep('response delivered', by)
      })
    }
    send()
  }

  /** Uses the refresh token up, or refuses it. */
  #decide({ presentation, requestedAt }: Exchange): TokenOutcome {
    const { token, by } = presentation
    const { family } = token
    const { used } = token
    if (used !== null) {
      this.#checker.reused(presentation)
      if (!family.revoked && this.#grantsAgain(used, family))
        return this.#again(presentation, used, requestedAt)
      if (this.#model.reuse === 'ends' && !family.revoked) {
        family.revoked = true
        this.#checker.note('auth', `${token.text} was presented again: the family is revoked`)
      }
    }
    if (family.revoked || used !== null) return this.#dead(presentation)
    const tokens = this.issue(family, requestedAt, this.#stalledMs(by))
    if (family.rotates) token.used = { at: this.#clock.now, serial: family.serial, times: 0 }
    this.#checker.rotated(presentation, family.serial)
    this.#onStep('rotated', by)
    // A server that does not rotate responds without a refresh token, and the old one stays in force.
    if (family.rotates) return { kind: 'granted', tokens }
    this.#refreshTokens.delete(`rt-${family.id}-${family.serial}`)
    token.clientExpiresAt = tokens.expiresAt
    token.issuedAt = this.#clock.now
    token.stalledMs = this.#stalledMs(by)
    return { kind: 'granted', tokens: { ...tokens, refreshToken: null } }
  }

  /** How long a process that refreshes now has been stalled since it may have taken its lease. */
  #stalledMs(by: Replica): number {
    return by.stalledMsSince(this.#clock.now - this.#leaseMs)
  }

  #grantsAgain({ at, serial, times }: NonNullable<RefreshToken['used']>, { id }: Family): boolean {
    const { untilUsed, graceSeconds, graceUses } = this.#model
    if (untilUsed) return this.#accessTokens.get(`at-${id}-${serial}`)?.used === false
    return times < graceUses && this.#clock.now < at + graceSeconds * 1_000
  }

  #again(
    presentation: Presentation,
    used: NonNullable<RefreshToken['used']>,
    requestedAt: number,
  ): TokenOutcome {
    const { family, text } = presentation.token
    used.times += 1
    this.#checker.note('auth', `${text} is granted again`)
    if (this.#model.again === 'another') {
      const tokens = this.issue(family, requestedAt, this.#stalledMs(presentation.by))
      this.#checker.rotated(presentation, family.serial)
      return { kind: 'granted', tokens }
    }
    this.#checker.rotated(presentation, used.serial)
    const first = this.#refreshTokens.get(`rt-${family.id}-${used.serial}`)!
    const tokens = {
      accessToken: new Secret(`at-${family.id}-${used.serial}`),
      refreshToken: new Secret(first.text),
      lifeSeconds: family.lifeSeconds,
      expiresAt: requestedAt + family.lifeSeconds * 1_000 - (this.#clock.now - first.issuedAt),
      scope: null,
    }
    return { kind: 'granted', tokens }
  }

  #dead(presentation: Presentation): TokenOutcome {
    const { dead } = this.#model
    const named = this.#namesDead ? [{ status: dead.status, code: dead.error }] : []
    const outcome = outcomeOf({ ...dead, retryAfterSeconds: null }, named)
    if (outcome.kind !== 'refused') this.#checker.diedUnnamed(presentation)
    return outcome
  }

  async #revoke(by: Replica, text: string): Promise<RevocationFailure | null> {
    if (this.refusesConnections > 0) return { reason: 'the connection was refused', isDefinite: false }
    const family = (this.#refreshTokens.get(text) ?? this.#accessTokens.get(text))?.family
    await new Promise<void>((resolve) => void this.#clock.in(this.#latency(), by, resolve))
    if (family !== undefined) this.#checker.revokedByClient(family, by)
    return null
  }

  #hold(by: Replica, work: () => void): void {
    this.#held[by.index]!.push(work)
  }

  /** The way between a process and this server is open again. */
  flush(index: number): void {
    for (const work of this.#held[index]!.splice(0)) this.#clock.in(this.#latency(), null, work)
  }
}

/** What the server makes of such a response to a refresh. */
function outcomeOf(
  { status, error, retryAfterSeconds }: ErrorResponse,
  named: readonly RefusedGrant[] = [],
): TokenOutcome {
  const headers: Record<string, string> =
    retryAfterSeconds === null ? {} : { 'retry-after': String(retryAfterSeconds) }
  return classifyFailure(
    new NoTokens({ status, headers, body: error === null ? '' : JSON.stringify({ error }) }),
    meaningOfRefresh(named),
  )
}
