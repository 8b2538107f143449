import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Method } from '../config/operation.ts'
import { problem } from '../errors.ts'
import { problemOrPage } from '../http/openapi.ts'
import { parameterAt } from '../http/problems.ts'
import { queryIn } from '../http/query.ts'
import { WAC } from '../paths.ts'

/** The request that a validated browser request becomes at the resource server, still without a token. */
export interface OutgoingRequest {
  /** As the metrics name it. */
  operation: string
  /** null if the operation belongs to no account. */
  wac: string | null
  /** What it reads or changes, for the log; null if the request does not say. */
  targetId: string | null
  /** Declared as readable without a session, by the application's own token. */
  application: boolean
  method: Method | 'HEAD'
  /** Begins with `/`, built from validated parts, with its query; appended to the path of `BASE_URL`. */
  path: string
  accept: string
  /** null: none is sent. */
  contentType: string | null
  body: Buffer | null
  /** Bytes of the browser's body, which is sent as it comes and so cannot be sent again; null: `body` says what is sent. */
  uploadLength: number | null
  /** A script type is allowed in the response. */
  jsonp: boolean
  /** The resource server chooses the type of the response. */
  anyType: boolean
}

/** One call of the resource server: an outgoing request with one token. */
export interface Call {
  outgoing: OutgoingRequest
  /** The browser's request, for its headers and its end; of its body only an upload is read. */
  request: IncomingMessage
  response: ServerResponse
  /** To be called before the head is written: from then on Fastify sends nothing. */
  hijack(): void
  /** A ready `Bearer …` value, also if the token goes into the query. */
  authorization: string
  /** Whose share of the connections it uses. */
  holder: string
  requestId: string
  /** Whether the call may leave now although it has waited. */
  isProven(): boolean
  /** Asks the store whether it may leave with this token. */
  prove(): Promise<boolean>
  /** Sent instead of the browser's (W3C Trace Context); null: that goes on. tracing/spans.ts sets it, as a copy costs 5 µs. */
  traceparent: string | null
}

/** The configured default account code and the accounts that are allowed; null if not configured. */
export interface AccountRules {
  default: string | null
  allowed: ReadonlySet<string> | null
}

/** The account code of a request: the given one, else the configured default. Throws `invalid_request`. */
export function readWac(given: string | undefined, accounts: AccountRules): string {
  const wac = given ?? accounts.default
  if (wac === null)
    throw problem('invalid_request', 'No account code: wac is neither given nor configured (WAC).')
  if (!WAC.test(wac))
    throw problem('invalid_request', 'wac must be 1 to 64 letters, digits, "-", "_", "." or "~".')
  return wac
}

/** Throws `wac_not_allowed` for an account outside `WAC_ALLOWED`. */
export function checkAccount(wac: string | null, { allowed }: AccountRules): void {
  if (wac !== null && allowed !== null && !allowed.has(wac)) throw problem('wac_not_allowed')
}

/** One parameter of a query. */
export interface QueryParameter {
  /** Decoded. */
  name: string
  value: string
  /** As received but for semicolons, which are encoded: safe to put into a request target. */
  raw: string
}

/** What a page makes of an object, or of a list of them, that it puts into an address. */
const OBJECTS_AS_TEXT = /^\[object Object\](?:,\[object Object\])*$/

/** The parameters of a URL's query, in their order. Throws `invalid_request`, naming the parameter, if one is malformed. */
export function queryParameters(url: string): QueryParameter[] {
  const query = queryIn(url)
  if (query === '') return []
  return query
    .split('&')
    .filter((raw) => raw !== '')
    .map((raw, position) => {
      const [rawName, rawValue] = split(raw)
      const parameter = parameterAt(position, rawName)
      const name = decode(rawName, parameter)
      if (/\p{Cc}/u.test(name))
        throw problem('invalid_request', `${parameter} has a control character in its name.`)
      const value = decode(rawValue, parameter)
      if (OBJECTS_AS_TEXT.test(value))
        throw problem('invalid_request', `${parameter} is ${value}: give it a text or a number.`)
      // A debugging aid of ServiceStack, which responds with the headers of the request: with the token.
      if (isWord(name, 'debug') && isWord(value, 'requestinfo'))
        throw problem('invalid_request', `${parameter} is not allowed.`)
      // Some servers separate parameters at semicolons: encoded, a semicolon hides no parameter from us.
      return { name, value, raw: replaceEach(raw, ';', '%3B') }
    })
}

function isWord(text: string, word: string): boolean {
  return text.trim().toLowerCase() === word
}

/** As `replaceAll`, which takes five times as long where there are thousands. */
function replaceEach(text: string, sought: string, replacement: string): string {
  return text.includes(sought) ? text.split(sought).join(replacement) : text
}

function split(raw: string): [string, string] {
  const at = raw.indexOf('=')
  return at < 0 ? [raw, ''] : [raw.slice(0, at), raw.slice(at + 1)]
}

function decode(text: string, parameter: string): string {
  if (/[^\x21-\x7e]|#/.test(text))
    throw problem('invalid_request', `${parameter} holds a character that must be encoded.`)
  try {
    return decodeURIComponent(replaceEach(text, '+', ' '))
  } catch {
    throw problem('invalid_request', `${parameter} holds a percent sign that encodes nothing.`)
  }
}

/** Pattern of texts and names in a query. */
export const NO_CONTROLS = '^[^\\x00-\\x1f\\x7f-\\x9f]*$'

/** Schema of an account code in a path. */
export const WAC_SCHEMA = { type: 'string', pattern: WAC.source, examples: ['DEMO'] }

/**
 * What `forwardProblem` refers to: the resource server's own errors are relayed as they are. Without a type it is anything;
 * with the property, code that reads the `code` of an error compiles in clients that join the types of all errors.
 */
export const PLATFORM_ERROR = {
  $id: 'PlatformError',
  description: 'An error of the resource server, byte for byte. Its document does not show the shape.',
  properties: { code: {} },
}

/** A response of a type that no declaration names. */
export const ANY_TYPE = { '*/*': { schema: { description: 'Another type that the resource server chose.' } } }

/** A problem of a forwarded operation, or the resource server's own response with the same status. */
export function forwardProblem(description: string) {
  const response = problemOrPage(description)
  return {
    ...response,
    content: {
      ...response.content,
      'application/json': { schema: { $ref: 'PlatformError#' } },
      '*/*': { schema: { $ref: 'PlatformError#' } },
    },
  }
}

/** The problems that every forwarded operation shares. */
export const FORWARD_PROBLEMS = {
  400: forwardProblem('invalid_request'),
  401: forwardProblem('login_required'),
  403: forwardProblem('cross_origin, wac_not_allowed, upstream_refused'),
  502: forwardProblem('upstream_unavailable'),
  503: forwardProblem(
    'store_unavailable, authorization_server_unavailable, shutting_down; upstream_unavailable where too many updates wait',
  ),
  504: forwardProblem('upstream_timeout'),
  default: forwardProblem(
    "upstream_error, with the resource server's own status; or the resource server's own response",
  ),
}
