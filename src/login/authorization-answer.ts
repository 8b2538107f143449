import { problem } from '../errors.ts'
import { soleParameter } from './query.ts'

/** What came back from the authorization server in the query. */
export interface AuthorizationAnswer {
  kind: 'code' | 'error' | 'none'
  /** The code, or the error code; '' for `none`. */
  value: string
  state: string | null
  iss: string | null
}

/** The nonce of a sign-in. */
export const NONCE = /^[A-Za-z0-9_-]{43}$/

export const NOT_YOURS = 'This sign-in was not started in this browser, is too old, or has been used.'
export const ONE_OF_BOTH = 'Exactly one of the parameters code and error is expected.'

/** RFC 6749 sections 3.1 and 4.1.2: unknown parameters are ignored, none may be repeated. */
export function readAnswer(query: URLSearchParams): AuthorizationAnswer {
  const [code, error, state = null, iss = null] = ['code', 'error', 'state', 'iss'].map((name) =>
    soleParameter(query, name),
  )
  if (new Set(query.keys()).size !== query.size) throw problem('invalid_request', 'A parameter is repeated.')
  if (code && error) throw problem('invalid_request', ONE_OF_BOTH)
  const kind = code ? 'code' : error ? 'error' : 'none'
  return { kind, value: code || error || '', state, iss }
}

/** Throws unless this may be the nonce of a sign-in. */
export function requireNonce(nonce: string): void {
  if (!NONCE.test(nonce)) throw problem('login_failed', 'This address belongs to no sign-in.')
}

/** Throws where an answer says that it belongs to another sign-in, or comes from another issuer (RFC 9207). */
export function requireOwn(
  { state, iss }: { state: string | null; iss: string | null },
  nonce: string,
  issuer: string | null,
): void {
  requireNonce(nonce)
  if (state !== null && state !== nonce) throw problem('login_failed', 'The state is not the one sent.')
  if (issuer !== null && iss !== null && iss !== issuer) {
    throw problem('login_failed', 'The answer comes from another issuer.')
  }
}

/** The value of `login_error` for an error code of RFC 6749 section 4.1.2.1 or 4.2.2.1. */
export function publicError(error: string): string {
  return error === 'access_denied' || error === 'temporarily_unavailable' ? error : 'server_error'
}
