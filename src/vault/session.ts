import { type Problem, problem } from '../errors.ts'
import type { Keyring } from '../keyring.ts'
import { Secret } from '../secret.ts'
import type { RecordKey, SessionRecord } from './store/record.ts'
import type { User } from './user.ts'

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
 * A session as it can be used with this `CLIENT_ID`. Its refresh token would be refused if it was issued to another one, and
 * all sessions would end at once when the variable changes: so they last as long as their access tokens.
 */
export function forClientId(session: LiveSession, clientId: string): LiveSession {
  const { record, tokens } = session
  if (record.client === clientId || tokens.refreshToken === null) return session
  const endsAt = Math.min(record.endsAt, tokens.expiresAt)
  return {
    ...session,
    record: { ...record, endsAt },
    tokens: { ...tokens, refreshToken: null, refreshExpiresAt: null },
  }
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

/** The tokens of one session, as the record keeps them sealed. */
export interface TokenSet {
  accessToken: Secret
  /** null: the session lasts as long as the access token. */
  refreshToken: Secret | null
  /** When the access token expires, epoch milliseconds. */
  expiresAt: number
  /** The life of the access token when it was issued. */
  lifeSeconds: number
  /** When the refresh token expires, epoch milliseconds; absent or null where that is not known. */
  refreshExpiresAt?: number | null
  /** Absent or null where it is not known. */
  user?: User | null
}

interface OpenedTokens {
  tokens: TokenSet
  /** Sealed under an older secret, until the next refresh or `npm run sessions -- reseal`. */
  underOlderSecret: boolean
}

interface Plain {
  a: string
  r: string | null
  e: number
  l: number
  x?: number
  u?: readonly [id: string, name: string | null]
}

/** A string of one byte a character. Bound to the record key: a sealed set that is moved to another record does not open there. */
export function sealTokens(keyring: Keyring, key: RecordKey, tokens: TokenSet): string {
  const plain: Plain = {
    a: tokens.accessToken.reveal(),
    r: tokens.refreshToken?.reveal() ?? null,
    e: tokens.expiresAt,
    l: tokens.lifeSeconds,
    ...(tokens.refreshExpiresAt ? { x: tokens.refreshExpiresAt } : {}),
    ...(tokens.user ? { u: [tokens.user.id, tokens.user.name] } : {}),
  }
  return keyring.sealBinary('tokens', JSON.stringify(plain), key)
}

/** null if no current secret opens it. */
export function openTokens(keyring: Keyring, key: RecordKey, sealed: string): OpenedTokens | null {
  const opened = keyring.openBinary('tokens', sealed, key)
  if (opened === null) return null
  const plain = JSON.parse(opened.text) as Plain
  return {
    tokens: {
      accessToken: new Secret(plain.a),
      refreshToken: plain.r === null ? null : new Secret(plain.r),
      expiresAt: plain.e,
      lifeSeconds: plain.l,
      refreshExpiresAt: plain.x ?? null,
      user: plain.u === undefined ? null : { id: plain.u[0], name: plain.u[1] },
    },
    underOlderSecret: opened.underOlderSecret,
  }
}
