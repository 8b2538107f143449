import { ClientError } from 'openid-client'
import type { RefusedGrant } from '../config/oauth.ts'
import { EgressFailure } from '../egress.ts'
import { jsonObject } from '../json.ts'
import { Secret } from '../secret.ts'
import { quoteForeign } from './foreign-text.ts'

/** The tokens of a successful response (RFC 6749 section 5.1), checked and bounded. */
export interface GrantedTokens {
  accessToken: Secret
  refreshToken: Secret | null
  /** Life of the access token in seconds, 0 for one that is due at once. */
  lifeSeconds: number
  /** Epoch milliseconds, counted from the instant before the request was sent. */
  expiresAt: number
  /**
   * When the refresh token ends unless it is refreshed before, epoch milliseconds; null or absent where that is not
   * known. In a response without a new refresh token it is the end of the old one.
   */
  refreshExpiresAt?: number | null
  scope: string | null
  /** The registered callback, as the token endpoint names it (service document, section 2.3). */
  callback?: string | null
}

/** nginx refuses a header line of 8 KB by default, and `Authorization: Bearer` is a part of it. */
export const LARGE_TOKEN_BYTES = 7_168

/** A response as it came. */
export interface HttpResponse {
  status: number
  /** By lower-case name. */
  headers: Readonly<Record<string, string>>
  body: string
}

/** A response that reports an error, as a log may show it: of 300 and above, or one below with an error code (GitHub: 200). */
export interface ErrorAnswer {
  readonly status: number
  /** The OAuth error code (RFC 6749 section 5.2): 1 to 64 printable characters. null: there is none that can be read. */
  readonly code: string | null
  /** The response has no body. */
  readonly isEmpty: boolean
  /** `error_description`: at most 200 characters of ASCII, in which the secrets of the request are replaced. */
  readonly description: string | null
}

/** The result of a token request. Only `refused` means that the grant itself is dead. `reason` is for the log. */
export type TokenOutcome =
  | { kind: 'granted'; tokens: GrantedTokens }
  /** `invalid_grant`; for a refresh also what `meaningOfRefresh` says. */
  | { kind: 'refused'; reason: string; answer?: ErrorAnswer }
  /** The request was not sent, or the response says that nothing was done: the grant is still unused. */
  | {
      kind: 'unavailable'
      reason: string
      timedOut: boolean
      retryAfterSeconds: number | null
      /** The token endpoint works and rejects this grant alone; other grants are not affected. */
      ofThisGrant: boolean
      /** The token endpoint rejects this client, as far as this kind of request shows it (`Meaning`). */
      rejectsClient?: boolean
      /** Absent where none came. */
      answer?: ErrorAnswer
    }
  /** The request was sent and no readable response came: the grant may have been used up. */
  | {
      kind: 'in_doubt'
      reason: string
      timedOut: boolean
      /** Status of a response that reports a failure of the token endpoint, 500 to 599. */
      failedStatus?: number
      /** Absent where none came. */
      answer?: ErrorAnswer
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
/** No session lasts longer, so a later end is none. */
const MAX_REFRESH_LIFE_SECONDS = 31_536_000
const MAX_RETRY_AFTER_SECONDS = 60

// Read: before openid-client does.

/**
 * The response to a token request as openid-client accepts it. For an odd optional member openid-client would reject
 * the whole response, and with it the rotated refresh token. Throws `NoTokens` for a response without tokens; `secrets`
 * are those of the request.
 */
export function readTokens(response: HttpResponse, secrets: readonly string[]): Response {
  const noTokens = (fault?: string) => new NoTokens(response, { secrets, fault })
  if (response.status !== 200) throw noTokens()
  const body = parseObject(response.body)
  if (body === null) throw noTokens('unreadable')
  const { refresh_token, scope, token_type = null, expires_in, id_token: _unused, ...rest } = body
  if (typeof body.access_token !== 'string') throw noTokens('without an access token')
  // openid-client accepts DPoP tokens too, which must not be sent as bearer tokens.
  if (token_type !== null && !/^bearer$/i.test(String(token_type)))
    throw noTokens('with a token that is no bearer token')
  return parsedResponse({
    ...rest,
    token_type: 'bearer',
    expires_in: lifeSeconds(expires_in),
    ...(typeof refresh_token === 'string' && refresh_token !== '' ? { refresh_token } : {}),
    ...(typeof scope === 'string' ? { scope } : {}),
  })
}

/** A response of status 200 whose body is parsed already: openid-client reads it by `json` alone. */
function parsedResponse(parsed: object): Response {
  return Object.assign(new Response(), { json: async () => parsed })
}

/** The response to a revocation as openid-client accepts it. Throws `NoTokens` unless it reports success. */
export function readRevocation(response: HttpResponse, secrets: readonly string[]): Response {
  if (response.status >= 200 && response.status < 300) return new Response()
  throw new NoTokens(response, { secrets })
}

/** The response reports an error, or holds no tokens that can be used. */
export class NoTokens extends Error {
  readonly status: number
  readonly code: string | null
  readonly description: string | null
  readonly isEmpty: boolean
  /** Seconds from 0 to a minute; null where the response does not say. */
  readonly retryAfterSeconds: number | null

  constructor(
    { status, headers, body }: HttpResponse,
    { secrets = [], fault = '' }: { secrets?: readonly string[]; fault?: string | undefined } = {},
  ) {
    const { error, error_description: description } = parseObject(body) ?? {}
    const code = typeof error === 'string' && error !== '' ? error : null
    const to = status >= 300 && status < 400 ? placeOf(headers.location) : null
    const what = code !== null ? describeCode(code) : to !== null ? `to ${to}` : fault
    super(`the response was ${status}${what === '' ? '' : ` ${what}`}`)
    this.name = 'NoTokens'
    this.status = status
    this.code = code
    this.description =
      typeof description === 'string' && description !== '' ? quoteForeign(description, secrets) : null
    this.isEmpty = body === ''
    this.retryAfterSeconds = retryAfter(headers['retry-after'])
  }
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

/**
 * Life of the refresh token in seconds, by `refresh_expires_in` (Keycloak) or `refresh_token_expires_in`, the shorter
 * one; null unless one of them is positive. Keycloak writes 0 for one without an end.
 */
function refreshLifeSeconds(response: TokenResponse): number | null {
  const lives = [response.refresh_expires_in, response.refresh_token_expires_in].flatMap((given) => {
    const digits = typeof given === 'string' && /^\d+$/.test(given)
    const seconds = typeof given === 'number' || digits ? Number(given) : 0
    return seconds > 0 ? [Math.min(seconds, MAX_REFRESH_LIFE_SECONDS)] : []
  })
  return lives.length === 0 ? null : Math.min(...lives)
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
  refresh_expires_in?: unknown
  refresh_token_expires_in?: unknown
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
  if (token_type.toLowerCase() !== 'bearer') return inDoubt('the access token is no bearer token')
  const refreshSeconds = refreshLifeSeconds(response)
  return {
    kind: 'granted',
    tokens: {
      accessToken: new Secret(access_token),
      refreshToken: refresh_token === undefined ? null : new Secret(refresh_token),
      lifeSeconds: seconds,
      expiresAt: requestedAt + seconds * 1_000,
      refreshExpiresAt: refreshSeconds === null ? null : requestedAt + Math.ceil(refreshSeconds * 1_000),
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

/** As every registered code is written. Frameworks put `Not Found` there for any path while a server is updated. */
const OAUTH_CODE = /^[a-z_]{1,64}$/

/** Whether an error code says that the client is rejected, which concerns all users. */
export function isAboutClient({ code }: Pick<ErrorAnswer, 'code'>): boolean {
  return code !== null && CLIENT_ERRORS.has(code)
}

/** What errors in response to one kind of request mean. */
export interface Meaning {
  /** Whether a 4xx other than 429 says that the grant itself is dead. */
  isRefusal(answer: ErrorAnswer): boolean
  rejectsClient(answer: ErrorAnswer): boolean
}

/**
 * Of every request but a refresh. oauth2orize sends `invalid_grant` with 403 (RFC 6749 section 5.2). A 401 is about the
 * client, whatever its code: some servers have none of the usual ones for a wrong secret.
 */
export const USUAL_MEANING: Meaning = {
  isRefusal: ({ code }) => code === 'invalid_grant',
  rejectsClient: (answer) => answer.status === 401 || isAboutClient(answer),
}

/**
 * Of a refresh. It asks for no scope, so `invalid_scope` is about the grant: Keycloak says so when a consent is missing.
 * `shapes` are those of OAUTH_REFUSED_GRANT. A 401 can be the word for a dead grant here.
 */
export function meaningOfRefresh(shapes: readonly RefusedGrant[]): Meaning {
  return {
    isRefusal: ({ status, code, isEmpty }) =>
      code === 'invalid_grant' ||
      code === 'invalid_scope' ||
      shapes.some(
        (shape) => shape.status === status && (shape.code === null ? isEmpty : shape.code === code),
      ),
    rejectsClient: isAboutClient,
  }
}

/** What an error of openid-client's grant functions means; never `granted`. */
export function classifyFailure(
  error: unknown,
  meaning: Meaning = USUAL_MEANING,
): Exclude<TokenOutcome, { kind: 'granted' }> {
  const noResponse = findCause(error, NoTokenResponse)
  if (noResponse !== null) {
    const { message: reason, timedOut } = noResponse
    if (noResponse.sent) return { kind: 'in_doubt', reason, timedOut }
    return { kind: 'unavailable', reason, retryAfterSeconds: null, timedOut, ofThisGrant: false }
  }
  const noTokens = findCause(error, NoTokens)
  if (noTokens === null) return inDoubt(errorName(error))
  const { status, message: reason, retryAfterSeconds, isEmpty, description } = noTokens
  const code = noTokens.code !== null && PRINTABLE_CODE.test(noTokens.code) ? noTokens.code : null
  const answer = { status, code, isEmpty, description }
  // Some servers answer 200, or redirect to a page, whatever went wrong, also after they have acted.
  if (status < 400) return { ...inDoubt(reason), answer }
  // Gateways answer 500 to 504 for a request that they lost after the server had acted on it.
  if (status >= 500 && (status !== 503 || retryAfterSeconds === null)) {
    return { ...inDoubt(reason), failedStatus: status, answer }
  }
  const isDefinite = status < 500 && status !== 429
  if (isDefinite && meaning.isRefusal(answer)) return { kind: 'refused', reason: code ?? reason, answer }
  const namesGrant = code !== null && OAUTH_CODE.test(code) && !OF_ALL_GRANTS.has(code)
  return {
    kind: 'unavailable',
    reason,
    // 0 seconds ask for no wait.
    retryAfterSeconds: retryAfterSeconds === 0 ? null : retryAfterSeconds,
    timedOut: false,
    // A 401 may be about the client in any words.
    ofThisGrant: isDefinite && namesGrant && status !== 401,
    rejectsClient: meaning.rejectsClient(answer),
    answer,
  }
}

function inDoubt(reason: string): Extract<TokenOutcome, { kind: 'in_doubt' }> {
  return { kind: 'in_doubt', reason, timedOut: false }
}

/** Seconds from 0 to a minute, or null where the response does not say (RFC 9110 section 10.2.3). */
function retryAfter(header = ''): number | null {
  // Date.parse alone would read "-1" and "1.5" as dates.
  const isDate = header.endsWith(' GMT')
  const seconds = isDate
    ? (Date.parse(header) - Date.now()) / 1_000
    : /^\d+$/.test(header)
      ? Number(header)
      : NaN
  return Number.isNaN(seconds) ? null : Math.min(Math.max(seconds, 0), MAX_RETRY_AFTER_SECONDS)
}

/** The path of a redirect without its parameters, or null without one. */
function placeOf(location: string | undefined): string | null {
  if (location === undefined || !URL.canParse(location, 'http://localhost')) return null
  const [path = ''] = new URL(location, 'http://localhost').pathname.split(';')
  return path.slice(0, MAX_PLACE)
}

const MAX_PLACE = 100

const PRINTABLE_CODE = /^[\x20-\x7e]{1,64}$/

/** The code goes to the log: only the characters that RFC 6749 allows in it, and at most 64 of them. */
function describeCode(code: string): string {
  if (!PRINTABLE_CODE.test(code)) return 'with an unreadable error code'
  return code
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

function findCause<T>(error: unknown, type: abstract new (...args: never[]) => T): T | null {
  for (let at = error, depth = 0; at !== undefined && at !== null && depth < 6; depth += 1) {
    if (at instanceof type) return at
    at = at instanceof Error ? at.cause : null
  }
  return null
}
