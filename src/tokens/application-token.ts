import type { Clock } from '../clock.ts'
import type { Logger } from '../log.ts'
import type { AuthorizationServer } from '../oauth/client.ts'
import type { GrantedTokens } from '../oauth/token-response.ts'
import type { Secret } from '../secret.ts'
import { createBreaker } from './breaker.ts'
import { neededAt, type RefreshTiming } from './refresh-policy.ts'

/** The application's token, or why there is none. */
export type ApplicationAccess =
  /** `serial` counts the tokens that this process has had; `expiresAt` in monotonic milliseconds. */
  | { kind: 'token'; token: Secret; serial: number; expiresAt: number }
  | { kind: 'unavailable'; retryAfterSeconds: number }
  /** A forced request within the last minute brought the refused token. */
  | { kind: 'token_refused' }

/**
 * The application's own access token (service document, section 5.4, client flow), which has no user. It is kept
 * in the memory of this process alone: a new one costs one request, so losing it is harmless.
 */
export interface ApplicationToken {
  obtain(): Promise<ApplicationAccess>
  /** A token newer than the refused one; `token_refused` if a forced request brought that one within the last minute. */
  requestNewer(refusedSerial: number): Promise<ApplicationAccess>
}

interface ApplicationTokenOptions {
  authorizationServer: Pick<AuthorizationServer, 'redeemClient'>
  timing: RefreshTiming
  clock: Clock
  random: () => number
  log: Logger
}

/** Instants in monotonic milliseconds. */
interface CachedToken {
  readonly token: Secret
  /** From then on the next one is fetched. */
  readonly fetchNextAt: number
  readonly expiresAt: number
  readonly usableUntil: number
}

const FORCED_WINDOW_MS = 60_000
/** A token that expires at once is used for this long, or each call would request one. */
const USED_AT_LEAST_MS = 1_000

export function createApplicationToken(options: ApplicationTokenOptions): ApplicationToken {
  const { authorizationServer, timing, clock, random, log } = options
  // A separate breaker: a failure of the client's own token says nothing about the refresh tokens of users.
  const breaker = createBreaker({ now: clock.monotonic, random, onChange: () => {} })
  let cached: CachedToken | null = null
  let serial = 0
  let forcedAt = Number.NEGATIVE_INFINITY
  let flight: Promise<ApplicationAccess> | null = null

  const current = ({ token, expiresAt }: CachedToken): ApplicationAccess => ({
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
      cached = toCached(outcome.tokens)
      serial += 1
      return current(cached)
    }
    const retryAfterSeconds = outcome.kind === 'unavailable' ? outcome.retryAfterSeconds : null
    admission.report(false, retryAfterSeconds === null ? null : retryAfterSeconds * 1_000)
    log.warn(
      { event: 'application_token.failed', reason: outcome.reason },
      'no token for the application itself',
    )
    return unavailable(retryAfterSeconds === null ? 1_000 : retryAfterSeconds * 1_000)
  }

  /** Concurrent callers share one request; while the token endpoint is down the breaker admits single requests. */
  function requestShared(): Promise<ApplicationAccess> {
    if (breaker.isOpen()) return request()
    flight ??= request().finally(() => {
      flight = null
    })
    return flight
  }

  function toCached(tokens: GrantedTokens): CachedToken {
    const at = clock.monotonic()
    const fromWall = at - clock.wall()
    return {
      token: tokens.accessToken,
      fetchNextAt: neededAt(tokens, timing) + fromWall,
      expiresAt: tokens.expiresAt + fromWall,
      usableUntil: Math.max(tokens.expiresAt + fromWall, at + USED_AT_LEAST_MS),
    }
  }

  return {
    async obtain() {
      const at = clock.monotonic()
      if (cached === null || at >= cached.usableUntil) return await requestShared()
      const access = current(cached)
      // Still valid for some seconds: no caller waits for the next one.
      if (at >= cached.fetchNextAt) void requestShared()
      return access
    },

    async requestNewer(refusedSerial) {
      if (serial !== refusedSerial && cached !== null) return current(cached)
      const at = clock.monotonic()
      const hasExpired = cached !== null && at >= cached.usableUntil
      if (!hasExpired && at - forcedAt < FORCED_WINDOW_MS) return { kind: 'token_refused' }
      // The refused token is useless, even if no new one comes now.
      cached = null
      const access = await requestShared()
      if (access.kind === 'token') forcedAt = clock.monotonic()
      return access
    },
  }
}
