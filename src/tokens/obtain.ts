import type { Clock } from '../clock.ts'
import type { Sessions } from '../session/lifecycle.ts'
import type { EndReason, LiveSession } from '../session/session.ts'
import { StoreUnavailable } from '../store/store.ts'
import type { RefreshResult } from './refresh.ts'
import { neededAt, type RefreshTiming } from './refresh-policy.ts'
import type { Flight, SingleFlight } from './single-flight.ts'
import { withTimeout } from './timeout.ts'

/** What a request gets. A store that fails is thrown as `StoreUnavailable`. */
export type Access =
  /** A session with an access token that may be sent. */
  | { kind: 'token'; session: LiveSession }
  | { kind: 'ended'; reason: EndReason | null }
  /** The access token has expired, and the authorization server gives no new one now. */
  | { kind: 'unavailable'; retryAfterSeconds: number }
  /** The resource server refused this token, which a forced refresh brought within the last minute. */
  | { kind: 'token_refused' }
  /** The resource server refused this token, and the session has no refresh token. */
  | { kind: 'not_refreshable' }

interface ObtainOptions {
  sessions: Pick<Sessions, 'find'>
  singleFlight: Pick<SingleFlight, 'join'>
  /** Whether the token endpoint counts as down. */
  isDown: () => boolean
  timing: RefreshTiming
  timeoutMs: number
  clock: Clock
}

/**
 * An access token to send, after a refresh if one is needed. `refusedGen`: the resource server refused the token
 * of this generation, so only a newer one will do. Rejects with `StoreUnavailable`.
 */
export type ObtainAccessToken = (session: LiveSession, refusedGen?: number) => Promise<Access>

/** With a valid token a caller waits for a refresh only while that refresh is younger than this. */
const PATIENCE_WITH_VALID_TOKEN_MS = 1_000
/** Without one, while the token endpoint counts as down: slightly longer than `PROBE_MS` of the breaker. */
const PATIENCE_IN_OUTAGE_MS = 2_600
/** Beyond a whole token request: time to read its result. */
const READ_RESULT_MS = 500
/** While another process refreshes, or may hold newer tokens, the record is read this often. */
const LOOK_EVERY_MS = 250
/** Pause before a record that should have changed, but has not, is read again. */
const REREAD_MS = 50

export function createObtainAccessToken(options: ObtainOptions): ObtainAccessToken {
  const { sessions, singleFlight, isDown, timing, timeoutMs, clock } = options

  return async function obtainAccessToken(session, refusedGen) {
    const needsRefresh =
      refusedGen === undefined
        ? clock.wall() >= neededAt(session.tokens, timing)
        : session.record.gen <= refusedGen
    return needsRefresh ? await waitForToken(session, refusedGen) : { kind: 'token', session }
  }

  /**
   * Joins one refresh after the other, and reads the record between them, until the session has a token to send or
   * there is none in time. A caller whose token is still usable waits only briefly for a new one.
   */
  async function waitForToken(first: LiveSession, refusedGen: number | undefined): Promise<Access> {
    const trigger = refusedGen === undefined ? 'request' : 'invalid_token'
    let deadline = clock.monotonic() + timeoutMs + READ_RESULT_MS
    let session = first
    let paused = false

    const isExpired = (): boolean => clock.wall() >= session.tokens.expiresAt
    const isUsable = (): boolean => refusedGen === undefined && !isExpired()
    // However short its life: it was issued since this caller began, so a refresh would bring nothing better.
    const isNewer = (): boolean => session.record.gen > Math.max(first.record.gen, refusedGen ?? 0)
    const token = (): Access => ({ kind: 'token', session })

    for (;;) {
      if (session.tokens.refreshToken === null) return accessWithoutRefresh()
      const flight = singleFlight.join(session, trigger)
      const result = await nullIfStoreFails(
        withTimeout(flight.result, patienceMs(flight.startedAt, isUsable(), deadline)),
      )
      const next = await stepAfter(result, flight)
      if (next === 'join_again') continue
      const access = next === 'read_record' ? await accessFromRecord(result) : next
      if (access !== null) return access
    }

    function accessWithoutRefresh(): Access {
      // Without a refresh token the session's absolute limit is the expiry of its access token.
      if (isExpired()) return { kind: 'ended', reason: 'absolute' }
      return isUsable() ? token() : { kind: 'not_refreshable' }
    }

    /** What a caller does after a result; null stands for none within its patience, or for a store that failed. */
    async function stepAfter(result: RefreshResult | null, flight: Flight): Promise<Step> {
      switch (result?.kind) {
        case 'granted':
          session = result.session
          return isNewer() ? token() : 'read_record'
        case 'ended':
          return await endedAccess()
        case 'changed':
          return 'read_record'
        case 'busy':
          return await waitForOther(result)
      }
      if (isUsable()) return token()
      switch (result?.kind) {
        case undefined:
          return 'read_record'
        case 'later':
          // A flight with another trigger did not know that the resource server refuses this token. A read of the record
          // would let other callers begin the next one without knowing it either.
          if (flight.trigger !== trigger && refusedGen !== undefined && clock.monotonic() < deadline)
            return 'join_again'
          return { kind: 'unavailable', retryAfterSeconds: result.retryInMs / 1_000 }
        case 'forced_before':
          // Only the refusal of a token that is valid by our own clock is final. An expired one is refreshed.
          return isExpired() ? 'read_record' : { kind: 'token_refused' }
        case 'paused':
          // Extended once only: repeated failovers must not delay a caller forever.
          if (!paused) deadline = Math.max(deadline, clock.monotonic() + result.waitMs + READ_RESULT_MS)
          paused = true
          if (clock.monotonic() >= deadline) throw storeMayBeBehind(result.waitMs)
          await pause(Math.min(result.waitMs + 10, deadline - clock.monotonic(), LOOK_EVERY_MS))
          return 'read_record'
      }
    }

    /** The record's end says why, unless the store fails now. */
    async function endedAccess(): Promise<Step> {
      const found = await sessions.find(session.key).catch((error: unknown) => {
        if (error instanceof StoreUnavailable) return null
        throw error
      })
      if (found?.kind === 'live') return 'read_record'
      return { kind: 'ended', reason: found?.kind === 'ended' ? found.reason : null }
    }

    /** Waits a little for what another attempt, which holds the lease, will bring. */
    async function waitForOther({ waitMs, ageMs }: Extract<RefreshResult, { kind: 'busy' }>): Promise<Step> {
      const takenAt = clock.monotonic() - ageMs
      // A presentation that is older than its timeout may take long: callers do not wait for it.
      const until = Math.min(deadline, takenAt + timeoutMs + READ_RESULT_MS)
      const patience = patienceMs(takenAt, isUsable(), until)
      if (patience <= 0) return isUsable() ? token() : NOT_IN_TIME
      await pause(Math.min(waitMs + 10, patience, LOOK_EVERY_MS))
      return 'read_record'
    }

    /** The access that the record gives after a result; null if another refresh may still bring a token in time. */
    async function accessFromRecord(result: RefreshResult | null): Promise<Access | null> {
      const found = await nullIfStoreFails(sessions.find(session.key))
      if (found === null) return token()
      if (found.kind === 'ended') return found
      if (found.kind === 'unreadable') return { kind: 'ended', reason: null }
      const isUnchanged = found.session.record.gen === session.record.gen
      session = found.session
      if (isNewer()) return token()
      if (clock.monotonic() >= deadline || (result === null && isDown())) {
        if (isUsable()) return token()
        if (result?.kind === 'paused') throw storeMayBeBehind(result.waitMs)
        return NOT_IN_TIME
      }
      if (result?.kind === 'changed' && isUnchanged) await pause(REREAD_MS)
      return null
    }

    /** null if the store fails while the token at hand is still usable. */
    async function nullIfStoreFails<T>(work: Promise<T>): Promise<T | null> {
      try {
        return await work
      } catch (error) {
        if (error instanceof StoreUnavailable && isUsable()) return null
        throw error
      }
    }
  }

  /** How long a caller waits for a refresh that began at `startedAt`. */
  function patienceMs(startedAt: number, isUsable: boolean, deadline: number): number {
    const at = clock.monotonic()
    if (isUsable) return startedAt + PATIENCE_WITH_VALID_TOKEN_MS - at
    const left = deadline - at
    return isDown() ? Math.min(left, startedAt + PATIENCE_IN_OUTAGE_MS - at) : left
  }
}

/** The end of a wait, or how it goes on. */
type Step = Access | 'read_record' | 'join_again'

const NOT_IN_TIME: Access = { kind: 'unavailable', retryAfterSeconds: 1 }

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}

function storeMayBeBehind(waitMs: number): StoreUnavailable {
  const reason = new Error('Redis changed its master and may lack newer tokens')
  return new StoreUnavailable(reason, false, Math.ceil(waitMs / 1_000))
}
