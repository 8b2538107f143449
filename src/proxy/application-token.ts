import type { Clock } from '../clock.ts'
import type { Logger } from '../log.ts'
import type { AuthorizationClient } from '../oauth/client.ts'
import type { GrantedTokens } from '../oauth/token-response.ts'
import type { Secret } from '../secret.ts'
import { createGate, neededAt, type RefreshTiming, type Wait } from '../vault/vault.ts'

/** The application's token, or why there is none. */
export type ApplicationAccess =
  /** `serial` counts the tokens that this process has had; `expiresAt` in monotonic milliseconds. */
  { kind: 'token'; token: Secret; serial: number; expiresAt: number } | Wait

/**
 * The application's own access token (service document, section 5.4, client flow), which has no user. It is kept
 * in the memory of this process alone: a new one costs one request, so losing it is harmless.
 */
export interface ApplicationToken {
  obtain(): Promise<ApplicationAccess>
  /** A token newer than the refused one; `forced_before` if a forced request brought that one within the last minute. */
  requestNewer(refusedSerial: number): Promise<ApplicationAccess>
}

interface ApplicationTokenOptions {
  authorizationClient: Pick<AuthorizationClient, 'redeemClient'>
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
  const { authorizationClient, timing, clock, random, log } = options
  // A separate gate: a failure of the client's own token says nothing about the refresh tokens of users.
  const gate = createGate({
    max: Number.POSITIVE_INFINITY,
    timeoutMs: Number.POSITIVE_INFINITY,
    now: clock.monotonic,
    random,
    onChange: () => {},
  })
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

  async function request(): Promise<ApplicationAccess> {
    const pass = await gate.enter()
    if (pass.kind === 'wait') return pass
    const outcome = await authorizationClient.redeemClient()
    const retryAfterSeconds = outcome.kind === 'unavailable' ? outcome.retryAfterSeconds : null
    const retryAfterMs = retryAfterSeconds === null ? null : retryAfterSeconds * 1_000
    pass.report(outcome.kind === 'granted', retryAfterMs)
    pass.leave()
    if (outcome.kind === 'granted') {
      cached = toCached(outcome.tokens)
      serial += 1
      return current(cached)
    }
    log.warn(
      {
        event: 'application_token.failed',
        reason: outcome.reason,
        description: outcome.answer?.description ?? undefined,
      },
      'no token for the application itself',
    )
    return { kind: 'wait', ms: retryAfterMs ?? 1_000, why: 'unavailable' }
  }

  /** Concurrent callers share one request; while the token endpoint is down the gate admits single requests. */
  function requestShared(): Promise<ApplicationAccess> {
    if (gate.isDown()) return request()
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
      const windowMs = forcedAt + FORCED_WINDOW_MS - at
      if (!hasExpired && windowMs > 0) return { kind: 'wait', ms: windowMs, why: 'forced_before' }
      // The refused token is useless, even if no new one comes now.
      cached = null
      const access = await requestShared()
      if (access.kind === 'token') forcedAt = clock.monotonic()
      return access
    },
  }
}
