import type { Authorizations } from './authorizations.ts'
import type { FaultSwitches, Faults } from './faults.ts'
import type { Gates } from './gates.ts'

interface Scenario {
  /** Milliseconds until the platform works again by itself; absent: the scenario is a single event. */
  lastsMs?: number
  faults?: Partial<Faults>
  /** Holds refreshes until the scenario ends. */
  holdsRefresh?: boolean
}

/** What the demo page can do to the platform. A page that goes away leaves nothing broken for longer than a minute. */
const SCENARIOS: Readonly<Record<string, Scenario>> = {
  fine: {},
  'platform-down': {
    lastsMs: 5_000,
    faults: { resource: { mode: 'drop' }, tokenEndpoint: { mode: 'drop' } },
  },
  'token-endpoint-down': {
    lastsMs: 45_000,
    faults: { tokenEndpoint: { mode: 'status', status: 503, headers: { 'retry-after': '4' } } },
  },
  // Like platforms that accept a used refresh token again for a short time, because responses do get lost.
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

export type Scenarios = ReturnType<typeof createScenarios>

/** Named faults that end by themselves, one at a time. */
export function createScenarios({
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
    /** Ends the current scenario and begins another, for at most `limitMs`. Returns false for an unknown name. */
    begin(next: string, limitMs = Number.POSITIVE_INFINITY): boolean {
      const scenario = Object.hasOwn(SCENARIOS, next) ? SCENARIOS[next] : undefined
      if (scenario === undefined) return false
      recover?.()
      if (next === 'expired') authorizations.expireAccessTokens()
      if (next === 'revoked') authorizations.end('withdrawn')
      if (scenario.lastsMs === undefined) return true

      const before = faults.current()
      if (scenario.faults !== undefined) faults.set(scenario.faults)
      const gate = scenario.holdsRefresh ? gates.hold('token', { only: 'refresh_token' }) : null
      const timer = setTimeout(() => recover?.(), Math.min(scenario.lastsMs, limitMs))
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
