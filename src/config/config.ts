import {
  envFileHints,
  nearMisses,
  relationFaults,
  relationWarnings,
  removedWarnings,
  type SoundValues,
  secretWarnings,
  stopWarnings,
} from './checks.ts'
import type { Egress } from './egress.ts'
import { Refused } from './kinds.ts'
import type { RedisTarget } from './redis-url.ts'
import { type Environment, readVariableText } from './secrets.ts'
import {
  type EgressName,
  type OauthName,
  type StoreName,
  TABLE,
  TRACE_ENDPOINTS,
  VARIABLE_NAMES,
  type Values,
  type VariableName,
} from './variables.ts'

/** The configuration of the process. Frozen; times carry their unit in the name. */
export type Config = ReturnType<typeof toConfig>

type ParsedConfig =
  | { readonly ok: true; readonly config: Config; readonly warnings: readonly string[] }
  | { readonly ok: false; readonly faults: readonly string[]; readonly hints: readonly string[] }

/**
 * The configuration that an environment gives (docs/configuration.md), with warnings for the start, or all of its
 * faults at once, with hints at misspelled names and at a file that is not read. A fault begins with the variable's
 * name and never holds a secret's value. Reads the files that variables name; has no other effect.
 */
export function parseConfig(env: Environment): ParsedConfig {
  const used = TRACE_ENDPOINTS.some((name) => env[name]) ? env : withoutTraces(env)
  const read = readVariables(used, VARIABLE_NAMES)
  if (!read.ok)
    return {
      ...read,
      hints: [...nearMisses(env), ...envFileHints(env, 'dist/main.js, or dist/doctor.js in its place')],
    }
  const warnings = [
    ...relationWarnings(read.values),
    ...stopWarnings(read.values, used),
    ...removedWarnings(env),
    ...secretWarnings(used),
    ...nearMisses(env),
  ]
  return { ok: true, config: toConfig(read.values), warnings }
}

/** The variables of OpenTelemetry may be meant for other programs of the host: without an endpoint they are not read. */
function withoutTraces(env: Environment): Environment {
  return Object.fromEntries(Object.entries(env).filter(([name]) => !name.startsWith('OTEL_')))
}

/** The text for stderr: faults, hints, and where to read on. */
export function describeFaults({
  faults,
  hints,
}: {
  faults: readonly string[]
  hints: readonly string[]
}): string {
  const list = (lines: readonly string[]): string => lines.map((line) => `  ${line}\n`).join('')
  const hinted = hints.length === 0 ? '' : `Hints:\n${list(hints)}`
  return `The configuration has faults:\n${list(faults)}${hinted}docs/configuration.md explains each variable.\n`
}

type ReadVariables<Name extends VariableName> =
  | { readonly ok: true; readonly values: Pick<Values, Name> }
  | ({ readonly ok: false; readonly faults: readonly string[] } & SoundValues<Name>)

/** The values of the named variables, or every fault in them and between them. Reads no other variable. */
export function readVariables<Name extends VariableName>(
  env: Environment,
  names: readonly Name[],
): ReadVariables<Name> {
  const read = new Map<string, unknown>()
  const partial = new Set<VariableName>()
  const faults: string[] = []
  for (const name of names) {
    const value = readValue(TABLE[name], readVariableText(env, name, TABLE[name].secret))
    if (value instanceof Refused) {
      faults.push(...value.faults.map((fault) => `${name} ${fault}`))
      partial.add(name)
    }
    const sound = value instanceof Refused ? value.sound : value
    if (sound !== undefined) read.set(name, sound)
  }
  const values = Object.fromEntries(read) as Partial<Values>
  faults.push(...relationFaults({ values, partial }))
  return faults.length > 0
    ? { ok: false, faults, values, partial }
    : { ok: true, values: values as Pick<Values, Name> }
}

function readValue(variable: (typeof TABLE)[VariableName], text: string | null | Refused): unknown {
  if (text instanceof Refused) return text
  const effective = text ?? variable.default
  if (effective !== null) return variable.kind.read(effective)
  return variable.required ? new Refused(`is required: ${variable.meaning}`) : null
}

function toConfig(values: Values) {
  return deepFreeze({
    /** The origin that the browser sees, without a trailing slash. */
    publicUrl: values.PUBLIC_URL,
    /** `publicUrl` is https. */
    secureCookies: values.PUBLIC_URL.startsWith('https:'),
    baseUrl: values.BASE_URL,
    oauth: toOauth(values),
    /** How requests leave for both servers of the platform. */
    egress: toEgress(values),
    /** `wac/fluxId` pairs that may be read without a session; null without the `client` flow. */
    clientFluxAllowed: values.OAUTH_FLOWS.has('client') ? (values.CLIENT_FLUX_ALLOWED ?? new Set()) : null,
    /** Served below `/data`. */
    operations: values.OPERATIONS_FILE?.operations ?? [],
    /** Asked who has signed in; null: nobody is. */
    identity: values.OPERATIONS_FILE?.identity ?? null,
    /** The first signs and seals, all are accepted. */
    sessionSecrets: values.SESSION_SECRET,
    store: toStore(values),
    /** How long a read waits while the store cannot show its session. 0: it does not. */
    storeWaitMs: values.STORE_WAIT_MS,
    wac: { default: values.WAC, allowed: values.WAC_ALLOWED },
    listen: { host: values.HOST, port: values.PORT, opsPort: values.OPS_PORT },
    session: {
      idleSeconds: values.SESSION_IDLE_SECONDS,
      maxSeconds: values.SESSION_MAX_SECONDS,
      cacheMs: values.SESSION_CACHE_MS,
      /** Browsers take part over https alone. */
      isBound: values.SESSION_BINDING === 'auto' && values.PUBLIC_URL.startsWith('https:'),
    },
    refresh: {
      aheadSeconds: values.REFRESH_AHEAD_SECONDS,
      thresholdSeconds: values.REFRESH_THRESHOLD_SECONDS,
      concurrency: values.REFRESH_CONCURRENCY,
      /** 0: a used refresh token is not granted again. */
      reuseSeconds: values.OAUTH_REUSE_SECONDS,
    },
    upstream: {
      tokenIn: values.UPSTREAM_TOKEN_IN,
      /** `Via` is sent. */
      via: values.UPSTREAM_VIA,
      timeoutMs: values.UPSTREAM_TIMEOUT_MS,
      bodyLimitBytes: values.BODY_LIMIT_BYTES,
      /** Sent with each call. */
      headers: values.UPSTREAM_HEADERS ?? [],
      /** Further shapes of the invalid-token response. */
      tokenShapes: values.UPSTREAM_INVALID_TOKEN ?? [],
    },
    /** 0 is off. */
    loginRatePerMinute: values.LOGIN_RATE_PER_MINUTE,
    trustProxy: values.TRUST_PROXY ?? [],
    /** The build of the page; null: none is served. */
    static: values.STATIC_DIR === null ? null : toStatic(values.STATIC_DIR, values),
    accessLog: values.ACCESS_LOG,
    logLevel: values.LOG_LEVEL,
    keepAliveSeconds: values.KEEP_ALIVE_SECONDS,
    shutdownSeconds: values.SHUTDOWN_SECONDS,
    /** Between the stop signal and the begin of the stop. */
    shutdownDelaySeconds: values.SHUTDOWN_DELAY_SECONDS,
    /** null: nothing is traced. */
    tracing: toTracing(values),
  } as const)
}

/** Where traces go. OpenTelemetry's SDK itself reads the sampler, the resource and the less usual `OTEL_…`. */
function toTracing(values: Values) {
  const { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: whole } = values
  const url = whole ?? (endpoint === null ? null : `${endpoint}/v1/traces`)
  if (url === null || values.OTEL_SDK_DISABLED || values.OTEL_TRACES_EXPORTER === 'none') return null
  return {
    url,
    protocol: values.OTEL_EXPORTER_OTLP_PROTOCOL,
    headers: values.OTEL_EXPORTER_OTLP_HEADERS,
    ca: values.OTEL_EXPORTER_OTLP_CERTIFICATE,
    clientCertificate: values.OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE,
    clientKey: values.OTEL_EXPORTER_OTLP_CLIENT_KEY,
  } as const
}

/** The authorization server and this client. */
export function toOauth(values: Pick<Values, OauthName>) {
  return {
    authorizeUrl: values.OAUTH_AUTHORIZE_URL ?? `${values.AUTH_URL}/oauth/authorize`,
    /** Further parameters of each authorization request. */
    authorizeParameters: values.OAUTH_AUTHORIZE_PARAMS ?? [],
    tokenUrl: values.OAUTH_TOKEN_URL ?? `${values.AUTH_URL}/oauth/token`,
    clientAuth: values.OAUTH_CLIENT_AUTH,
    revocationUrl: values.OAUTH_REVOCATION_URL,
    /** null: a sign-out ends at this server. */
    endSessionUrl: values.OAUTH_END_SESSION_URL,
    issuer: values.OAUTH_ISSUER,
    clientId: values.CLIENT_ID,
    clientSecret: values.CLIENT_SECRET,
    scope: values.OAUTH_SCOPE ?? values.BASE_URL,
    flows: values.OAUTH_FLOWS,
    redirect: values.OAUTH_REDIRECT,
    pkce: values.OAUTH_PKCE === 'S256',
    /** Further answers to a refresh that end the session. */
    refusedGrants: values.OAUTH_REFUSED_GRANT ?? [],
    tokenTimeoutMs: values.TOKEN_TIMEOUT_MS,
  } as const
}

function toStatic(dir: string, values: Values) {
  const { STATIC_CSP: csp, OAUTH_END_SESSION_URL: endSession } = values
  // Browsers compare the redirect of a form, as that of a sign-out, with this directive too (CSP Level 3, section 6.4.1).
  const signOut =
    endSession === null
      ? {}
      : { 'form-action': [...(csp?.['form-action'] ?? []), new URL(endSession).origin] }
  return {
    dir,
    /** Sources by directive, added to the default policy. */
    csp: { ...csp, ...signOut } as Readonly<Record<string, readonly string[]>>,
    referrerPolicy: values.STATIC_REFERRER_POLICY,
    /** null: the default. */
    permissionsPolicy: values.STATIC_PERMISSIONS_POLICY,
  } as const
}

/** The proxies for requests to the platform. */
export function toEgress(values: Pick<Values, EgressName>): Egress {
  return { https: values.HTTPS_PROXY, http: values.HTTP_PROXY, exempt: values.NO_PROXY ?? [] }
}

/** The session store. */
export function toStore(values: Pick<Values, StoreName>) {
  if (values.SESSION_STORE === 'memory' || values.REDIS_URL === null) return { kind: 'memory' } as const
  const target: RedisTarget =
    values.REDIS_URL.kind === 'sentinel'
      ? { ...values.REDIS_URL, sentinelPassword: values.REDIS_SENTINEL_PASSWORD }
      : values.REDIS_URL
  const { REDIS_CERT_FILE: certificate, REDIS_KEY_FILE: key } = values
  const clientCertificate = certificate === null || key === null ? null : { certificate, key }
  return {
    kind: 'redis',
    target,
    ca: values.REDIS_CA_FILE,
    clientCertificate,
    prefix: values.REDIS_PREFIX,
  } as const
}

/** Freezes all nested objects. A `Set` can still change; its type `ReadonlySet` keeps our code from that. */
function deepFreeze<T extends object>(value: T): T {
  for (const member of Object.values(value)) {
    if (typeof member === 'object' && member !== null) deepFreeze(member)
  }
  return Object.freeze(value)
}
