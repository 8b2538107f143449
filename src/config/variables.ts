import { EGRESS_PROXY, NO_PROXY_LIST } from './egress.ts'
import {
  ADDRESS,
  CERTIFICATES,
  HOST,
  inAnyCase,
  type Kind,
  listOf,
  mapped,
  matching,
  NAMED_VALUES,
  NETWORK,
  ORIGIN,
  oneOf,
  orWord,
  PAGE_BUILD,
  PRIVATE_KEY,
  RATIO,
  SCOPE,
  WAC,
  WAC_AND_FLUX,
  wholeNumber,
} from './kinds.ts'
import {
  AUTHORIZATION_ENDPOINT,
  AUTHORIZE_PARAMETERS,
  END_SESSION_ENDPOINT,
  EXACT_URL,
  REFUSED_GRANTS,
  TOKEN_ENDPOINT,
} from './oauth.ts'
import { OPERATIONS } from './operations-file.ts'
import { CSP_SOURCES, PERMISSIONS_POLICY } from './page-policy.ts'
import { REDIS_TARGET } from './redis-url.ts'
import { SECRET, SECRET_HEADERS, SESSION_SECRETS } from './secrets.ts'
import { FIXED_HEADERS, TOKEN_SHAPES } from './upstream.ts'

/** The flows that begin with a redirect to the authorization server. The name of each is its `response_type`. */
export const REDIRECT_FLOWS = ['code', 'token'] as const

export type RedirectFlow = (typeof REDIRECT_FLOWS)[number]

/** The flows that start a user's session. Each besides `code` has a file in login/, which login/routes.ts lists. */
export const SESSION_FLOWS = [...REDIRECT_FLOWS, 'password'] as const

export type SessionFlow = (typeof SESSION_FLOWS)[number]

type Flow = SessionFlow | 'client'

/** The flows that OAUTH_FLOWS may name, each with its warning at start. */
export const FLOWS: Readonly<Record<Flow, string | null>> = {
  code: null,
  token: 'RFC 9700 section 2.1.2 advises against it: tokens pass through the browser and cannot be refreshed',
  password: 'RFC 9700 section 2.4 forbids it: this server sees the passwords of users',
  client: 'data is read without a user, see RFC 9700 section 4.15; CLIENT_FLUX_ALLOWED says what',
}

/** One variable of the environment. `T` is the type of its value. */
interface Variable<T> {
  readonly kind: Kind<T>
  readonly required: boolean
  /** Read like a given text. null: an unset variable is null. */
  readonly default: string | null
  readonly secret: boolean
  readonly meaning: string
}

function required<T>(kind: Kind<T>, meaning: string): Variable<T> {
  return { kind, required: true, default: null, secret: false, meaning }
}

function withDefault<T>(text: string, kind: Kind<T>, meaning: string): Variable<T> {
  return { kind, required: false, default: text, secret: false, meaning }
}

function optional<T>(kind: Kind<T>, meaning: string): Variable<T | null> {
  return { kind, required: false, default: null, secret: false, meaning }
}

function secret<T>(variable: Variable<T>): Variable<T> {
  return { ...variable, secret: true }
}

/** More than a year is a mistake. Below it, every timer and instant is an exact number. */
const YEAR_SECONDS = 31_536_000
/** A third of the longest accepted token life (86400): refreshing earlier has no effect. */
const MAX_REFRESH_AHEAD_SECONDS = 28_800

const asSet = <T>(values: readonly T[]): ReadonlySet<T> => new Set(values)

const PRINTABLE = matching(/^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/, 'printable ASCII text')

/** Every variable that the server reads. The parser, the documentation and its tests use this table. */
export const TABLE = {
  BASE_URL: required(ADDRESS, 'address of the resource server'),
  AUTH_URL: required(ADDRESS, 'address of the authorization server'),
  PUBLIC_URL: required(ORIGIN, 'the one origin that the browser sees'),
  CLIENT_ID: required(PRINTABLE, 'identifier of the registered client'),
  CLIENT_SECRET: secret(required(SECRET, 'secret of the registered client')),
  SESSION_SECRET: secret(
    required(
      SESSION_SECRETS,
      'signs session cookies and seals tokens; the first is in use, all are accepted',
    ),
  ),

  OAUTH_AUTHORIZE_URL: optional(
    AUTHORIZATION_ENDPOINT,
    'authorization endpoint (default: AUTH_URL/oauth/authorize)',
  ),
  OAUTH_AUTHORIZE_PARAMS: optional(
    AUTHORIZE_PARAMETERS,
    'further parameters of the authorization request, as a query string',
  ),
  OAUTH_TOKEN_URL: optional(TOKEN_ENDPOINT, 'token endpoint (default: AUTH_URL/oauth/token)'),
  OAUTH_CLIENT_AUTH: withDefault(
    'post',
    oneOf('post', 'basic'),
    'how CLIENT_SECRET goes to the token and the revocation endpoint: in the form, or by HTTP Basic',
  ),
  OAUTH_REVOCATION_URL: optional(
    EXACT_URL,
    'revocation endpoint (RFC 7009), used at sign-out and when an operator ends a session; not when a new sign-in replaces one',
  ),
  OAUTH_END_SESSION_URL: optional(
    END_SESSION_ENDPOINT,
    'where users sign out at the authorization server too; a sign-out leads there',
  ),
  OAUTH_ISSUER: optional(EXACT_URL, 'issuer that an `iss` in the callback must equal (RFC 9207)'),
  OAUTH_SCOPE: optional(SCOPE, 'scope to ask for (default: BASE_URL)'),
  OAUTH_FLOWS: withDefault(
    'code',
    mapped(listOf(oneOf(...(Object.keys(FLOWS) as Flow[]))), asSet),
    'ways to obtain a token; all but code are discouraged (RFC 9700)',
  ),
  CLIENT_FLUX_ALLOWED: optional(
    orWord('*', mapped(listOf(WAC_AND_FLUX), asSet)),
    'what may be read without a session; required with the client flow',
  ),
  OAUTH_REDIRECT: withDefault(
    'per-login',
    oneOf('per-login', 'fixed'),
    'a callback address for each sign-in, or one for all',
  ),
  OAUTH_PKCE: withDefault('S256', oneOf('S256', 'off'), 'PKCE (RFC 7636)'),
  OAUTH_REFUSED_GRANT: optional(
    REFUSED_GRANTS,
    'further answers of the token endpoint that mean: this refresh token is dead, so the session ends',
  ),
  OAUTH_REUSE_SECONDS: withDefault(
    '0',
    wholeNumber(0, 3_600),
    'so long the authorization server grants a used refresh token again (its grace period, or 3600 if it does not rotate)',
  ),
  TOKEN_TIMEOUT_MS: withDefault(
    '10000',
    wholeNumber(100, 60_000),
    'time to the full response of the token endpoint; a later response to a refresh is still stored',
  ),

  SESSION_STORE: withDefault(
    'redis',
    oneOf('redis', 'memory'),
    'where sessions live; memory: this process, lost at exit',
  ),
  REDIS_URL: secret(optional(REDIS_TARGET, 'address of Redis; required unless SESSION_STORE=memory')),
  REDIS_SENTINEL_PASSWORD: secret(optional(SECRET, 'password of the Sentinels')),
  REDIS_CA_FILE: optional(CERTIFICATES, "certificate authorities for Redis (default: the system's)"),
  REDIS_CERT_FILE: optional(CERTIFICATES, 'client certificate for Redis'),
  REDIS_KEY_FILE: optional(PRIVATE_KEY, 'private key of REDIS_CERT_FILE'),
  REDIS_PREFIX: withDefault(
    'bff:',
    matching(/^[A-Za-z0-9_.:/-]{1,64}$/, '1 to 64 of `A-Z a-z 0-9 _ . : / -`'),
    'begins the name of every key',
  ),

  SESSION_IDLE_SECONDS: withDefault(
    '7200',
    wholeNumber(1, YEAR_SECONDS),
    'a session ends after this long without use',
  ),
  SESSION_MAX_SECONDS: withDefault(
    '43200',
    wholeNumber(1, YEAR_SECONDS),
    'a session ends this long after sign-in',
  ),
  SESSION_BINDING: withDefault(
    'auto',
    oneOf('auto', 'off'),
    'whether sessions are bound to the device, where the browser can and over https',
  ),
  SESSION_CACHE_MS: withDefault(
    '1000',
    wholeNumber(0, 10_000),
    'how long a replica serves a session from memory before it asks the store again; 0: each request asks',
  ),
  STORE_WAIT_MS: withDefault(
    '4000',
    wholeNumber(0, 10_000),
    'how long a read of /flux or /data waits for a store that is away; 0: 503 at once',
  ),
  REFRESH_AHEAD_SECONDS: withDefault(
    '300',
    wholeNumber(0, MAX_REFRESH_AHEAD_SECONDS),
    'refresh in the background this long before expiry',
  ),
  REFRESH_THRESHOLD_SECONDS: withDefault(
    '30',
    wholeNumber(0, MAX_REFRESH_AHEAD_SECONDS),
    'a request refreshes first when the token has less left',
  ),
  REFRESH_CONCURRENCY: withDefault(
    '64',
    wholeNumber(1, 4096),
    'token requests in flight, per process, at most; the number follows the responses and begins at 8',
  ),

  WAC: optional(WAC, 'account code for routes that name none'),
  WAC_ALLOWED: optional(mapped(listOf(WAC), asSet), 'account codes that may be used (default: any)'),
  OPERATIONS_FILE: optional(OPERATIONS, 'declares further operations of the resource server'),
  UPSTREAM_TOKEN_IN: withDefault(
    'header',
    oneOf('header', 'query'),
    'where the access token goes in a request to the resource server',
  ),
  UPSTREAM_HEADERS: secret(
    optional(
      FIXED_HEADERS,
      'header fields of each call of the resource server, for example a key or a version',
    ),
  ),
  UPSTREAM_INVALID_TOKEN: optional(TOKEN_SHAPES, 'further shapes of the response to an invalid access token'),
  UPSTREAM_VIA: withDefault(
    'on',
    mapped(oneOf('on', 'off'), (text) => text === 'on'),
    'off leaves Via out of calls of the resource server: some servers compress nothing for a request that has it',
  ),
  UPSTREAM_TIMEOUT_MS: withDefault(
    '30000',
    wholeNumber(100, 600_000),
    "time to the resource server's headers and between body chunks",
  ),
  BODY_LIMIT_BYTES: withDefault(
    '65536',
    wholeNumber(256, 10_485_760),
    'largest body of UpdateSite or a declared operation',
  ),

  HTTPS_PROXY: secret(optional(EGRESS_PROXY, 'proxy for https requests to the platform')),
  HTTP_PROXY: secret(optional(EGRESS_PROXY, 'proxy for http requests to the platform')),
  NO_PROXY: optional(NO_PROXY_LIST, 'hosts of the platform that are reached without a proxy'),

  HOST: withDefault('0.0.0.0', HOST, 'address to listen on'),
  PORT: withDefault('3000', wholeNumber(0, 65_535), 'port of the server; 0 picks one and prints it'),
  OPS_PORT: withDefault('9464', wholeNumber(0, 65_535), 'port of health and metrics; 0 turns them off'),
  TRUST_PROXY: optional(
    listOf(NETWORK),
    'proxies whose X-Forwarded-For, X-Request-Id and traceparent are believed',
  ),
  LOGIN_RATE_PER_MINUTE: withDefault(
    '300',
    wholeNumber(0, 1_000_000),
    'sign-ins begun in a minute from one client address, and as many completed; 0 is off',
  ),
  STATIC_DIR: optional(PAGE_BUILD, 'build of the single-page app to serve'),
  STATIC_CSP: optional(CSP_SOURCES, "sources to add to the page's Content-Security-Policy"),
  STATIC_REFERRER_POLICY: withDefault(
    'same-origin',
    oneOf(
      'same-origin',
      'no-referrer',
      'origin',
      'strict-origin',
      'strict-origin-when-cross-origin',
      'origin-when-cross-origin',
      'no-referrer-when-downgrade',
    ),
    "the page's Referrer-Policy",
  ),
  STATIC_PERMISSIONS_POLICY: optional(
    PERMISSIONS_POLICY,
    "replaces the page's Permissions-Policy (default: nothing is permitted)",
  ),
  ACCESS_LOG: withDefault('errors', oneOf('errors', 'writes', 'all', 'off'), 'which requests are logged'),
  LOG_LEVEL: withDefault(
    'info',
    oneOf('trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'),
    'least severe log level that is written',
  ),
  KEEP_ALIVE_SECONDS: withDefault(
    '72',
    wholeNumber(1, 3600),
    'how long a connection without a request stays open: longer than in the reverse proxy',
  ),
  SHUTDOWN_SECONDS: withDefault(
    '20',
    wholeNumber(1, 3600),
    'time to finish open requests after a stop signal',
  ),
  SHUTDOWN_DELAY_SECONDS: withDefault(
    '0',
    wholeNumber(0, 300),
    'go on serving this long after a stop signal, while /readyz is 503',
  ),

  OTEL_EXPORTER_OTLP_ENDPOINT: optional(
    ADDRESS,
    'collector that receives traces by OTLP over HTTP, at this URL with /v1/traces; unset: no tracing',
  ),
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: optional(ADDRESS, 'the same as a whole URL, to which nothing is added'),
  OTEL_EXPORTER_OTLP_PROTOCOL: withDefault(
    'http/protobuf',
    oneOf('http/protobuf', 'http/json'),
    'form of the traces',
  ),
  OTEL_EXPORTER_OTLP_HEADERS: secret(
    optional(SECRET_HEADERS, 'header fields of each export, for example an API key of the collector'),
  ),
  OTEL_EXPORTER_OTLP_CERTIFICATE: optional(
    CERTIFICATES,
    "certificate authorities for the collector (default: the system's)",
  ),
  OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: optional(CERTIFICATES, 'client certificate for the collector'),
  OTEL_EXPORTER_OTLP_CLIENT_KEY: optional(
    PRIVATE_KEY,
    'private key of OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE',
  ),
  OTEL_SERVICE_NAME: optional(PRINTABLE, 'name of this service in traces'),
  OTEL_RESOURCE_ATTRIBUTES: optional(NAMED_VALUES, 'attributes of this process in its traces'),
  OTEL_TRACES_SAMPLER: withDefault(
    'parentbased_always_on',
    oneOf(
      'parentbased_always_on',
      'parentbased_always_off',
      'parentbased_traceidratio',
      'always_on',
      'always_off',
      'traceidratio',
    ),
    'which traces are exported',
  ),
  OTEL_TRACES_SAMPLER_ARG: optional(RATIO, 'share of the traces for the two samplers by ratio (default: 1)'),
  OTEL_TRACES_EXPORTER: withDefault('otlp', oneOf('otlp', 'none'), 'none turns tracing off'),
  OTEL_SDK_DISABLED: withDefault(
    'false',
    inAnyCase(mapped(oneOf('true', 'false'), (text) => text === 'true')),
    'true turns tracing off',
  ),

  ALLOW_INSECURE_HTTP: withDefault(
    'false',
    mapped(oneOf('true', 'false'), (text) => text === 'true'),
    'true permits http: off loopback',
  ),
} as const

type Table = typeof TABLE

/** The values of all variables. */
export type Values = { readonly [Name in keyof Table]: Table[Name] extends Variable<infer T> ? T : never }

export type VariableName = keyof Table

export const VARIABLE_NAMES = Object.keys(TABLE) as VariableName[]

/** The variables of the session store. */
export const STORE_NAMES = [
  'SESSION_STORE',
  'REDIS_URL',
  'REDIS_SENTINEL_PASSWORD',
  'REDIS_CA_FILE',
  'REDIS_CERT_FILE',
  'REDIS_KEY_FILE',
  'REDIS_PREFIX',
] as const satisfies VariableName[]

export type StoreName = (typeof STORE_NAMES)[number]

/** The variables of the authorization server and this client. */
export const OAUTH_NAMES = [
  'AUTH_URL',
  'BASE_URL',
  'CLIENT_ID',
  'CLIENT_SECRET',
  'OAUTH_AUTHORIZE_URL',
  'OAUTH_AUTHORIZE_PARAMS',
  'OAUTH_TOKEN_URL',
  'OAUTH_CLIENT_AUTH',
  'OAUTH_REVOCATION_URL',
  'OAUTH_END_SESSION_URL',
  'OAUTH_ISSUER',
  'OAUTH_SCOPE',
  'OAUTH_FLOWS',
  'OAUTH_REDIRECT',
  'OAUTH_PKCE',
  'OAUTH_REFUSED_GRANT',
  'TOKEN_TIMEOUT_MS',
] as const satisfies VariableName[]

export type OauthName = (typeof OAUTH_NAMES)[number]

/** The variables of the egress proxy. */
export const EGRESS_NAMES = ['HTTPS_PROXY', 'HTTP_PROXY', 'NO_PROXY'] as const satisfies VariableName[]

export type EgressName = (typeof EGRESS_NAMES)[number]

/** Either turns traces on. */
export const TRACE_ENDPOINTS = [
  'OTEL_EXPORTER_OTLP_ENDPOINT',
  'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT',
] as const satisfies VariableName[]
