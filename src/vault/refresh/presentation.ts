import type { Logger } from '../../log.ts'
import type { TokenOutcome } from '../../oauth/token-response.ts'
import type { RenewLeaseResult } from '../store/record.ts'
import { StoreUnavailable } from '../store/store.ts'
import { resetAfterMs } from './rules.ts'

interface PresentationOptions {
  /** Sends the token request. The signal resets its connection. */
  send: (signal: AbortSignal) => Promise<TokenOutcome>
  renewLease: () => Promise<RenewLeaseResult>
  /** Whether the token endpoint may still come to this request. */
  mayBeQueued: () => boolean
  timeoutMs: number
  monotonic: () => number
  log: Logger
}

/** One presentation of a refresh token, from its sending to its response. */
export interface Presentation {
  /** However late: the response, or what a broken or reset connection leaves. */
  readonly outcome: Promise<TokenOutcome>
  /** Whether the tokens were replaced or presented elsewhere meanwhile. */
  isOvertaken(): boolean
  /** Nothing more is delivered on its connection. */
  reset(reason: string): void
}

/** How often a presentation without a response renews its lease: below the shortest pause after a failover. */
const RENEW_EVERY_MS = 1_500
/** How often a renewal that the store did not take is tried again. */
const RENEW_AGAIN_MS = 250

/**
 * Presents a refresh token, and renews the lease while there is no response, so that no other process presents the same
 * one. Resets the connection when the response takes too long or the presentation is overtaken: a request that is still
 * on its way is then not delivered. A token endpoint that answers others late gets more time: it may still grant the
 * request, and nobody would receive the tokens.
 */
export function present(options: PresentationOptions): Presentation {
  const { send, renewLease, mayBeQueued, timeoutMs, monotonic, log } = options
  const connection = new AbortController()
  const giveUpAt = monotonic() + resetAfterMs(timeoutMs)
  let renewLeaseAt = monotonic() + RENEW_EVERY_MS
  let lease: RenewLeaseResult | 'renewing' = 'held'
  let overdue = false

  const reset = (reason: string): void => connection.abort(new Error(reason))

  function look(): void {
    if (monotonic() >= giveUpAt && !mayBeQueued()) giveUp()
    else if (monotonic() >= renewLeaseAt && lease === 'held') extendLease().catch(failed)
  }

  function giveUp(): void {
    // Timers run before sockets are read. Only the second look resets, so a resumed process first reads a response.
    if (overdue) reset('no response came')
    overdue = true
  }

  async function extendLease(): Promise<void> {
    lease = 'renewing'
    try {
      // If the session is gone, the response is still awaited to revoke its tokens. Nobody else presents this one.
      lease = await renewLease()
      renewLeaseAt = monotonic() + RENEW_EVERY_MS
      if (lease === 'taken') reset('the refresh token has been replaced or presented elsewhere')
    } catch (error) {
      lease = 'held'
      // In an outage of Redis no process can take the lease, and the response may hold the only live tokens.
      if (!(error instanceof StoreUnavailable)) throw error
    }
  }

  function failed(error: unknown): void {
    log.error({ event: 'store.step_failed', err: error }, 'a lease could not be renewed')
  }

  const timer = setInterval(look, RENEW_AGAIN_MS)
  const outcome = send(connection.signal).finally(() => clearInterval(timer))
  return { outcome, isOvertaken: () => lease === 'taken', reset }
}
