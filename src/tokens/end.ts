import type { Keyring } from '../keyring.ts'
import type { Logger } from '../log.ts'
import type { RecordKey, SessionStore } from '../store/port.ts'
import { StoreUnavailable } from '../store/port.ts'
import type { EndReason } from './events.ts'
import type { Revoker } from './revoker.ts'
import { openTokens } from './token-set.ts'

export interface EndOptions {
  store: SessionStore
  keyring: Keyring
  revoke: Revoker['revoke']
  log: Logger
  onEnded: (key: RecordKey, reason: EndReason) => void
  /** Told of tokens that cannot be revoked, since no known secret opens them. */
  onUnreadable: (key: RecordKey) => void
}

/**
 * Ends a session for every replica, and revokes its tokens in the background. Whether there was one
 * to end; with `gen` only one whose tokens are of that generation. Rejects with `StoreUnavailable`.
 */
export type EndSession = (key: RecordKey, reason: EndReason, gen?: number) => Promise<boolean>

export function createEndSession(options: EndOptions): EndSession {
  const { store, keyring, revoke, log, onEnded, onUnreadable } = options
  return async function end(key, reason, gen) {
    const ended = await store.end(key, gen ?? null, reason)
    if (ended.kind !== 'ended') return false
    onEnded(key, reason)
    const opened = openTokens(keyring, key, ended.tokens)
    if (opened === null) onUnreadable(key)
    else revoke(opened.tokens)
    // An entry that stays is dropped when it is claimed.
    store.unschedule(key).catch((error: unknown) => {
      if (!(error instanceof StoreUnavailable))
        log.error({ event: 'schedule.failed', err: error }, 'not taken out of the due queue')
    })
    return true
  }
}
