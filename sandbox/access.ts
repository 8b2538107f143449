import type { IncomingHttpHeaders } from 'node:http'
import type { Answers } from './answers.ts'
import type { Authorization, Authorizations } from './authorizations.ts'
import type { Faults } from './faults.ts'
import { jsonResponse, type SandboxResponse, textResponse, withHeaders } from './response.ts'

/** The caller, or the response that refuses it. */
type Caller =
  | { kind: 'caller'; authorization: Authorization }
  | { kind: 'refused'; response: SandboxResponse }

/**
 * Finds the access token in the header or in the query (document section 5.6) and looks it up. Both
 * at once is an error (RFC 6750 section 2).
 */
export function identify({
  query,
  headers,
  authorizations,
  faults,
  answers,
}: {
  query: URLSearchParams
  headers: IncomingHttpHeaders
  authorizations: Authorizations
  faults: Pick<Faults, 'invalidToken' | 'endedAccess'>
  answers: Answers
}): Caller {
  const inQuery = query.getAll('access_token')
  const given = inQuery.length + (headers.authorization === undefined ? 0 : 1)
  if (given > 1)
    return refused(errorResponse(400, 'invalid_request', 'The access token is given more than once.'))
  const token = inQuery[0] ?? bearerOf(headers)
  const found = authorizations.presentAccessToken(token, { outlives: faults.endedAccess === 'valid' })
  if (found.kind === 'valid') return { kind: 'caller', authorization: found.authorization }
  const name = given === 0 ? 'none' : found.kind
  return refused(answers.guard(`token: ${name}`, () => invalidToken(faults.invalidToken)))
}

/** The token of the `Authorization` header (RFC 6750 section 2.1); empty if there is none. */
export function bearerOf(headers: IncomingHttpHeaders): string {
  return /^Bearer +(\S+)$/i.exec(headers.authorization ?? '')?.[1] ?? ''
}

/** The "invalid-token error response" of document section 7, whose shape the document does not show. */
export function invalidToken(shape: Faults['invalidToken']): SandboxResponse {
  const description = 'The access token is missing, expired or revoked.'
  const challenge = { 'www-authenticate': 'Bearer realm="sandbox", error="invalid_token"' }
  switch (shape) {
    case 'standard':
      return withHeaders(errorResponse(401, 'invalid_token', description), challenge)
    case 'bare401':
      return textResponse(401, '', 'invalid_token')
    case 'json400':
      return errorResponse(400, 'invalid_token', description)
    case 'challenge403':
      return withHeaders(textResponse(403, '', 'invalid_token'), challenge)
    case 'servicestack':
      return jsonResponse(
        401,
        { responseStatus: { errorCode: 'invalid_token', message: description } },
        'invalid_token',
      )
    case 'code400':
      return jsonResponse(
        400,
        { responseStatus: { errorCode: 'TokenExpired', message: description } },
        'invalid_token',
      )
  }
}

/** An error of the resource server; the document shows none, this has the form of OAuth's. */
export function errorResponse(status: number, error: string, description: string): SandboxResponse {
  return jsonResponse(status, { error, error_description: description }, error)
}

function refused(response: SandboxResponse): Caller {
  return { kind: 'refused', response }
}
