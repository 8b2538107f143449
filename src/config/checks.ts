import leven from 'leven'
import { jsonPointer } from '../json.ts'
import { prefixOf } from '../paths.ts'
import { isKeyOf } from './certificates.ts'
import { isInsecure, isLoopback, quoted } from './kinds.ts'
import { coversPath, FORM_TYPES } from './operation.ts'
import {
  copyFault,
  EITHER_CASE,
  type Environment,
  HOW_TO_MAKE_ONE,
  readVariableText,
  TRY_OUT_SECRET,
} from './secrets.ts'
import { FLOWS, TABLE, VARIABLE_NAMES, type Values, type VariableName } from './variables.ts'

const ADDRESSES = [
  'BASE_URL',
  'AUTH_URL',
  'PUBLIC_URL',
  'OAUTH_AUTHORIZE_URL',
  'OAUTH_TOKEN_URL',
  'OAUTH_REVOCATION_URL',
  'OAUTH_END_SESSION_URL',
  'OAUTH_ISSUER',
] as const

/** Variables of older versions: why each is gone, and what to do instead. */
const REMOVED: Readonly<Record<string, string>> = {
  STORE_OUTAGE_GRACE_SECONDS:
    'a sign-out during an outage would not be seen: no session is served while Redis is away, so run Redis with Sentinel or as a Cluster (docs/deployment.md)',
  WORKERS: 'a process is a replica: run more replicas behind the reverse proxy (docs/deployment.md)',
}

/** What was read of variables of which some have faults. */
export interface SoundValues<Name extends VariableName = VariableName> {
  /** A variable of which nothing is sound is missing. */
  readonly values: Partial<Pick<Values, Name>>
  /** Variables with a fault of their own. Those that are there too lack the faulty entries. */
  readonly partial: ReadonlySet<VariableName>
}

/** Faults between variables that stay when each variable's own faults are repaired. */
export function relationFaults({ values, partial }: SoundValues): string[] {
  const faults: string[] = []
  if (values.ALLOW_INSECURE_HTTP !== true) {
    for (const [name, address] of insecureAddresses(values)) {
      faults.push(
        `${name} must be https unless its host is loopback or ALLOW_INSECURE_HTTP=true, but is ${quoted(address)}`,
      )
    }
  }
  const isTryOut = values.SESSION_SECRET?.some((secret) => secret.reveal() === TRY_OUT_SECRET)
  if (isTryOut && values.PUBLIC_URL && !isLoopback(values.PUBLIC_URL)) {
    faults.push(`SESSION_SECRET is that of docker-compose.yml, which everyone knows; ${HOW_TO_MAKE_ONE}`)
  }
  const { OPERATIONS_FILE: file } = values
  const mayRead =
    file === undefined ||
    partial.has('OPERATIONS_FILE') ||
    file?.operations.some(({ application }) => application)
  if (values.OAUTH_FLOWS?.has('client') && values.CLIENT_FLUX_ALLOWED === null && !mayRead) {
    faults.push('CLIENT_FLUX_ALLOWED is required with the client flow (entries wac/fluxId, or *)')
  }
  faults.push(...operationFaults({ values, partial }))
  const { WAC: wac, WAC_ALLOWED: allowed } = values
  if (wac && allowed && !allowed.has(wac) && !partial.has('WAC_ALLOWED')) {
    faults.push(`WAC must be one of WAC_ALLOWED, but is ${quoted(wac)}`)
  }
  if (values.SESSION_STORE === 'redis' && values.REDIS_URL === null) {
    faults.push('REDIS_URL is required unless SESSION_STORE=memory')
  }
  for (const [certificateName, keyName] of [
    ['REDIS_CERT_FILE', 'REDIS_KEY_FILE'],
    ['OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE', 'OTEL_EXPORTER_OTLP_CLIENT_KEY'],
  ] as const) {
    const { [certificateName]: certificate, [keyName]: key } = values
    if (certificate && key === null) faults.push(`${keyName} is required with ${certificateName}`)
    if (key && certificate === null) faults.push(`${certificateName} is required with ${keyName}`)
    if (certificate && key && !isKeyOf(certificate, key))
      faults.push(`${keyName} is not the key of the first certificate in ${certificateName}`)
  }
  faults.push(...repeatedParameters(values))
  if (values.PORT !== undefined && values.PORT !== 0 && values.PORT === values.OPS_PORT) {
    faults.push(`OPS_PORT must not be the same as PORT, but both are ${values.PORT}`)
  }
  return faults
}

/** RFC 6749 section 3.1: no parameter of the authorization request is sent twice. */
function repeatedParameters({
  OAUTH_AUTHORIZE_URL: url,
  OAUTH_AUTHORIZE_PARAMS: added,
}: Partial<Values>): string[] {
  if (!url || !added) return []
  const own = new URL(url).searchParams
  return added
    .filter(({ name }) => own.has(name))
    .map(
      ({ name }) => `OAUTH_AUTHORIZE_PARAMS has the parameter ${quoted(name)} of OAUTH_AUTHORIZE_URL again`,
    )
}

/** Faults between the declared operations and other variables. */
export function operationFaults({ values, partial }: SoundValues): string[] {
  const { operations = [], identity = null } = values.OPERATIONS_FILE ?? {}
  const flows = partial.has('OAUTH_FLOWS') ? undefined : values.OAUTH_FLOWS
  const unnamed = identity !== null && identity.operation.account !== 'none' && values.WAC === null
  const ofIdentity = unnamed
    ? ['OPERATIONS_FILE /identity/operation belongs to an account: WAC must be set']
    : []
  const ofOperations = operations.flatMap((operation) => {
    const { name, method, account, application } = operation
    const at = (member: string) => `OPERATIONS_FILE ${jsonPointer('operations', name, member)}`
    const faults: string[] = []
    if (account === 'none' && values.WAC_ALLOWED && !(application && method === 'GET'))
      faults.push(`${at('account')} must not be "none" while WAC_ALLOWED is set`)
    if (application && flows && !flows.has('client'))
      faults.push(`${at('application')} needs the client flow in OAUTH_FLOWS`)
    if (endpointsBelowBase(values).some(({ prefix, path }) => coversPath(operation, prefix, path)))
      faults.push(`${at('path')} is an endpoint of the authorization server`)
    return faults
  })
  return [...ofOperations, ...ofIdentity]
}

/** The endpoints of the authorization server on the origin of the resource server. */
function endpointsBelowBase(values: Partial<Values>): { prefix: string; path: string }[] {
  const { BASE_URL: base, AUTH_URL: auth } = values
  if (!base || !auth) return []
  const baseUrl = new URL(base)
  return [
    values.OAUTH_AUTHORIZE_URL === null ? `${auth}/oauth/authorize` : values.OAUTH_AUTHORIZE_URL,
    values.OAUTH_TOKEN_URL === null ? `${auth}/oauth/token` : values.OAUTH_TOKEN_URL,
    values.OAUTH_REVOCATION_URL,
    values.OAUTH_END_SESSION_URL,
  ]
    .flatMap((url) => (url ? [new URL(url)] : []))
    .filter((url) => url.origin === baseUrl.origin)
    .map((url) => ({ prefix: prefixOf(baseUrl), path: url.pathname }))
}

/** Warnings for the start: discouraged flows, lost protection, settings without effect. */
export function relationWarnings(values: Values): string[] {
  const warnings: string[] = []
  for (const flow of values.OAUTH_FLOWS) {
    const warning = FLOWS[flow]
    if (warning !== null) warnings.push(`OAUTH_FLOWS permits the discouraged flow ${flow}: ${warning}`)
  }
  if (values.SESSION_STORE === 'memory') {
    warnings.push('SESSION_STORE=memory: sessions exist in this process only and are lost when it ends')
  }
  for (const [name] of insecureAddresses(values)) {
    warnings.push(
      `${name} is plain http (ALLOW_INSECURE_HTTP): everyone on the network path can read the traffic`,
    )
  }
  if (values.UPSTREAM_TOKEN_IN === 'query') {
    warnings.push(
      'UPSTREAM_TOKEN_IN=query: a response that repeats its own address shows the access token to the page',
    )
  }
  const limited = values.WAC_ALLOWED ? (values.OPERATIONS_FILE?.operations ?? []) : []
  for (const { name, body } of limited) {
    const forms = body !== null && 'types' in body ? body.types.filter((type) => FORM_TYPES.has(type)) : []
    if (forms.length > 0)
      warnings.push(
        `OPERATIONS_FILE ${jsonPointer('operations', name, 'body', 'types')}: a field of a form that names an account is not compared with WAC_ALLOWED (${forms.join(', ')})`,
      )
  }
  if (values.CLIENT_FLUX_ALLOWED !== null && !values.OAUTH_FLOWS.has('client')) {
    warnings.push('CLIENT_FLUX_ALLOWED has no effect without the client flow')
  }
  for (const name of ['STATIC_CSP', 'STATIC_PERMISSIONS_POLICY'] as const) {
    if (values[name] !== null && values.STATIC_DIR === null) {
      warnings.push(`${name} has no effect without STATIC_DIR`)
    }
  }
  if (values.SESSION_STORE === 'redis') {
    if (values.REDIS_CA_FILE !== null && !values.REDIS_URL?.tls) {
      warnings.push('REDIS_CA_FILE has no effect: REDIS_URL does not use TLS (rediss://)')
    }
    if (values.REDIS_CERT_FILE !== null && !values.REDIS_URL?.tls) {
      warnings.push('REDIS_CERT_FILE has no effect: REDIS_URL does not use TLS (rediss://)')
    }
    if (values.REDIS_SENTINEL_PASSWORD !== null && values.REDIS_URL?.kind !== 'sentinel') {
      warnings.push('REDIS_SENTINEL_PASSWORD has no effect: REDIS_URL names no Sentinels')
    }
  }
  return warnings
}

/** A warning where a stop ends calls that may still be answered in time. Both defaults are not worth a warning. */
export function stopWarnings(values: Values, env: Environment): string[] {
  const { SHUTDOWN_SECONDS: seconds, UPSTREAM_TIMEOUT_MS: timeoutMs } = values
  const isChosen = Boolean(env.SHUTDOWN_SECONDS || env.UPSTREAM_TIMEOUT_MS)
  return isChosen && seconds * 1_000 < timeoutMs
    ? [
        `SHUTDOWN_SECONDS (${seconds} s) is below UPSTREAM_TIMEOUT_MS (${timeoutMs} ms): a stop answers calls that still wait for the resource server with 503`,
      ]
    : []
}

/** A warning for each variable that an older version read. */
export function removedWarnings(env: Environment): string[] {
  return Object.entries(REMOVED).flatMap(([name, why]) =>
    env[name] ? [`${name} is gone, because ${why}`] : [],
  )
}

/** A warning for each secret that holds quotes or blanks at its edges: some tools keep those of a file of variables. */
export function secretWarnings(env: Environment): string[] {
  return VARIABLE_NAMES.filter((name) => TABLE[name].secret).flatMap((name) => {
    const text = readVariableText(env, name, true)
    const fault = typeof text === 'string' ? copyFault(text) : null
    return fault === null ? [] : [`${name} ${fault}`]
  })
}

/** A hint where no required variable is set: the user may expect that a file is read. */
export function envFileHints(env: Environment, program: string): string[] {
  const required = VARIABLE_NAMES.filter((name) => TABLE[name].required)
  return required.flatMap(spellings).some((spelling) => env[spelling])
    ? []
    : [`npm does not read .env: use node --env-file=.env ${program}`]
}

function insecureAddresses(values: Partial<Values>): [name: string, address: string][] {
  return ADDRESSES.flatMap((name): [string, string][] => {
    const address = values[name]
    return address && isInsecure(address) ? [[name, address]] : []
  })
}

/** Shorter names resemble too many others: `APP_PORT` is not a misspelled `OPS_PORT`. */
const LONG = 9

/**
 * A warning for each variable that looks like a misspelling of an unset variable, or like its file although it is no secret:
 * with `WAC_ALLOWED_FILE` alone every account would be permitted.
 */
export function nearMisses(env: Environment): string[] {
  const known = VARIABLE_NAMES.flatMap(spellings)
  const unset = VARIABLE_NAMES.filter((name) => spellings(name).every((spelling) => !env[spelling]))
  return Object.keys(env)
    .filter((found) => found.length >= 6 && !known.includes(found))
    .flatMap((found) => {
      const upper = found.toUpperCase()
      const inFile = unset.find((name) => !TABLE[name].secret && upper === `${name}_FILE`)
      if (inFile !== undefined)
        return [`${found} is not read, since only secrets may be in files: set ${inFile}`]
      const meant =
        unset.find((name) => isNear(upper, name)) ??
        unset.find((name) => upper.includes('_') && name.startsWith(`${upper}_`))
      return meant === undefined ? [] : [`${found} is not a variable of this server: did you mean ${meant}?`]
    })
}

function isNear(word: string, name: string): boolean {
  // Other programs read FTP_PROXY and the like.
  const permitted = name.length > LONG && !EITHER_CASE.has(name) ? 2 : 1
  return leven(word, name, { maxDistance: permitted + 1 }) <= permitted
}

/** The names under which one variable may be given. */
function spellings(name: VariableName): string[] {
  return [
    name,
    ...(TABLE[name].secret ? [`${name}_FILE`] : []),
    ...(EITHER_CASE.has(name) ? [name.toLowerCase()] : []),
  ]
}
