import type { Logger } from '../log.ts'
import type { SessionStore } from './port.ts'

/** How long an outage of the store is borne. */
export interface Outage {
  /**
   * Whether what was known before may stand in for a store that cannot be reached: its messages have
   * been away for less than the grace, and no part of it was to be reached meanwhile.
   */
  isBorne(): boolean
}

export interface OutageOptions {
  store: Pick<SessionStore, 'onMessagesLost' | 'onMessagesBack' | 'unreached'>
  /** 0: no outage is borne. */
  graceMs: number
  log: Logger
}

/**
 * The grace runs from the loss of messages, by the monotonic clock, and ends early when messages are
 * back: a store that only answers commands again may have changed sessions that nobody told us of.
 */
export function createOutage({ store, graceMs, log }: OutageOptions): Outage {
  if (graceMs === 0) return { isBorne: () => false }
  let haveArrived = false
  let lostAt: number | null = null
  let begun = false
  let timer: NodeJS.Timeout | undefined

  store.onMessagesBack(() => {
    haveArrived = true
    lostAt = null
    clearTimeout(timer)
    end('the store is back')
  })
  store.onMessagesLost(() => {
    lostAt = performance.now()
    clearTimeout(timer)
    timer = setTimeout(giveUp, graceMs).unref()
  })

  function giveUp(): void {
    // A timer may be a moment early by this clock: it would begin anew.
    lostAt = Number.NEGATIVE_INFINITY
    end('the grace is over')
  }

  function end(reason: string): void {
    if (!begun) return
    begun = false
    log.warn({ event: 'grace.ended', reason }, 'cached sessions are no longer served without the store')
  }

  return {
    isBorne() {
      // No node answers: messages are missed within a second as well, and the grace begins.
      if (lostAt === null) return haveArrived && store.unreached()
      if (performance.now() - lostAt >= graceMs || !(begun || store.unreached())) return false
      if (!begun) {
        begun = true
        log.warn(
          { event: 'grace.begun', graceSeconds: graceMs / 1_000 },
          'the store cannot be reached: cached sessions are served without it',
        )
      }
      return true
    },
  }
}
