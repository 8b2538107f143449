import type { Clock } from '../clock.ts'
import type { Logger } from '../log.ts'
import type { AuthorizationServer } from '../oauth/client.ts'
import type { GrantedTokens } from '../oauth/token-response.ts'
import type { Secret } from '../secret.ts'
import { createBreaker } from './breaker.ts'
import { neededAt, type RefreshTiming } from './refresh-policy.ts'

/** What asking for the application's token came to. */
export type ApplicationAccess =
  /** `serial` counts the tokens that this process has had; `expiresAt` in monotonic milliseconds. */
  | { kind: 'token'; token: Secret; serial: number; expiresAt: number }
  | { kind: 'unavailable'; retryAfterSeconds: number }
  /** A token of the last minute was refused as well. */
  | { kind: 'token_refused' }

/**
 * The application's own access token (service document, section 5.4, client flow), which has no user. It is
 * in the memory of this process alone: another one costs one request, and nothing is lost with it.
 */
export interface ApplicationToken {
  obtain(): Promise<ApplicationAccess>
  /** One that is newer than the refused one; asked for at most once a minute. */
  renew(refusedSerial: number): Promise<ApplicationAccess>
}

interface ApplicationTokenOptions {
  authorizationServer: Pick<AuthorizationServer, 'redeemClient'>
  timing: RefreshTiming
  clock: Clock
  random: () => number
  log: Logger
}

/** Instants in monotonic milliseconds. */
interface Held {
  readonly token: Secret
  /** After this the next one is fetched. */
  readonly freshUntil: number
  readonly expiresAt: number
  readonly usableUntil: number
}

const FORCED_EVERY_MS = 60_000
/** A token that is due at once is used for so long, or each call would ask for one. */
const USED_AT_LEAST_MS = 1_000

export function createApplicationToken(options: ApplicationTokenOptions): ApplicationToken {
  const { authorizationServer, timing, clock, random, log } = options
  // Of its own: that this client gets no token for itself says nothing of its users' refresh tokens.
  const breaker = createBreaker({ now: clock.monotonic, random, onChange: () => {} })
  let held: Held | null = null
  let serial = 0
  let forcedAt = Number.NEGATIVE_INFINITY
  let flight: Promise<ApplicationAccess> | null = null

  const current = ({ token, expiresAt }: Held): ApplicationAccess => ({
    kind: 'token',
    token,
    serial,
    expiresAt,
  })
  const unavailable = (ms: number): ApplicationAccess => ({
    kind: 'unavailable',
    retryAfterSeconds: ms / 1_000,
  })

  async function request(): Promise<ApplicationAccess> {
    const admission = breaker.admit()
    if (admission.kind === 'wait') return unavailable(admission.retryInMs)
    const outcome = await authorizationServer.redeemClient()
    if (outcome.kind === 'granted') {
      admission.report(true, null)
      held = toHeld(outcome.tokens)
      serial += 1
      return current(held)
    }
    const asked = outcome.kind === 'unavailable' ? outcome.retryAfterSeconds : null
    admission.report(false, asked === null ? null : asked * 1_000)
    log.warn(
      { event: 'application_token.failed', reason: outcome.reason },
      'no token for the application itself',
    )
    return unavailable(asked === null ? 1_000 : asked * 1_000)
  }

  /** All who ask at once share one request; while the token endpoint is down the breaker says who may ask. */
  function ask(): Promise<ApplicationAccess> {
    if (breaker.isOpen()) return request()
    flight ??= request().finally(() => {
      flight = null
    })
    return flight
  }

  function toHeld(tokens: GrantedTokens): Held {
    const at = clock.monotonic()
    const fromWall = at - clock.wall()
    return {
      token: tokens.accessToken,
      freshUntil: neededAt(tokens, timing) + fromWall,
      expiresAt: tokens.expiresAt + fromWall,
      usableUntil: Math.max(tokens.expiresAt + fromWall, at + USED_AT_LEAST_MS),
    }
  }

  return {
    async obtain() {
      const at = clock.monotonic()
      if (held === null || at >= held.usableUntil) return await ask()
      const access = current(held)
      // Good for some seconds more: nobody waits for the next one.
      if (at >= held.freshUntil) void ask()
      return access
    },

    async renew(refusedSerial) {
      if (serial !== refusedSerial && held !== null) return current(held)
      const at = clock.monotonic()
      const hasExpired = held !== null && at >= held.usableUntil
      if (!hasExpired && at - forcedAt < FORCED_EVERY_MS) return { kind: 'token_refused' }
      // Nobody can use it any more, also where no other comes now.
      held = null
      const renewed = await ask()
      if (renewed.kind === 'token') forcedAt = clock.monotonic()
      return renewed
    },
  }
}
