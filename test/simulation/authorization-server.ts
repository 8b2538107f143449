import { ResponseBodyError } from 'openid-client'
import { classifyFailure, NoTokenResponse, type TokenOutcome } from '../../src/oauth/token-response.ts'
import { Secret } from '../../src/secret.ts'
import type { ProtocolStep } from './faults.ts'
import type { Ledger } from './invariants.ts'
import type { Random } from './random.ts'
import type { Replica } from './replica.ts'
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
  used: boolean
  /** When its access token expires by the clock of the process that received it. */
  clientExpiresAt: number
  /** Milliseconds of virtual time. */
  issuedAt: number
  readonly presentations: Presentation[]
}

export interface AccessToken {
  readonly text: string
  readonly family: Family
  readonly serial: number
  /** True time, milliseconds of virtual time. */
  readonly expiresAt: number
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
export interface BehaviourFault {
  readonly share: number
  readonly behaviour: Behaviour
}

/** The network faults between a process and the authorization server. */
export interface EndpointFaults {
  cut: number
  /** Extra time for a request on its way to the server. */
  delayMs: number
}

/** A request on its way, and its connection. */
interface Exchange {
  open: boolean
  presentation: Presentation | null
  readonly by: Replica
  /** Runs in the process: the connection broke. */
  broken: () => void
}

export interface AuthorizationServerOptions {
  clock: VirtualClock
  random: Random
  ledger: Ledger
  /** Revokes the whole family when a refresh token is presented again after its use. */
  strict: boolean
}

/**
 * The token and revocation endpoints. Rotation is strict or lenient; everything else that may happen to a request
 * is a fault of the schedule.
 */
export class SimulatedAuthorizationServer {
  readonly behaviours = new Set<BehaviourFault>()
  refusesConnections = 0
  readonly #endpointFaults = new Map<number, EndpointFaults>()
  /** Called at each step that an aimed fault may wait for. */
  onStep: (step: ProtocolStep, by: Replica) => void = () => {}
  readonly #clock: VirtualClock
  readonly #random: Random
  readonly #ledger: Ledger
  readonly #strict: boolean
  readonly #refreshTokens = new Map<string, RefreshToken>()
  readonly #accessTokens = new Map<string, AccessToken>()
  readonly #exchanges = new Set<Exchange>()
  readonly #held = new Map<number, (() => void)[]>()
  #families = 0

  constructor({ clock, random, ledger, strict }: AuthorizationServerOptions) {
    this.#clock = clock
    this.#random = random
    this.#ledger = ledger
    this.#strict = strict
  }

  newFamily(user: number, lifeSeconds: number, rotates: boolean): Family {
    this.#families += 1
    return { id: this.#families, user, lifeSeconds, rotates, serial: 0, revoked: false, expiresAt: 0 }
  }

  /** Tokens for a request that began at `requestedAt` by the clock of the process. */
  issue(family: Family, requestedAt: number) {
    family.serial += 1
    const { id, serial, lifeSeconds } = family
    const accessToken = `at-${id}-${serial}`
    const refreshToken = `rt-${id}-${serial}`
    const expiresAt = requestedAt + lifeSeconds * 1_000
    this.#refreshTokens.set(refreshToken, {
      text: refreshToken,
      family,
      serial,
      used: false,
      clientExpiresAt: expiresAt,
      issuedAt: this.#clock.now,
      presentations: [],
    })
    const trueExpiry = this.#clock.now + lifeSeconds * 1_000
    family.expiresAt = trueExpiry
    this.#accessTokens.set(accessToken, { text: accessToken, family, serial, expiresAt: trueExpiry })
    this.#accessTokens.delete(`at-${id}-${serial - 4}`)
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
      refresh: (
        refreshToken: Secret,
        { sendBefore, signal }: { sendBefore: number; signal: AbortSignal },
      ): Promise<TokenOutcome> => this.#refresh(by, refreshToken.reveal(), sendBefore, signal),
      revoke: (token: Secret): Promise<string | null> => this.#revoke(by, token.reveal()),
    }
  }

  faultsOf(slot: number): EndpointFaults {
    const known = this.#endpointFaults.get(slot)
    if (known !== undefined) return known
    const none = { cut: 0, delayMs: 0 }
    this.#endpointFaults.set(slot, none)
    return none
  }

  #latency(): number {
    return this.#random.between(1, 8)
  }

  #refresh(by: Replica, text: string, sendBefore: number, signal: AbortSignal): Promise<TokenOutcome> {
    const clock = this.#clock
    return new Promise((resolve) => {
      let over = false
      const exchange: Exchange = { open: true, presentation: null, by, broken: () => {} }
      const finish = (outcome: TokenOutcome): void => {
        if (over) return
        over = true
        exchange.open = false
        this.#exchanges.delete(exchange)
        signal.removeEventListener('abort', onAbort)
        const { presentation } = exchange
        if (presentation !== null) this.#ledger.finished(presentation, outcome)
        resolve(outcome)
      }
      const noResponse = (cause: unknown): void => {
        const { presentation } = exchange
        if (presentation !== null) this.#ledger.closed(presentation)
        finish(classifyFailure(new NoTokenResponse(presentation !== null, cause)))
      }
      const onAbort = (): void => noResponse(signal.reason)
      exchange.broken = () => noResponse(new Error('the connection broke'))
      if (signal.aborted) return onAbort()
      signal.addEventListener('abort', onAbort)
      const requestedAt = clock.wall(by)
      const write = (): void => {
        if (over) return
        // The first byte leaves within the lease or not at all.
        if (clock.now >= sendBefore) return noResponse(new Error('it could not be sent in time'))
        const token = this.#refreshTokens.get(text)
        if (token === undefined) throw new Error(`an unknown refresh token was presented: ${text}`)
        exchange.presentation = this.#ledger.presented(token, by)
        this.#exchanges.add(exchange)
        by.note(`presents ${text}`)
        this.onStep('request sent', by)
        const arrive = (): void => {
          if (!exchange.open) return
          if (this.faultsOf(by.slot).cut > 0) return void this.#hold(by, arrive)
          this.#ledger.delivered(exchange.presentation!)
          this.onStep('request delivered', by)
          this.#take(exchange, token, requestedAt, finish)
        }
        clock.in(this.#latency() + this.faultsOf(by.slot).delayMs, null, arrive)
      }
      if (this.refusesConnections > 0) {
        return void clock.in(this.#latency(), by, () => noResponse(new Error('the connection was refused')))
      }
      // Half of the requests find a connection that stands; the others have to connect.
      const connects = this.#random.chance(0.5)
      if (connects && this.faultsOf(by.slot).cut > 0) {
        const waitMs = Math.min(5_000, Math.max(0, sendBefore - clock.now))
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
  #take(
    exchange: Exchange,
    token: RefreshToken,
    requestedAt: number,
    finish: (outcome: TokenOutcome) => void,
  ): void {
    const clock = this.#clock
    const behaviour = this.#behaviour()
    const respond = (outcome: TokenOutcome): void => {
      this.#respond(exchange, outcome, finish)
    }
    switch (behaviour.kind) {
      case 'responds':
        clock.in(this.#random.between(2, 40), null, () => respond(this.#decide(exchange, token, requestedAt)))
        return
      case 'slow': {
        const decided = behaviour.rotatesFirst ? this.#decide(exchange, token, requestedAt) : null
        const ms = behaviour.ms * this.#random.between(0.8, 1.2)
        clock.in(ms, null, () => respond(decided ?? this.#decide(exchange, token, requestedAt)))
        return
      }
      case 'loses':
        if (behaviour.rotates) this.#decide(exchange, token, requestedAt)
        if (behaviour.connection === 'breaks')
          clock.in(this.#latency(), exchange.by, () => {
            if (exchange.open) exchange.broken()
          })
        return
      case 'error': {
        if (behaviour.rotates) this.#decide(exchange, token, requestedAt)
        clock.in(this.#latency(), null, () => respond(outcomeOf(behaviour)))
      }
    }
  }

  #respond(exchange: Exchange, outcome: TokenOutcome, finish: (outcome: TokenOutcome) => void): void {
    const { by } = exchange
    const send = (): void => {
      if (!exchange.open) return
      if (this.faultsOf(by.slot).cut > 0) return void this.#hold(by, send)
      this.#clock.in(this.#latency(), by, () => {
        if (!exchange.open) return
        finish(outcome)
        by.note(`receives the response: ${outcome.kind}`)
        this.onStep('response delivered', by)
      })
    }
    send()
  }

  /** Uses the refresh token up, or refuses it. */
  #decide({ presentation, by }: Exchange, token: RefreshToken, requestedAt: number): TokenOutcome {
    const { family } = token
    if (token.used) this.#ledger.reused(presentation!)
    if (token.used && this.#strict && !family.revoked) {
      family.revoked = true
      this.#ledger.note('auth', `${token.text} was presented again: the family is revoked`)
    }
    if (family.revoked || token.used) return outcomeOf(INVALID_GRANT)
    if (family.rotates) token.used = true
    const tokens = this.issue(family, requestedAt)
    this.#ledger.rotated(presentation!, family.serial)
    this.onStep('rotated', by)
    // A server that does not rotate responds without a refresh token, and the old one stays in force.
    if (family.rotates) return { kind: 'granted', tokens }
    this.#refreshTokens.delete(`rt-${family.id}-${family.serial}`)
    token.clientExpiresAt = tokens.expiresAt
    token.issuedAt = this.#clock.now
    return { kind: 'granted', tokens: { ...tokens, refreshToken: null } }
  }

  async #revoke(by: Replica, text: string): Promise<string | null> {
    if (this.refusesConnections > 0) return 'the connection was refused'
    const family = (this.#refreshTokens.get(text) ?? this.#accessTokens.get(text))?.family
    await new Promise<void>((resolve) => void this.#clock.in(this.#latency(), by, resolve))
    if (family !== undefined) this.#ledger.revokedByClient(family, by)
    return null
  }

  #hold(by: Replica, work: () => void): void {
    const held = this.#held.get(by.slot) ?? []
    this.#held.set(by.slot, held)
    held.push(work)
  }

  /** The way between a process and this server is open again. */
  flush(slot: number): void {
    for (const work of (this.#held.get(slot) ?? []).splice(0)) this.#clock.in(this.#latency(), null, work)
  }

  /** The process has died, and its connections with it. */
  disconnect(by: Replica): void {
    for (const exchange of this.#exchanges) {
      if (exchange.by !== by) continue
      exchange.open = false
      this.#exchanges.delete(exchange)
      this.#ledger.closed(exchange.presentation!)
    }
  }
}

const INVALID_GRANT: ErrorResponse = { status: 400, error: 'invalid_grant', retryAfterSeconds: null }

/** What the server makes of such a response, which openid-client reports as an error. */
function outcomeOf({ status, error, retryAfterSeconds }: ErrorResponse): TokenOutcome {
  const headers = new Headers()
  if (retryAfterSeconds !== null) headers.set('retry-after', String(retryAfterSeconds))
  const response = new Response(null, { status, headers })
  return classifyFailure(
    error === null
      ? new Error('unexpected HTTP status code', { cause: response })
      : new ResponseBodyError('an error code in the response body', { cause: { error }, response }),
  )
}
