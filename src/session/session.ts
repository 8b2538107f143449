import type { RecordKey, SessionRecord } from '../store/store.ts'
import type { TokenSet } from './sealed-tokens.ts'

/** Why sessions end; as the error `login_required`, the log and the metrics name it. */
export const END_REASONS = ['logout', 'idle', 'absolute', 'refused', 'replaced', 'operator'] as const
export type EndReason = (typeof END_REASONS)[number]

/** A live session with its tokens open. */
export interface LiveSession {
  key: RecordKey
  record: SessionRecord
  tokens: TokenSet
}

/** What a look at a session's record shows; see the states of a session in docs/architecture.md. */
export type Found =
  | { kind: 'live'; session: LiveSession }
  /** `reason`: null where it is not known, or no longer. */
  | { kind: 'ended'; reason: EndReason | null }
  /** Sealed under a secret that this process does not have. */
  | { kind: 'unreadable' }

/** Which limit the session has passed at `now` (epoch milliseconds), or null while it lives. */
export function passedLimit(
  { idleEndsAt, endsAt }: Pick<SessionRecord, 'idleEndsAt' | 'endsAt'>,
  now: number,
): 'idle' | 'absolute' | null {
  if (now >= endsAt) return 'absolute'
  return now >= idleEndsAt ? 'idle' : null
}

/** Activity is recorded again when the last record of it is older than this, in milliseconds. */
export function touchInterval(idleMs: number): number {
  return Math.min(60_000, idleMs / 10)
}
