import type { Clock } from '../clock.ts'
import type { Keyring } from '../keyring.ts'
import type { Logger } from '../log.ts'
import type { AuthorizationServer } from '../oauth/client.ts'
import type { Sessions } from '../session/lifecycle.ts'
import type { OutboxStore } from '../store/outbox.ts'
import { createBreaker } from './breaker.ts'
import { createObtainAccessToken, type ObtainAccessToken } from './obtain.ts'
import { createQueueRepair, SCAN_PACE } from './queue-repair.ts'
import { createRefresh, type Refresh, type RefreshEvents } from './refresh.ts'
import { leaseMs, type RefreshTiming } from './refresh-policy.ts'
import type { Revoker } from './revoker.ts'
import { createScheduler, type Scheduler } from './scheduler.ts'
import { createSingleFlight } from './single-flight.ts'
import { createSlots } from './slots.ts'

interface TokensOptions {
  store: OutboxStore
  sessions: Pick<Sessions, 'find' | 'readState' | 'endRefused'>
  authorizationServer: Pick<AuthorizationServer, 'refresh'>
  revoker: Revoker
  keyring: Keyring
  timing: RefreshTiming
  /** Token requests of this process at once for which a caller still waits. */
  concurrency: number
  timeoutMs: number
  /** How long a stop may take in all. */
  shutdownMs: number
  clock: Clock
  random: () => number
  log: Logger
  events: RefreshEvents
  /** Surrounds each refresh, for example with a measurement. */
  wrapRefresh?: ((inner: Refresh) => Refresh) | undefined
}

/**
 * Refreshes the tokens of sessions before they expire, with and without requests, and ends a session when the
 * authorization server refuses its refresh token. No other folder presents the refresh token of a session. The
 * application's own token is separate (application-token.ts).
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
  const { store, sessions, revoker, timing, timeoutMs, clock, random, log, events } = options
  const slots = createSlots(options.concurrency)
  const breaker = createBreaker({
    now: clock.monotonic,
    random,
    onChange: (open, failures) =>
      log.warn(
        { event: open ? 'breaker.open' : 'breaker.closed', failures },
        open ? 'the token endpoint keeps failing: one request at a time' : 'the token endpoint works again',
      ),
  })
  const { wrapRefresh = (inner) => inner } = options
  const refresh = wrapRefresh(createRefresh({ ...options, breaker, slots, revoke: revoker.revoke }))
  const singleFlight = createSingleFlight({
    refresh,
    sessions,
    monotonic: clock.monotonic,
    log,
    schedule: ({ key, tokens, record }) => scheduler.schedule(key, tokens, record),
  })
  const scheduler = createScheduler({
    store,
    sessions,
    singleFlight,
    breaker,
    slots,
    concurrency: options.concurrency,
    timing,
    claimMs: leaseMs(timeoutMs),
    clock,
    random,
    log,
    events,
  })
  const queueRepair = createQueueRepair({ store, ...SCAN_PACE, monotonic: clock.monotonic, random, log })
  const closingMs = closingMsOf(options.shutdownMs)
  let responseDeadline: number | null = null

  async function beginStop(): Promise<void> {
    responseDeadline ??= clock.monotonic() + options.shutdownMs - closingMs
    refresh.closeAt(responseDeadline)
    await Promise.all([scheduler.stop(), queueRepair.stop()])
  }

  return {
    obtainAccessToken: createObtainAccessToken({
      sessions,
      singleFlight,
      isDown: breaker.isOpen,
      timing,
      timeoutMs,
      clock,
    }),
    schedule: scheduler.schedule,
    consecutiveFailures: breaker.failures,
    start() {
      scheduler.start()
      queueRepair.start()
    },
    beginStop,
    async stop() {
      await beginStop()
      await singleFlight.settled()
      await store.drainPendingTokens()
      const leftMs = Math.max(0, responseDeadline! + closingMs / 2 - clock.monotonic())
      await Promise.all([store.finish(), revoker.stop(leftMs)])
    },
  }
}

/** The part of a stop that is kept for what follows the last token response: revocations, then closing everything. */
function closingMsOf(shutdownMs: number): number {
  return Math.min(3_000, shutdownMs / 3)
}
