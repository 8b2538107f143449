import type { RecordKey } from '../store/port.ts'
import type { WaitForChange } from './changes.ts'
import type { EndReason, RefreshTrigger } from './events.ts'
import type { FindSession, LiveSession } from './live.ts'
import type { Refresh, RefreshResult } from './refresh.ts'
import { leaseMs } from './refresh.ts'
import type { RefreshTiming } from './timing.ts'
import { refreshesFirstAt } from './timing.ts'

export type Access =
  | { kind: 'token'; session: LiveSession }
  | { kind: 'login_required'; reason: EndReason | null }
  | { kind: 'unavailable'; what: 'store' | 'authorization_server'; retryAfterSeconds: number }
  /** The resource server refused this token, and a new one cannot be had. */
  | { kind: 'token_refused' }

export interface AccessOptions {
  findSession: FindSession
  refresh: Refresh
  waitForChange: WaitForChange
  timing: RefreshTiming
  timeoutMs: number
  now: () => number
}

export interface TokenAccess {
  /**
   * An access token that is fresh enough to send. `refusedGen`: the resource server refused the
   * token of this generation, so only a newer one will do.
   */
  accessToken(session: LiveSession, refusedGen?: number): Promise<Access>
  /** Refreshes for the background; null where nothing was due. */
  refreshDue(session: LiveSession): Promise<RefreshResult | null>
  /** Resolves when no refresh of this process is under way. */
  settled(): Promise<void>
}

/** With a token that is still good a caller waits for a refresh only while that refresh is this young. */
const PATIENCE_WITH_GOOD_TOKEN_MS = 1_000
/** Once it is woken, the change that woke a waiter is there to be read. */
const LOOK_AGAIN_MS = 250

interface Flight {
  startedAt: number
  result: Promise<RefreshResult>
}

/** One refresh for each session and process at a time, shared by all who need it. */
export function createTokenAccess(options: AccessOptions): TokenAccess {
  const { findSession, refresh, waitForChange, timing, timeoutMs, now } = options
  const flights = new Map<RecordKey, Flight>()

  function fly(session: LiveSession, trigger: RefreshTrigger): Flight {
    const known = flights.get(session.key)
    if (known !== undefined) return known
    const result = refresh(session, trigger).finally(() => flights.delete(session.key))
    const flight = { startedAt: now(), result }
    flights.set(session.key, flight)
    return flight
  }

  async function accessToken(first: LiveSession, refusedGen?: number): Promise<Access> {
    const deadline = now() + timeoutMs + LOOK_AGAIN_MS
    const trigger = refusedGen === undefined ? 'request' : 'invalid_token'
    for (let session = first; ; ) {
      const wanted = refusedGen === undefined ? isFresh(session) : session.gen > refusedGen
      // Whatever its life: it has been replaced since this caller began, so it is as new as can be.
      if (wanted || session.gen > first.gen) return { kind: 'token', session }
      const usable = refusedGen === undefined && now() < session.tokens.expiresAt
      if (session.tokens.refreshToken === null)
        return usable ? { kind: 'token', session } : refusedOrEnded(refusedGen)
      const result = await bounded(fly(session, trigger), usable)
      switch (result.kind) {
        case 'granted':
          return { kind: 'token', session: { ...session, tokens: result.tokens, gen: result.gen } }
        case 'ended':
          return { kind: 'login_required', reason: result.reason }
        case 'forced_before':
          return { kind: 'token_refused' }
        case 'later':
          if (usable) return { kind: 'token', session }
          return { kind: 'unavailable', what: result.why, retryAfterSeconds: result.retryInMs / 1_000 }
        case 'busy': {
          const heldMs = leaseMs(timeoutMs) - result.waitMs
          if (usable && heldMs > PATIENCE_WITH_GOOD_TOKEN_MS) return { kind: 'token', session }
          const patience = usable ? PATIENCE_WITH_GOOD_TOKEN_MS : deadline - now()
          await waitForChange(session.key, Math.max(1, Math.min(result.waitMs + 10, patience)))
          break
        }
        case 'changed':
      }
      const again = await findSession(session.key)
      if (again.kind === 'ended') return { kind: 'login_required', reason: again.reason }
      if (again.kind === 'unreadable') return { kind: 'login_required', reason: null }
      if (again.kind === 'store_unavailable') {
        if (usable) return { kind: 'token', session }
        return { kind: 'unavailable', what: 'store', retryAfterSeconds: 1 }
      }
      if (now() >= deadline && again.session.gen === session.gen) {
        if (usable) return { kind: 'token', session }
        return { kind: 'unavailable', what: 'authorization_server', retryAfterSeconds: 1 }
      }
      session = again.session
    }
  }

  function isFresh({ tokens }: LiveSession): boolean {
    return now() < refreshesFirstAt(tokens, timing)
  }

  /** With a usable token a hanging authorization server slows nobody: the flight goes on without this caller. */
  async function bounded(flight: Flight, usable: boolean): Promise<RefreshResult> {
    if (!usable) return await flight.result
    const left = flight.startedAt + PATIENCE_WITH_GOOD_TOKEN_MS - now()
    const later: RefreshResult = { kind: 'later', retryInMs: 0, why: 'authorization_server' }
    if (left <= 0) return later
    let timer: NodeJS.Timeout | undefined
    const impatient = new Promise<RefreshResult>((resolve) => {
      timer = setTimeout(() => resolve(later), left)
    })
    return await Promise.race([flight.result, impatient]).finally(() => clearTimeout(timer))
  }

  return {
    accessToken,
    async refreshDue(session) {
      return session.tokens.refreshToken === null ? null : await fly(session, 'schedule').result
    },
    async settled() {
      await Promise.allSettled([...flights.values()].map((flight) => flight.result))
    },
  }
}

function refusedOrEnded(refusedGen: number | undefined): Access {
  return refusedGen === undefined ? { kind: 'login_required', reason: 'absolute' } : { kind: 'token_refused' }
}
