import type { Clock } from '../../clock.ts'
import type { Logger } from '../../log.ts'
import type { AuthorizationClient } from '../../oauth/client.ts'
import type { Sessions } from '../lifecycle.ts'
import type { OutboxStore } from '../store/outbox.ts'
import { createGate } from './gate.ts'
import { createQueueRepair } from './queue-repair.ts'
import { createRefresh, type Refresh, type RefreshEvents } from './refresh.ts'
import { createRenewals, type ObtainAccessToken } from './renewals.ts'
import type { Revoker } from './revoker.ts'
import { leaseMs, type RefreshTiming } from './rules.ts'
import { createScheduler, type Scheduler } from './scheduler.ts'

interface TokensOptions {
  store: OutboxStore
  sessions: Pick<Sessions, 'look' | 'readState' | 'replaceTokens' | 'endRefused'>
  authorizationClient: Pick<AuthorizationClient, 'refresh'>
  revoker: Revoker
  pace: TokensPace
  clock: Clock
  log: Logger
  observe: {
    events: RefreshEvents
    /** Surrounds each refresh, for example with a measurement. */
    wrapRefresh?: ((inner: Refresh) => Refresh) | undefined
  }
}

interface TokensPace {
  timing: RefreshTiming
  /** Token requests of this process in flight, at most. */
  concurrency: number
  /** How long callers wait for a token response. */
  timeoutMs: number
  /** The authorization server grants a used refresh token again for so long; 0: it does not. */
  reuseMs: number
  /** How long a stop may take in all. */
  shutdownMs: number
  /** In [0, 1). */
  random: () => number
}

/**
 * Refreshes the tokens of sessions before they expire, with and without requests, and ends a session when the
 * authorization server refuses its refresh token. No other folder presents the refresh token of a session. The
 * application's own token is separate (proxy/application-token.ts).
 */
export interface Tokens {
  obtainAccessToken: ObtainAccessToken
  /** Puts a session into the due queue for when it next needs attention. */
  schedule: Scheduler['schedule']
  /** Token requests that failed in a row. */
  consecutiveFailures(): number
  start(): void
  /**
   * Starts no more background work, and gives open token requests a part of `shutdownMs` from now to get their
   * responses. Resolves when the background work has ended; browser requests may still need refreshes after that.
   */
  beginStop(): Promise<void>
  /** To be called when no request is open. Resolves when every refresh under way has been stored. */
  stop(): Promise<void>
}

export function createTokens(options: TokensOptions): Tokens {
  const { store, sessions, revoker, pace, clock, log, observe } = options
  const { timing, concurrency, timeoutMs, random } = pace
  const { events, wrapRefresh = (inner) => inner } = observe
  const gate = createGate({
    max: concurrency,
    timeoutMs,
    now: clock.monotonic,
    random,
    onChange: (down, failures) =>
      log.warn(
        { event: down ? 'breaker.open' : 'breaker.closed', failures },
        down ? 'the token endpoint keeps failing: one request at a time' : 'the token endpoint works again',
      ),
  })
  const refresh = wrapRefresh(createRefresh({ ...options, gate, events }))
  const { joinAttempt, obtainAccessToken } = createRenewals({
    refresh,
    sessions,
    isDown: gate.isDown,
    timing,
    timeoutMs,
    clock,
  })
  const scheduler = createScheduler({
    store,
    sessions,
    joinAttempt,
    gate,
    timing,
    reuseMs: pace.reuseMs,
    claimMs: leaseMs(timeoutMs),
    clock,
    random,
    log,
    events,
  })
  const queueRepair = createQueueRepair({ store, monotonic: clock.monotonic, random, log })
  const closingMs = closingMsOf(pace.shutdownMs)
  let responseDeadline: number | null = null

  async function beginStop(): Promise<void> {
    responseDeadline ??= clock.monotonic() + pace.shutdownMs - closingMs
    refresh.closeAt(responseDeadline)
    await Promise.all([scheduler.stop(), queueRepair.stop()])
  }

  return {
    obtainAccessToken,
    schedule: scheduler.schedule,
    consecutiveFailures: gate.failures,
    start() {
      scheduler.start()
      queueRepair.start()
    },
    beginStop,
    async stop() {
      await beginStop()
      await refresh.settled()
      // New tokens that the store has not taken yet.
      await store.drainPendingTokens()
      const leftMs = Math.max(0, responseDeadline! + closingMs / 2 - clock.monotonic())
      // `finish`: the newest writes, in case a failover has lost them.
      await Promise.all([store.finish(), revoker.stop(leftMs)])
    },
  }
}

/** The part of a stop that is kept for what follows the last token response: revocations, then closing everything. */
function closingMsOf(shutdownMs: number): number {
  return Math.min(3_000, shutdownMs / 3)
}
