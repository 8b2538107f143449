import type { Logger } from '../log.ts'
import type { SessionStore } from '../store/store.ts'

/** Whether the grace covers an outage of the store. */
export interface Outage {
  /**
   * Whether cached sessions may be served although the store cannot be reached: its change messages stopped less
   * than the grace ago, and no node of it has answered since.
   */
  isInGrace(): boolean
}

export interface OutageOptions {
  store: Pick<SessionStore, 'msSinceMessagesArrived' | 'onMessagesLost' | 'onMessagesBack' | 'unreached'>
  /** 0: the grace covers no outage. */
  graceMs: number
  log: Logger
}

/** The last proof may be so much older than the outage. */
const PROOF_AGE_MS = 500

/**
 * The grace runs from the loss of messages, by the monotonic clock. It also ends a grace after their last proof,
 * because a process that was stopped has missed messages without noticing. It ends early when messages are back:
 * sessions may have changed meanwhile.
 */
export function createOutage({ store, graceMs, log }: OutageOptions): Outage {
  if (graceMs === 0) return { isInGrace: () => false }
  let lost = false
  let over = false
  let begun = false
  let timer: NodeJS.Timeout | undefined

  store.onMessagesBack(() => {
    lost = false
    over = false
    clearTimeout(timer)
    end('the store is back')
  })
  store.onMessagesLost(() => {
    lost = true
    over = false
    clearTimeout(timer)
    timer = setTimeout(giveUp, graceMs).unref()
  })

  function giveUp(): void {
    over = true
    end('the grace is over')
  }

  function end(reason: string): void {
    if (!begun) return
    begun = false
    log.warn({ event: 'grace.ended', reason }, 'cached sessions are no longer served without the store')
  }

  return {
    isInGrace() {
      if (over || !(begun || store.unreached())) return false
      if (store.msSinceMessagesArrived() >= graceMs + PROOF_AGE_MS) return false
      // Where no node answers before messages are missed, they will be within a second.
      if (lost && !begun) {
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
