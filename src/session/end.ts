import type { Keyring } from '../keyring.ts'
import type { Logger } from '../log.ts'
import type { RecordKey, SessionStore } from '../store/store.ts'
import { StoreUnavailable } from '../store/store.ts'
import type { EndReason } from '../tokens/events.ts'
import type { Revoker } from '../tokens/revoker.ts'
import { openTokens } from './sealed-tokens.ts'

export interface EndOptions {
  store: SessionStore
  keyring: Keyring
  revoke: Revoker['revoke']
  log: Logger
  onEnded: (key: RecordKey, reason: EndReason) => void
  /** Told of tokens that cannot be revoked, since no known secret opens them. */
  onUnreadable: (key: RecordKey) => void
}

/** A few megabytes; beyond that, a sign-out that was reported as failed may leave its tokens unrevoked. */
const MAX_IN_DOUBT = 1_000

/**
 * Ends a session for every replica, and revokes its tokens in the background. Whether there was one
 * to end; with `gen` only one whose tokens are of that generation. Rejects with `StoreUnavailable`.
 */
export type EndSession = (key: RecordKey, reason: EndReason, gen?: number) => Promise<boolean>

export function createEndSession(options: EndOptions): EndSession {
  const { store, keyring, revoke, log, onEnded, onUnreadable } = options
  /** Sealed tokens of sessions that were to be ended here, where it is not known whether they were. */
  const inDoubt = new Map<RecordKey, string>()

  return async function end(key, reason, gen) {
    const sealed = await endRecord(key, reason, gen)
    if (sealed === null) return false
    onEnded(key, reason)
    const opened = openTokens(keyring, key, sealed)
    if (opened === null) onUnreadable(key)
    else revoke(opened.tokens)
    // An entry that stays is dropped when it is claimed.
    store.unschedule(key).catch((error: unknown) => {
      if (!(error instanceof StoreUnavailable))
        log.error({ event: 'schedule.failed', err: error }, 'not taken out of the due queue')
    })
    return true
  }

  /** What the record held; null where it was not there, or has newer tokens. */
  async function endRecord(key: RecordKey, reason: EndReason, gen?: number): Promise<string | null> {
    const sealed = inDoubt.get(key) ?? (await readTokens(key))
    if (sealed === null) return null
    try {
      const ended = await store.end(key, gen ?? null, reason)
      const before = inDoubt.get(key) ?? null
      inDoubt.delete(key)
      // Gone by the try before, of which nothing was heard: what follows from an end is still to be done.
      if (ended.kind === 'gone') return before
      return ended.kind === 'ended' ? ended.tokens : null
    } catch (error) {
      if (inDoubt.size < MAX_IN_DOUBT) inDoubt.set(key, sealed)
      throw error
    }
  }

  /** Before the record is deleted, since the answer to that may be lost. */
  async function readTokens(key: RecordKey): Promise<string | null> {
    try {
      return (await store.read(key))?.tokens ?? null
    } catch (error) {
      // Nothing has ended, but whoever wanted that is not served here any more.
      store.forget(key)
      throw error
    }
  }
}
