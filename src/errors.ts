import { PATHS } from './paths.ts'

/**
 * Every error that a browser can receive: stable code, HTTP status, fixed title. A code that is no longer used
 * never gets another meaning.
 */
const TABLE = {
  invalid_request: { status: 400, title: 'The request is not valid' },
  invalid_return_to: { status: 400, title: 'The return address is not valid' },
  login_failed: { status: 400, title: 'The sign-in could not be completed' },
  login_required: { status: 401, title: 'Sign-in is required' },
  invalid_credentials: { status: 401, title: 'User name or password is wrong' },
  cross_origin: { status: 403, title: 'The request comes from another origin' },
  wac_not_allowed: { status: 403, title: 'This account code is not allowed here' },
  upstream_refused: { status: 403, title: 'The resource server refused the access token' },
  not_found: { status: 404, title: 'There is nothing at this address' },
  method_not_allowed: { status: 405, title: 'This method is not allowed here' },
  not_acceptable: { status: 406, title: 'None of the accepted formats can be served' },
  request_timeout: { status: 408, title: 'The request took too long to arrive' },
  length_required: { status: 411, title: 'The length of the request body must be announced' },
  payload_too_large: { status: 413, title: 'The request body is too large' },
  uri_too_long: { status: 414, title: 'The address is too long' },
  unsupported_media_type: { status: 415, title: 'The type of the request body is not accepted' },
  rate_limited: { status: 429, title: 'Too many requests' },
  headers_too_large: { status: 431, title: 'The request headers are too large' },
  internal_error: { status: 500, title: 'Something went wrong here' },
  upstream_error: { status: 502, title: 'The platform answered with an error' },
  upstream_unavailable: { status: 502, title: 'The platform cannot be used now' },
  store_unavailable: { status: 503, title: 'The session store cannot be used now' },
  token_refreshed: { status: 503, title: 'The access token was renewed: send the request again' },
  authorization_server_unavailable: { status: 503, title: 'The authorization server cannot be used now' },
  shutting_down: { status: 503, title: 'The server is stopping' },
  upstream_timeout: { status: 504, title: 'The platform took too long to answer' },
} as const

export type ProblemCode = keyof typeof TABLE

export const PROBLEM_CODES = Object.keys(TABLE) as readonly ProblemCode[]

interface ProblemOptions {
  /** Fixed text, or text that names a parameter or member. Never text of an upstream or of a cause. */
  detail?: string
  /** For `upstream_error`, which carries the resource server's own status, and where `Retry-After` helps (503). */
  status?: number
  headers?: Record<string, string>
  /** Further members of the body, for example `loginUrl`. */
  members?: Record<string, string>
  /** For the log, never for the response. */
  cause?: unknown
  /** The likely cause in words, for the log, never for the response. */
  reason?: string
  /** True of an answer that is part of normal use although its status is 5xx: it is no fault in log, metrics or traces. */
  isExpected?: boolean
}

/** An error that is sent as `application/problem+json` (RFC 9457). Made by `problem()`. */
export class Problem extends Error {
  readonly code: ProblemCode
  readonly status: number
  readonly title: string
  readonly detail: string | undefined
  readonly reason: string | undefined
  readonly isExpected: boolean
  readonly headers: Record<string, string>
  readonly members: Record<string, string>

  constructor(code: ProblemCode, options: ProblemOptions = {}) {
    super(options.detail ?? TABLE[code].title, { cause: options.cause })
    this.name = 'Problem'
    this.code = code
    this.status = options.status ?? TABLE[code].status
    this.title = TABLE[code].title
    this.detail = options.detail
    this.reason = options.reason
    this.isExpected = options.isExpected ?? false
    this.headers = { ...EXTRA_HEADERS[code], ...options.headers }
    this.members = { ...EXTRA_MEMBERS[code], ...options.members }
  }

  /** The body of the response, a JSON text. */
  body(requestId: string): string {
    return JSON.stringify({
      type: `urn:bff:problem:${this.code}`,
      title: this.title,
      status: this.status,
      detail: this.detail ?? usualDetail(this),
      code: this.code,
      requestId,
      ...this.members,
    })
  }
}

/** The detail of a body whose problem has none of its own. Most pages have advice for their user instead. */
export function usualDetail({ code, title, headers }: Problem): string {
  if (code === 'store_unavailable')
    return "The server cannot use its session store now. Your session may still be valid. The server's log has the cause."
  if (code === 'method_not_allowed' && headers.allow !== undefined)
    return `Use ${either(headers.allow.split(', '))}.`
  return `${title}.`
}

// RFC 9110 section 11.6.1 requires a challenge with each 401. No browser prompts for this scheme.
const EXTRA_HEADERS: Partial<Record<ProblemCode, Record<string, string>>> = {
  login_required: { 'www-authenticate': 'Session realm="bff"' },
  invalid_credentials: { 'www-authenticate': 'Session realm="bff"' },
}

const EXTRA_MEMBERS: Partial<Record<ProblemCode, Record<string, string>>> = {
  login_required: { loginUrl: PATHS.login },
}

/** The words of a list of choices in a detail: `A, B or C`. `Intl.ListFormat` would cost each start 5 to 50 ms. */
export function either(choices: readonly string[]): string {
  const others = choices.slice(0, -1).join(', ')
  return [others, choices.at(-1)].filter(Boolean).join(' or ')
}

/** An error of the table, to throw. Text as `options` is its detail. */
export function problem(code: ProblemCode, options: ProblemOptions | string = {}): Problem {
  return new Problem(code, typeof options === 'string' ? { detail: options } : options)
}

/** A 503 with `Retry-After`, whole seconds, at least 1. */
export function unavailable(
  code: 'store_unavailable' | 'authorization_server_unavailable',
  retryAfterSeconds: number,
  options: Pick<ProblemOptions, 'cause' | 'members' | 'detail' | 'reason' | 'isExpected'> = {},
): Problem {
  const seconds = Math.max(1, Math.ceil(retryAfterSeconds))
  return new Problem(code, { ...options, headers: { 'retry-after': String(seconds) } })
}
