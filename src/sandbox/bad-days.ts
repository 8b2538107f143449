import type { Authorizations } from './authorizations.ts'
import type { FaultSwitches, Faults } from './faults.ts'
import type { Gates } from './gates.ts'

interface Day {
  /** Milliseconds until the platform is well again by itself; absent: the day is a single event. */
  lastsMs?: number
  faults?: Partial<Faults>
  /** Holds refreshes until the day ends. */
  holdsRefresh?: boolean
}

/** What the demo page can do to the platform. A page that goes away leaves nothing broken for longer than a minute. */
const DAYS: Readonly<Record<string, Day>> = {
  fine: {},
  'platform-down': {
    lastsMs: 5_000,
    faults: { resource: { mode: 'drop' }, tokenEndpoint: { mode: 'drop' } },
  },
  'token-endpoint-down': {
    lastsMs: 45_000,
    faults: { tokenEndpoint: { mode: 'status', status: 503, headers: { 'retry-after': '4' } } },
  },
  // Like platforms that accept a used refresh token again for a short time, because answers do get lost.
  'answer-lost': {
    lastsMs: 60_000,
    faults: {
      refreshReuse: 'allow',
      tokenEndpoint: { mode: 'drop', point: 'after', times: 1, only: 'refresh_token' },
    },
  },
  'refresh-held': { lastsMs: 45_000, holdsRefresh: true },
  expired: {},
  revoked: {},
}

export type BadDays = ReturnType<typeof createBadDays>

/** Named faults that end by themselves, one at a time. */
export function createBadDays({
  faults,
  gates,
  authorizations,
}: {
  faults: FaultSwitches
  gates: Gates
  authorizations: Authorizations
}) {
  let recover: (() => void) | null = null

  return {
    /** Ends the current day and begins another, for at most `limitMs`. Returns false for an unknown name. */
    begin(next: string, limitMs = Number.POSITIVE_INFINITY): boolean {
      const day = Object.hasOwn(DAYS, next) ? DAYS[next] : undefined
      if (day === undefined) return false
      recover?.()
      if (next === 'expired') authorizations.expireAccessTokens()
      if (next === 'revoked') authorizations.revoke()
      if (day.lastsMs === undefined) return true

      const before = faults.current()
      if (day.faults !== undefined) faults.set(day.faults)
      const gate = day.holdsRefresh ? gates.hold('token', { only: 'refresh_token' }) : null
      const timer = setTimeout(() => recover?.(), Math.min(day.lastsMs, limitMs))
      recover = () => {
        clearTimeout(timer)
        faults.set({
          resource: before.resource,
          tokenEndpoint: before.tokenEndpoint,
          refreshReuse: before.refreshReuse,
        })
        gate?.release()
        recover = null
      }
      return true
    },
  }
}
