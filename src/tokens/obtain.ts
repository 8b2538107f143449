import type { Clock } from '../clock.ts'
import type { FindSession, LiveSession } from '../session/find.ts'
import type { WatchChanges } from './changes.ts'
import type { EndReason } from './events.ts'
import type { RefreshTiming } from './refresh-policy.ts'
import { refreshesFirstAt } from './refresh-policy.ts'
import type { Flights } from './single-flight.ts'
import { within } from './within.ts'

export type Access =
  | { kind: 'token'; session: LiveSession }
  | { kind: 'login_required'; reason: EndReason | null }
  | { kind: 'unavailable'; what: 'store' | 'authorization_server'; retryAfterSeconds: number }
  /** The resource server refused this token, and a new one cannot be had. */
  | { kind: 'token_refused' }

export interface AccessOptions {
  findSession: FindSession
  flights: Flights
  watchChanges: WatchChanges
  /** Whether the token endpoint is taken to be down. */
  isDown: () => boolean
  timing: RefreshTiming
  timeoutMs: number
  clock: Clock
}

/**
 * An access token that is fresh enough to send. `refusedGen`: the resource server refused the token
 * of this generation, so only a newer one will do.
 */
export type ObtainAccessToken = (session: LiveSession, refusedGen?: number) => Promise<Access>

/** With a token that is still good a caller waits for a refresh only while that refresh is this young. */
const PATIENCE_WITH_GOOD_TOKEN_MS = 1_000
/** Without one, while the token endpoint is taken to be down: time enough for an answer of one that is not. */
const PATIENCE_IN_OUTAGE_MS = 2_600
/** Beyond a whole token request: time to read what came of it. */
const LOOK_AGAIN_MS = 500
/** A record that should have changed and does not look so is not read in a tight loop. */
const REREAD_MS = 50

export function createObtainAccessToken(options: AccessOptions): ObtainAccessToken {
  const { findSession, flights, watchChanges, isDown, timing, timeoutMs, clock } = options

  return async function obtainAccessToken(first, refusedGen) {
    const isFresh = ({ tokens }: LiveSession): boolean => clock.wall() < refreshesFirstAt(tokens, timing)
    if (refusedGen === undefined ? isFresh(first) : first.gen > refusedGen)
      return { kind: 'token', session: first }
    // Before anything is asked, so that no change passes by unseen.
    const watch = watchChanges(first.key)
    try {
      return await replaced(first, refusedGen, watch.next)
    } finally {
      watch.stop()
    }
  }

  async function replaced(
    first: LiveSession,
    refusedGen: number | undefined,
    nextChange: (ms: number) => Promise<void>,
  ): Promise<Access> {
    let deadline = clock.monotonic() + timeoutMs + LOOK_AGAIN_MS
    let paused = false
    const trigger = refusedGen === undefined ? 'request' : 'invalid_token'
    for (let session = first; ; ) {
      const expired = (): boolean => clock.wall() >= session.tokens.expiresAt
      const usable = (): boolean => refusedGen === undefined && !expired()
      if (session.tokens.refreshToken === null) {
        if (expired()) return { kind: 'login_required', reason: 'absolute' }
        return usable() ? { kind: 'token', session } : { kind: 'token_refused' }
      }
      const flight = flights.join(session, trigger)
      const result = await within(flight.result, patienceMs(flight.startedAt, usable(), deadline))
      switch (result?.kind) {
        case 'granted':
          session = { ...session, tokens: result.tokens, gen: result.gen }
          break
        case 'ended':
          return { kind: 'login_required', reason: result.reason }
        case 'forced_before':
          if (usable()) return { kind: 'token', session }
          // Only a token that is valid by our own clock has been refused for good; another is refreshed.
          if (!expired()) return { kind: 'token_refused' }
          break
        case 'later':
          if (usable()) return { kind: 'token', session }
          // A flight of another kind knows nothing of a token that was refused.
          if (flight.trigger !== trigger && refusedGen !== undefined && clock.monotonic() < deadline) continue
          return { kind: 'unavailable', what: result.why, retryAfterSeconds: result.retryInMs / 1_000 }
        case 'busy': {
          if (flight.changed()) break
          const takenAt = clock.monotonic() - result.ageMs
          // A presentation that is older than its timeout may take long; nobody waits for it.
          const patience = patienceMs(
            takenAt,
            usable(),
            Math.min(deadline, takenAt + timeoutMs + LOOK_AGAIN_MS),
          )
          if (patience <= 0) return usable() ? { kind: 'token', session } : noAnswer()
          await nextChange(Math.min(result.waitMs + 10, patience))
          break
        }
        case 'paused':
          if (usable()) return { kind: 'token', session }
          // Once: a store that goes from server to server holds up nobody for ever.
          if (!paused) deadline = Math.max(deadline, clock.monotonic() + result.waitMs + LOOK_AGAIN_MS)
          paused = true
          if (clock.monotonic() >= deadline) return storeAway(result.waitMs / 1_000)
          if (!flight.changed()) await nextChange(Math.min(result.waitMs + 10, deadline - clock.monotonic()))
          break
        case undefined:
          if (usable()) return { kind: 'token', session }
          break
        case 'changed':
      }
      // Whatever its life: it has been replaced since this caller began, so it is as new as can be.
      if (isNewer(session)) return { kind: 'token', session }
      const again = await findSession(session.key)
      if (again.kind === 'ended') return { kind: 'login_required', reason: again.reason }
      if (again.kind === 'unreadable') return { kind: 'login_required', reason: null }
      if (again.kind === 'store_unavailable') {
        if (usable()) return { kind: 'token', session }
        return storeAway(1)
      }
      const stayed = again.session.gen === session.gen
      session = again.session
      if (isNewer(session)) return { kind: 'token', session }
      if (clock.monotonic() >= deadline || (result === null && isDown())) {
        if (usable()) return { kind: 'token', session }
        return result?.kind === 'paused' ? storeAway(1) : noAnswer()
      }
      if (result?.kind === 'changed' && stayed) await nextChange(REREAD_MS)
    }

    function isNewer({ gen }: LiveSession): boolean {
      return gen > Math.max(first.gen, refusedGen ?? 0)
    }
  }

  /** How long a caller waits for a refresh that began then. */
  function patienceMs(startedAt: number, usable: boolean, deadline: number): number {
    const at = clock.monotonic()
    if (usable) return startedAt + PATIENCE_WITH_GOOD_TOKEN_MS - at
    const left = deadline - at
    return isDown() ? Math.min(left, startedAt + PATIENCE_IN_OUTAGE_MS - at) : left
  }
}

function noAnswer(): Access {
  return { kind: 'unavailable', what: 'authorization_server', retryAfterSeconds: 1 }
}

function storeAway(retryAfterSeconds: number): Access {
  return { kind: 'unavailable', what: 'store', retryAfterSeconds }
}
