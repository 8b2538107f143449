import type { Clock } from '../clock.ts'
import type { Keyring } from '../keyring.ts'
import type { Logger } from '../log.ts'
import { passedLimit } from '../store/limits.ts'
import type { RecordKey, SessionRecord, SessionStore } from '../store/store.ts'
import { inLog, StoreUnavailable } from '../store/store.ts'
import type { EndReason } from '../tokens/events.ts'
import { END_REASONS } from '../tokens/events.ts'
import type { Recent } from '../tokens/recent.ts'
import type { Unsaved } from '../tokens/unsaved.ts'
import type { OpenedTokens, TokenSet } from './sealed-tokens.ts'
import { openTokens } from './sealed-tokens.ts'

/** A session that lives, with its tokens open. */
export interface LiveSession {
  key: RecordKey
  record: SessionRecord
  tokens: TokenSet
  /** Of `tokens`; ahead of the record's while they wait to be stored. */
  gen: number
}

export type Found =
  | { kind: 'live'; session: LiveSession }
  /** `reason`: null where it is not known, or no longer. */
  | { kind: 'ended'; reason: EndReason | null }
  | { kind: 'unreadable' }
  | { kind: 'store_unavailable'; cause: StoreUnavailable }

export interface LiveOptions {
  store: SessionStore
  keyring: Keyring
  unsaved: Unsaved
  recent: Recent
  idleMs: number
  clock: Clock
  log: Logger
  onEnded: (key: RecordKey, reason: EndReason) => void
  /** Told what each record that was read holds, sealed and opened. */
  onOpened: (key: RecordKey, sealed: string, opened: OpenedTokens) => void
}

/** After trouble with the store every replica writes its pending activity within this time. */
const LATE_ACTIVITY_MS = 5_000

export type FindSession = (key: RecordKey) => Promise<Found>

/** Looks a session up in the store, and ends it where it has passed a limit. Never rejects. */
export function createFindSession(options: LiveOptions): FindSession {
  const { store, keyring, unsaved, recent, idleMs, clock, log, onEnded, onOpened } = options

  /** When messages were first proven to arrive: what was before belongs to the start of the process. */
  let readyAt = Number.POSITIVE_INFINITY
  let messagesBackAt = Number.NEGATIVE_INFINITY
  store.onMessagesBack(() => {
    messagesBackAt = clock.monotonic()
    readyAt = Math.min(readyAt, messagesBackAt)
  })

  function mayLackActivity(key: RecordKey): boolean {
    const now = clock.monotonic()
    const troubleAt = Math.max(messagesBackAt, now - store.msSinceTrouble(key))
    return troubleAt > readyAt && now - troubleAt < LATE_ACTIVITY_MS
  }

  async function readNewest(key: RecordKey): Promise<SessionRecord | null> {
    const record = await store.read(key)
    const written = recent.get(key)
    if (record === null || written?.kind !== 'tokens' || written.gen <= record.gen) return record
    await recent.writeAgain(key)
    return await store.read(key)
  }

  /** Why is a courtesy: where the store does not say, that it has ended is enough. */
  async function ended(key: RecordKey): Promise<Found> {
    const kept = await store.endReason(key).catch(() => null)
    return { kind: 'ended', reason: END_REASONS.find((reason) => reason === kept) ?? null }
  }

  return async function findSession(key) {
    // A server that has lost the end of a session still shows it.
    if (recent.get(key)?.kind === 'end') return await ended(key)
    const waiting = unsaved.get(key)
    let record: SessionRecord | null
    try {
      record = await readNewest(key)
      if (record === null) return await ended(key)
      const limit = passedLimit(record, clock.wall(), idleMs)
      // Late activity may still arrive, so the session is neither served nor ended yet.
      if (limit === 'idle' && mayLackActivity(key))
        throw new StoreUnavailable(new Error('activity is awaited'))
      if (limit !== null) {
        const { kind } = await store.endPassed(key, record.gen, limit, idleMs)
        if (kind === 'gone') return await ended(key)
        if (kind === 'ended') {
          onEnded(key, limit)
          return { kind: 'ended', reason: limit }
        }
        // The store's clock says that the session lives, so the clock of this process is wrong.
      }
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error
      // Tokens that wait here are no reason to go on: the session may have been ended elsewhere.
      return { kind: 'store_unavailable', cause: error }
    }
    if (waiting !== null && waiting.gen > record.gen) {
      return { kind: 'live', session: { key, record, tokens: waiting.tokens, gen: waiting.gen } }
    }
    const opened = openTokens(keyring, key, record.tokens)
    if (opened === null) {
      // Left in place: a replica that still knows the secret can read it.
      log.error({ event: 'session.unreadable', recordKey: inLog(key) }, 'a session record does not open')
      return { kind: 'unreadable' }
    }
    onOpened(key, record.tokens, opened)
    return { kind: 'live', session: { key, record, tokens: opened.tokens, gen: record.gen } }
  }
}
