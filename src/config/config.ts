import type { Secret } from '../secret.ts'
import { relationWarnings } from './checks.ts'
import { nearMisses } from './near-misses.ts'
import { readVariables } from './read.ts'
import type { RedisTarget } from './redis-url.ts'
import type { Flow, OauthName, StoreName, Values } from './variables.ts'
import { VARIABLE_NAMES } from './variables.ts'

export type { RedisAddress, RedisLogin, RedisTarget } from './redis-url.ts'
export { VARIABLES } from './variables.ts'

/** The configuration of the process. Frozen; times carry their unit in the name. */
export interface Config {
  /** The origin that the browser sees, no trailing slash. */
  readonly publicUrl: string
  /** `publicUrl` is https. */
  readonly secureCookies: boolean
  readonly baseUrl: string
  readonly oauth: {
    readonly authorizeUrl: string
    readonly tokenUrl: string
    readonly revocationUrl: string | null
    readonly issuer: string | null
    readonly clientId: string
    readonly clientSecret: Secret
    readonly scope: string
    readonly flows: ReadonlySet<Flow>
    readonly redirect: 'per-login' | 'fixed'
    readonly pkce: boolean
    readonly tokenTimeoutMs: number
  }
  /** `wac/fluxId` pairs that may be read without a session; null without the `client` flow. */
  readonly clientFluxAllowed: '*' | ReadonlySet<string> | null
  /** The first signs and seals, all are accepted. */
  readonly sessionSecrets: readonly Secret[]
  readonly store:
    | { readonly kind: 'memory' }
    | {
        readonly kind: 'redis'
        readonly target: RedisTarget
        readonly ca: string | null
        readonly prefix: string
      }
  readonly wac: { readonly default: string | null; readonly allowed: ReadonlySet<string> | null }
  readonly listen: { readonly host: string; readonly port: number; readonly opsPort: number }
  readonly session: {
    readonly idleSeconds: number
    readonly maxSeconds: number
    readonly outageGraceSeconds: number
  }
  readonly refresh: {
    readonly aheadSeconds: number
    readonly thresholdSeconds: number
    readonly concurrency: number
  }
  readonly upstream: {
    readonly tokenIn: 'header' | 'query'
    readonly timeoutMs: number
    readonly bodyLimitBytes: number
  }
  /** 0 is off. */
  readonly loginRatePerMinute: number
  readonly trustProxy: readonly string[]
  readonly staticDir: string | null
  /** Processes of this replica; `auto` is resolved. */
  readonly workers: number
  readonly accessLog: 'errors' | 'all' | 'off'
  readonly logLevel: 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal' | 'silent'
  readonly shutdownSeconds: number
}

export type ParsedConfig =
  | { readonly ok: true; readonly config: Config; readonly warnings: readonly string[] }
  | { readonly ok: false; readonly faults: readonly string[] }

/**
 * The configuration that these environment variables give (docs/configuration.md), with what should be
 * said of it at start; or every fault in it at once, each beginning with its variable's name and none
 * holding a secret's value. Reads the files that variables name; has no other effect.
 */
export function parseConfig(env: Readonly<Record<string, string | undefined>>): ParsedConfig {
  const read = readVariables(env, VARIABLE_NAMES)
  if (!read.ok) return read
  const warnings = [...relationWarnings(read.values), ...nearMisses(env)]
  return { ok: true, config: toConfig(read.values), warnings }
}

function toConfig(values: Values): Config {
  return frozen({
    publicUrl: values.PUBLIC_URL,
    secureCookies: values.PUBLIC_URL.startsWith('https:'),
    baseUrl: values.BASE_URL,
    oauth: toOauth(values),
    clientFluxAllowed: values.OAUTH_FLOWS.has('client') ? values.CLIENT_FLUX_ALLOWED : null,
    sessionSecrets: values.SESSION_SECRET,
    store: toStore(values),
    wac: { default: values.WAC, allowed: values.WAC_ALLOWED },
    listen: { host: values.HOST, port: values.PORT, opsPort: values.OPS_PORT },
    session: {
      idleSeconds: values.SESSION_IDLE_SECONDS,
      maxSeconds: values.SESSION_MAX_SECONDS,
      outageGraceSeconds: values.STORE_OUTAGE_GRACE_SECONDS,
    },
    refresh: {
      aheadSeconds: values.REFRESH_AHEAD_SECONDS,
      thresholdSeconds: values.REFRESH_THRESHOLD_SECONDS,
      concurrency: values.REFRESH_CONCURRENCY,
    },
    upstream: {
      tokenIn: values.UPSTREAM_TOKEN_IN,
      timeoutMs: values.UPSTREAM_TIMEOUT_MS,
      bodyLimitBytes: values.BODY_LIMIT_BYTES,
    },
    loginRatePerMinute: values.LOGIN_RATE_PER_MINUTE,
    trustProxy: values.TRUST_PROXY ?? [],
    staticDir: values.STATIC_DIR,
    workers: values.WORKERS,
    accessLog: values.ACCESS_LOG,
    logLevel: values.LOG_LEVEL,
    shutdownSeconds: values.SHUTDOWN_SECONDS,
  })
}

/** What these variables say of the authorization server. */
export function toOauth(values: Pick<Values, OauthName>): Config['oauth'] {
  return {
    authorizeUrl: values.OAUTH_AUTHORIZE_URL ?? `${values.AUTH_URL}/oauth/authorize`,
    tokenUrl: values.OAUTH_TOKEN_URL ?? `${values.AUTH_URL}/oauth/token`,
    revocationUrl: values.OAUTH_REVOCATION_URL,
    issuer: values.OAUTH_ISSUER,
    clientId: values.CLIENT_ID,
    clientSecret: values.CLIENT_SECRET,
    scope: values.OAUTH_SCOPE ?? values.BASE_URL,
    flows: values.OAUTH_FLOWS,
    redirect: values.OAUTH_REDIRECT,
    pkce: values.OAUTH_PKCE === 'S256',
    tokenTimeoutMs: values.TOKEN_TIMEOUT_MS,
  }
}

/** What these variables say of the session store. */
export function toStore(values: Pick<Values, StoreName>): Config['store'] {
  if (values.SESSION_STORE === 'memory' || values.REDIS_URL === null) return { kind: 'memory' }
  const target =
    values.REDIS_URL.kind === 'sentinel'
      ? { ...values.REDIS_URL, sentinelPassword: values.REDIS_SENTINEL_PASSWORD }
      : values.REDIS_URL
  return { kind: 'redis', target, ca: values.REDIS_CA_FILE, prefix: values.REDIS_PREFIX }
}

/** Frozen to the last object. A `Set` stays open underneath; `ReadonlySet` keeps it closed to our code. */
function frozen<T extends object>(value: T): T {
  for (const member of Object.values(value)) {
    if (typeof member === 'object' && member !== null) frozen(member)
  }
  return Object.freeze(value)
}
