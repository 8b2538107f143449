import { type Problem, problem } from '../errors.ts'
import type { TokenSet } from './sealed-tokens.ts'
import type { RecordKey, SessionRecord } from './store/record.ts'

/**
 * Why sessions end, in the words of `login_required`, the log and the metrics. `absolute`: also when an access token
 * expires that this client cannot refresh. `refused`: the authorization server refused the refresh token, or the
 * resource server refused the only access token.
 */
export const END_REASONS = ['logout', 'idle', 'absolute', 'refused', 'replaced', 'operator'] as const
export type EndReason = (typeof END_REASONS)[number]

/** A live session with its tokens open. */
export interface LiveSession {
  key: RecordKey
  record: SessionRecord
  tokens: TokenSet
}

/**
 * What a look at a session's record shows; see the states of a session in docs/architecture.md. A provisional session
 * shows as `live`.
 */
export type Found =
  | { kind: 'live'; session: LiveSession }
  /** `reason` and `at` (epoch milliseconds): null where they are not known, or no longer. */
  | { kind: 'ended'; reason: EndReason | null; at: number | null }
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

/** Activity of a session is recorded again after this many milliseconds. */
export function touchIntervalMs(idleMs: number): number {
  return Math.min(60_000, idleMs / 10)
}

const END_DETAILS: Record<EndReason, string> = {
  logout: 'The session was ended by signing out.',
  idle: 'The session ended after a time without use.',
  absolute: 'The session has reached its longest duration.',
  refused: 'The session ended: a server of the platform no longer accepts its tokens.',
  replaced: 'The session ended when a new one was started.',
  operator: 'The session was ended by an operator.',
}

/** The detail of `login_required` for a request without a session cookie of this server. */
export const NO_COOKIE =
  "Nobody is signed in: sign in first. The request has no session cookie of this server; fetch sends none with credentials: 'omit'."

/** `login_required` for a session that has ended; a known reason is also its member `reason`. */
export function loginRequired(reason: EndReason | null): Problem {
  if (reason === null) return problem('login_required', 'The session has ended.')
  return problem('login_required', { detail: END_DETAILS[reason], members: { reason } })
}

/** `login_required` for a session that is not live. */
export function notLiveProblem(found: Exclude<Found, { kind: 'live' }>): Problem {
  if (found.kind === 'ended') return loginRequired(found.reason)
  return problem('login_required', 'The session cannot be read here any more.')
}
