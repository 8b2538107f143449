import { ClientError, ResponseBodyError, WWWAuthenticateChallengeError } from 'openid-client'
import type { Secret } from '../secret.ts'
import { NoAnswer } from './token-fetch.ts'

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
  /** An answer that says that nothing was done, or nothing was sent: the grant has not been used up. */
  | {
      kind: 'unavailable'
      reason: string
      retryAfterSeconds: number | null
      timedOut: boolean
      /** The token endpoint works, and says no to this grant: it says nothing of others. */
      ofThisGrant: boolean
    }
  /** The request left and no answer came that says what was done: the grant may have been used up. */
  | {
      kind: 'in_doubt'
      reason: string
      timedOut: boolean
      /** Of an answer that says that the token endpoint failed, 500 to 599. */
      failedStatus?: number
    }

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
  if (lost) {
    const { message: reason, timedOut } = lost
    return { kind: 'unavailable', reason, retryAfterSeconds: null, timedOut, ofThisGrant: false }
  }
  const response = findResponse(error)
  if (response === null) return { kind: 'in_doubt', reason: errorName(error), timedOut: false }
  const { status } = response
  if (status < 300)
    return { kind: 'in_doubt', reason: `the answer was ${status}, unreadable`, timedOut: false }
  const code = error instanceof ResponseBodyError ? error.error : null
  if (code === 'invalid_grant' && (status === 400 || status === 401)) return { kind: 'refused', error: code }
  const reason = `the answer was ${status}${code === null ? '' : ` ${describeCode(code)}`}`
  const retryAfterSeconds = retryAfter(response)
  // Gateways answer 500 to 504 for a request that they lost after the server had acted on it.
  if (status >= 500 && (status !== 503 || retryAfterSeconds === null)) {
    return { kind: 'in_doubt', reason, timedOut: false, failedStatus: status }
  }
  const ofThisGrant = code !== null && status >= 400 && status <= 403 && !OF_ALL_GRANTS.has(code)
  return {
    kind: 'unavailable',
    reason,
    // No time at all is no time to wait for.
    retryAfterSeconds: retryAfterSeconds === 0 ? null : retryAfterSeconds,
    timedOut: false,
    ofThisGrant,
  }
}

/** Seconds, never below 0 and at most a minute; null where the answer does not say (RFC 9110 section 10.2.3). */
function retryAfter(response: Response): number | null {
  const header = response.headers.get('retry-after') ?? ''
  // Date.parse alone would read "-1" and "1.5" as dates.
  const isDate = header.endsWith(' GMT')
  const seconds = isDate
    ? (Date.parse(header) - Date.now()) / 1_000
    : /^\d+$/.test(header)
      ? Number(header)
      : NaN
  return Number.isNaN(seconds) ? null : Math.min(Math.max(seconds, 0), MAX_RETRY_AFTER_SECONDS)
}

function describeCode(code: string): string {
  return `${knownError(code)}${CLIENT_FAULTS.has(code) ? ': check CLIENT_ID and CLIENT_SECRET' : ''}`
}

// The code goes to the log: only what RFC 6749 allows in one, and not endlessly.
function knownError(code: string): string {
  return /^[\x20-\x7e]{1,64}$/.test(code) ? code : 'with an unreadable error code'
}

function errorName(error: unknown): string {
  if (error instanceof ClientError && error.code !== undefined) return error.code
  return error instanceof Error ? error.name : 'unknown'
}

function findResponse(error: unknown): Response | null {
  if (error instanceof ResponseBodyError || error instanceof WWWAuthenticateChallengeError)
    return error.response
  return findCause(error, Response)
}

function findCause<T>(error: unknown, type: abstract new (...args: never[]) => T): T | null {
  for (let at = error, depth = 0; at !== undefined && at !== null && depth < 6; depth += 1) {
    if (at instanceof type) return at
    at = at instanceof Error ? at.cause : null
  }
  return null
}
