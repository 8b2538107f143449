import { ClientError, ResponseBodyError, WWWAuthenticateChallengeError } from 'openid-client'
import { EgressFailure } from '../egress.ts'
import { jsonObject } from '../json.ts'
import { Secret } from '../secret.ts'

/** The tokens of a successful response (RFC 6749 section 5.1), checked and bounded. */
export interface GrantedTokens {
  accessToken: Secret
  refreshToken: Secret | null
  /** Life of the access token in seconds, 0 for one that is due at once. */
  lifeSeconds: number
  /** Epoch milliseconds, counted from the instant before the request was sent. */
  expiresAt: number
  scope: string | null
  /** The registered callback, as the token endpoint names it (service document, section 2.3). */
  callback?: string | null
}

/** The result of a token request. Only `refused` means that the grant itself is dead. `reason` is for the log. */
export type TokenOutcome =
  | { kind: 'granted'; tokens: GrantedTokens }
  /** A parsed OAuth `invalid_grant` (RFC 6749 section 5.2). */
  | { kind: 'refused'; reason: string }
  /** The request was not sent, or the response says that nothing was done: the grant is still unused. */
  | {
      kind: 'unavailable'
      reason: string
      timedOut: boolean
      retryAfterSeconds: number | null
      /** The token endpoint works and rejects this grant alone; other grants are not affected. */
      ofThisGrant: boolean
      /** The token endpoint rejects this client: no sign-in succeeds until an operator has changed something. */
      rejectsClient?: boolean
    }
  /** The request was sent and no readable response came: the grant may have been used up. */
  | {
      kind: 'in_doubt'
      reason: string
      timedOut: boolean
      /** Status of a response that reports a failure of the token endpoint, 500 to 599. */
      failedStatus?: number
    }

/** The token endpoint gave no readable response. `sent`: the request may have reached it. */
export class NoTokenResponse extends Error {
  readonly sent: boolean
  readonly timedOut: boolean

  constructor(sent: boolean, cause: unknown) {
    super(`${sent ? 'no readable response came' : 'the request was not sent'} (${codeOf(cause)})`, { cause })
    this.name = 'NoTokenResponse'
    this.sent = sent
    this.timedOut = cause instanceof Error && /Timeout/.test(cause.name)
  }
}

/** Life of an access token when the response does not say (service document, section 8). */
const DEFAULT_LIFE_SECONDS = 3_600
const MAX_LIFE_SECONDS = 86_400
const MAX_RETRY_AFTER_SECONDS = 60

// Normalize: before openid-client reads the response.

/**
 * The body of a 200 response as openid-client accepts it, or null where the text is not a JSON object. For an odd
 * optional member openid-client rejects the whole response, and with it the rotated refresh token.
 */
export function normalizeTokenResponse(text: string): Record<string, unknown> | null {
  const body = parseObject(text)
  if (body === null) return null
  const { refresh_token, scope, token_type, expires_in, id_token: _unused, ...rest } = body
  return {
    ...rest,
    token_type: token_type === undefined || token_type === null ? 'bearer' : token_type,
    expires_in: lifeSeconds(expires_in),
    ...(typeof refresh_token === 'string' && refresh_token !== '' ? { refresh_token } : {}),
    ...(typeof scope === 'string' ? { scope } : {}),
  }
}

/** Whether a body has an error code (RFC 6749 section 5.2), whatever its content type says. */
export function hasErrorCode(text: string): boolean {
  const error = parseObject(text)?.error
  return typeof error === 'string' && error !== ''
}

/** Some servers begin with a byte order mark, which JSON.parse refuses (RFC 8259 section 8.1). */
function parseObject(text: string): Record<string, unknown> | null {
  return jsonObject(text.replace(/^\ufeff/, ''))
}

/**
 * Life of an access token in seconds, from an `expires_in` of any type. Missing or null is an hour, a string of
 * digits is read, and more than a day is a day. Zero, negative or unreadable is 0: due at once.
 */
function lifeSeconds(expiresIn: unknown): number {
  if (expiresIn === undefined || expiresIn === null) return DEFAULT_LIFE_SECONDS
  const digits = typeof expiresIn === 'string' && /^\d+$/.test(expiresIn)
  const seconds = typeof expiresIn === 'number' || digits ? Number(expiresIn) : 0
  if (!(seconds > 0)) return 0
  return Math.floor(Math.min(seconds, MAX_LIFE_SECONDS))
}

// Validate: the tokens of a response, whichever way it came.

/** The members of a successful response that are used; `expires_in` in seconds. */
interface TokenResponse {
  access_token: string
  /** Bearer where it is absent. */
  token_type?: string | undefined
  refresh_token?: string | undefined
  expires_in?: number | undefined
  scope?: string | undefined
  callback?: unknown
}

/**
 * The tokens of a response to a request of `requestedAt` (epoch milliseconds). The response counts as unreadable
 * if its token is not a bearer token or cannot be part of a header (RFC 6750 section 2.1).
 */
export function acceptTokens(
  response: TokenResponse,
  requestedAt: number,
): Extract<TokenOutcome, { kind: 'granted' | 'in_doubt' }> {
  const {
    access_token,
    token_type = 'bearer',
    refresh_token,
    expires_in: seconds = 0,
    scope,
    callback,
  } = response
  if (!/^[\x21-\x7e]+$/.test(access_token)) {
    return inDoubt('the access token holds characters outside visible ASCII')
  }
  // openid-client accepts DPoP tokens too, which must not be sent as bearer tokens.
  if (token_type.toLowerCase() !== 'bearer') return inDoubt('the access token is no bearer token')
  return {
    kind: 'granted',
    tokens: {
      accessToken: new Secret(access_token),
      refreshToken: refresh_token === undefined ? null : new Secret(refresh_token),
      lifeSeconds: seconds,
      expiresAt: requestedAt + seconds * 1_000,
      scope: scope ?? null,
      callback: typeof callback === 'string' ? callback : null,
    },
  }
}

/** The members of a successful response in a URL fragment (RFC 6749 section 4.2.2), as a browser read them. */
interface FragmentResponse {
  access_token?: string
  token_type?: string
  expires_in?: unknown
  scope?: string
}

/**
 * The token of a fragment response that came at `receivedAt` (epoch milliseconds), or null where it has none that
 * can be used. The token flow gives no refresh token (service document, section 5.4).
 */
export function acceptFragment(response: FragmentResponse, receivedAt: number): GrantedTokens | null {
  const { access_token, token_type, expires_in, scope } = response
  if (access_token === undefined) return null
  const outcome = acceptTokens(
    { access_token, token_type, expires_in: lifeSeconds(expires_in), scope },
    receivedAt,
  )
  return outcome.kind === 'granted' ? outcome.tokens : null
}

// Classify: everything that is no success.

/** Errors that concern this server's registration, and so every user (RFC 6749 section 5.2). */
const CLIENT_ERRORS: ReadonlySet<string> = new Set(['invalid_client', 'unauthorized_client'])
const OF_ALL_GRANTS: ReadonlySet<string> = new Set([
  ...CLIENT_ERRORS,
  'temporarily_unavailable',
  'server_error',
  'slow_down',
])

/** What an error of openid-client's grant functions means; never `granted`. */
export function classifyFailure(error: unknown): Exclude<TokenOutcome, { kind: 'granted' }> {
  const noResponse = findCause(error, NoTokenResponse)
  if (noResponse !== null) {
    const { message: reason, timedOut } = noResponse
    if (noResponse.sent) return { kind: 'in_doubt', reason, timedOut }
    return { kind: 'unavailable', reason, retryAfterSeconds: null, timedOut, ofThisGrant: false }
  }
  const response = responseOf(error)
  if (response === null) return inDoubt(errorName(error))
  const { status } = response
  if (status < 300) return inDoubt(`the response was ${status}, unreadable`)
  const code = error instanceof ResponseBodyError ? error.error : null
  if (code === 'invalid_grant' && (status === 400 || status === 401)) return { kind: 'refused', reason: code }
  const reason = `the response was ${status}${code === null ? '' : ` ${describeCode(code)}`}`
  const retryAfterSeconds = retryAfter(response)
  // Gateways answer 500 to 504 for a request that they lost after the server had acted on it.
  if (status >= 500 && (status !== 503 || retryAfterSeconds === null)) {
    return { ...inDoubt(reason), failedStatus: status }
  }
  return {
    kind: 'unavailable',
    reason,
    // 0 seconds ask for no wait.
    retryAfterSeconds: retryAfterSeconds === 0 ? null : retryAfterSeconds,
    timedOut: false,
    ofThisGrant: code !== null && status >= 400 && status <= 403 && !OF_ALL_GRANTS.has(code),
    rejectsClient: code !== null && CLIENT_ERRORS.has(code),
  }
}

function inDoubt(reason: string): Extract<TokenOutcome, { kind: 'in_doubt' }> {
  return { kind: 'in_doubt', reason, timedOut: false }
}

/** Seconds from 0 to a minute, or null where the response does not say (RFC 9110 section 10.2.3). */
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

/** The code goes to the log: only the characters that RFC 6749 allows in it, and at most 64 of them. */
function describeCode(code: string): string {
  if (!/^[\x20-\x7e]{1,64}$/.test(code)) return 'with an unreadable error code'
  return CLIENT_ERRORS.has(code) ? `${code}: check CLIENT_ID and CLIENT_SECRET` : code
}

/** A name that a program gave the failure: it holds no text of the other side, so it may be logged. */
function codeOf(cause: unknown): string {
  if (!(cause instanceof Error)) return 'unknown'
  if (cause instanceof EgressFailure) return cause.message
  const { code } = cause as NodeJS.ErrnoException
  return typeof code === 'string' ? code : cause.name
}

function errorName(error: unknown): string {
  if (error instanceof ClientError && error.code !== undefined) return error.code
  return error instanceof Error ? error.name : 'unknown'
}

function responseOf(error: unknown): Response | null {
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
