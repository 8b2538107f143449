import { ClientError, ResponseBodyError, WWWAuthenticateChallengeError } from 'openid-client'
import type { Secret } from '../secret.ts'
import { NoAnswer } from './token-http.ts'

/** The answer of the token endpoint, service document section 2.3, made safe to keep. */
export interface GrantedTokens {
  accessToken: Secret
  refreshToken: Secret | null
  /** Life of the access token in seconds, 0 for one that is due at once. */
  lifeSeconds: number
  /** Epoch milliseconds, counted from the instant before the request was sent. */
  expiresAt: number
  scope: string | null
}

/** What a token request came to. Only `refused` says that the grant itself is dead. */
export type TokenOutcome =
  | { kind: 'granted'; tokens: GrantedTokens }
  /** A parsed OAuth `invalid_grant` (RFC 6749 section 5.2). */
  | { kind: 'refused'; error: string }
  /** A readable answer that is neither, or nothing was sent: the grant has not been used up. */
  | {
      kind: 'unavailable'
      reason: string
      retryAfterSeconds: number | null
      timedOut: boolean
      /** The token endpoint works, and says no to this grant: it says nothing of others. */
      ofThisGrant: boolean
    }
  /** The request left and no readable answer came: the grant may have been used up. */
  | { kind: 'in_doubt'; reason: string; timedOut: boolean }

const MAX_RETRY_AFTER_SECONDS = 60

/** RFC 6749 section 5.2: what is wrong is this server's registration, for every user. */
const CLIENT_FAULTS: ReadonlySet<string> = new Set(['invalid_client', 'unauthorized_client'])
const OF_ALL_GRANTS: ReadonlySet<string> = new Set([
  ...CLIENT_FAULTS,
  'temporarily_unavailable',
  'server_error',
  'slow_down',
])

/** Sorts a failure of openid-client's grant functions; never `granted`. */
export function classifyFailure(error: unknown): Exclude<TokenOutcome, { kind: 'granted' }> {
  const lost = findCause(error, NoAnswer)
  if (lost?.sent) return { kind: 'in_doubt', reason: lost.message, timedOut: lost.timedOut }
  if (lost)
    return {
      kind: 'unavailable',
      reason: lost.message,
      retryAfterSeconds: null,
      timedOut: lost.timedOut,
      ofThisGrant: false,
    }
  if (error instanceof ResponseBodyError) {
    const dead = error.error === 'invalid_grant' && (error.status === 400 || error.status === 401)
    if (dead) return { kind: 'refused', error: error.error }
    const hint = CLIENT_FAULTS.has(error.error) ? ': check CLIENT_ID and CLIENT_SECRET' : ''
    const ofThisGrant = error.status >= 400 && error.status <= 403 && !OF_ALL_GRANTS.has(error.error)
    return no(error.response, `the answer was ${error.status} ${knownError(error.error)}${hint}`, ofThisGrant)
  }
  if (error instanceof WWWAuthenticateChallengeError)
    return no(error.response, `the answer was ${error.status}`)
  const response = findCause(error, Response)
  if (response !== null && isReadableNo(response.status))
    return no(response, `the answer was ${response.status}`)
  const reason = response === null ? errorName(error) : `the answer was ${response.status}, unreadable`
  return { kind: 'in_doubt', reason, timedOut: false }
}

/** Status codes by which a server itself, and not something in front of it, says that it did nothing. */
function isReadableNo(status: number): boolean {
  return (status >= 300 && status < 500) || status === 500 || status === 501 || status === 503
}

function no(response: Response, reason: string, ofThisGrant = false): TokenOutcome & { kind: 'unavailable' } {
  const header = response.headers.get('retry-after') ?? ''
  const seconds = /^\d+$/.test(header) ? Number(header) : (Date.parse(header) - Date.now()) / 1_000
  const retryAfterSeconds = seconds > 0 ? Math.min(seconds, MAX_RETRY_AFTER_SECONDS) : null
  return { kind: 'unavailable', reason, retryAfterSeconds, timedOut: false, ofThisGrant }
}

// The code goes to the log: only what RFC 6749 allows in one, and not endlessly.
function knownError(code: string): string {
  return /^[\x20-\x7e]{1,64}$/.test(code) ? code : 'with an unreadable error code'
}

function errorName(error: unknown): string {
  if (error instanceof ClientError && error.code !== undefined) return error.code
  return error instanceof Error ? error.name : 'unknown'
}

function findCause<T>(error: unknown, type: abstract new (...args: never[]) => T): T | null {
  for (let at = error, depth = 0; at !== undefined && at !== null && depth < 6; depth += 1) {
    if (at instanceof type) return at
    at = at instanceof Error ? at.cause : null
  }
  return null
}
