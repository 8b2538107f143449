export type RefreshTrigger = 'request' | 'schedule' | 'invalid_token'
export type RefreshOutcome = 'granted' | 'refused' | 'unavailable' | 'in_doubt'
/** What the store did not take at once: refreshed tokens, the return of a lease, the end of a session. */
export type StoreStep = 'tokens' | 'lease' | 'end'
export const END_REASONS = ['logout', 'idle', 'absolute', 'refused', 'replaced', 'operator'] as const
export type EndReason = (typeof END_REASONS)[number]

/** What the tokens room tells those who count. */
export interface TokenEvents {
  refreshed(trigger: RefreshTrigger, outcome: RefreshOutcome, seconds: number): void
  /** Seconds between the instant that a background refresh was due and its start. */
  lagged(seconds: number): void
  started(flow: string): void
  ended(reason: EndReason): void
  /** A step was tried again. */
  retried(step: StoreStep): void
  /** A write that the store had lost was made again: new tokens, or the end of a session. */
  restored(what: 'tokens' | 'end'): void
}
