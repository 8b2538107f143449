import { problem } from '../errors.ts'
import { parameters } from '../http/openapi.ts'
import { parameterAt } from '../http/problems.ts'
import { queryIn } from '../http/query.ts'

/** The parameters of an authorization response (RFC 6749 sections 4.1.2 and 4.1.2.1). */
export interface AuthorizationResponse {
  kind: 'code' | 'error' | 'none'
  /** The code, or the error code; '' for `none`. */
  value: string
  state: string | null
  iss: string | null
}

/** The nonce of a sign-in. */
const NONCE = /^[A-Za-z0-9_-]{43}$/

/** The nonce as a parameter of a path. */
export const NONCE_PARAMETER = parameters({
  nonce: { type: 'string', pattern: NONCE.source, examples: ['a'.repeat(43)] },
})

export const NOT_YOURS = 'This sign-in was not started in this browser, is too old, or has been used.'
export const CODE_OR_ERROR = 'Exactly one of the parameters code and error is expected.'

/** The query of a request target; repeated parameters are kept. Throws if it has too many. */
export function queryOf(url: string): URLSearchParams {
  return new URLSearchParams(queryIn(url))
}

/** The value of a parameter, or null without one. Throws if it is repeated (RFC 6749 section 3.1). */
export function soleParameter(query: URLSearchParams, name: string): string | null {
  const values = query.getAll(name)
  if (values.length > 1) throw problem('invalid_request', `The parameter ${name} is repeated.`)
  return values[0] ?? null
}

function refuseRepeated(query: URLSearchParams): void {
  const seen = new Set<string>()
  for (const [position, name] of [...query.keys()].entries()) {
    if (seen.has(name)) throw problem('invalid_request', `${parameterAt(position, name)} is repeated.`)
    seen.add(name)
  }
}

/** Reads a response from the query. Throws if a parameter is repeated, and ignores unknown ones. */
export function readAuthorizationResponse(query: URLSearchParams): AuthorizationResponse {
  refuseRepeated(query)
  const [code, error] = [query.get('code'), query.get('error')]
  if (code && error) throw problem('invalid_request', CODE_OR_ERROR)
  const kind = code ? 'code' : error ? 'error' : 'none'
  return { kind, value: code || error || '', state: query.get('state'), iss: query.get('iss') }
}

/** Whether the text has the form of a nonce. */
export function isNonce(text: string): boolean {
  return NONCE.test(text)
}

/** Throws unless the text has the form of a nonce. */
export function requireNonce(nonce: string): void {
  if (!isNonce(nonce)) throw problem('login_failed', 'This address belongs to no sign-in.')
}

/** Throws if a response names another sign-in, or another issuer than the configured one (RFC 9207). */
export function requireOwnResponse(
  { state, iss }: { state: string | null; iss: string | null },
  nonce: string,
  issuer: string | null,
): void {
  requireNonce(nonce)
  if (state !== null && state !== nonce) throw problem('login_failed', 'The state is not the one sent.')
  if (issuer !== null && iss !== null && iss !== issuer) {
    throw problem('login_failed', {
      detail: 'The response comes from another issuer.',
      reason: `the iss of the response is not OAUTH_ISSUER (${issuer}): copy the issuer from the server's metadata, to the letter`,
    })
  }
}
