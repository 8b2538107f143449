import { quoted } from './kinds.ts'
import { isInsecure } from './urls.ts'
import { FLOWS, type Values } from './variables.ts'

const ADDRESSES = [
  'BASE_URL',
  'AUTH_URL',
  'PUBLIC_URL',
  'OAUTH_AUTHORIZE_URL',
  'OAUTH_TOKEN_URL',
  'OAUTH_REVOCATION_URL',
  'OAUTH_ISSUER',
] as const

/** Faults between variables. One that is missing in `values` had a fault of its own, and is passed over. */
export function relationFaults(values: Partial<Values>): string[] {
  const faults: string[] = []
  if (values.ALLOW_INSECURE_HTTP === false) {
    for (const [name, address] of insecureAddresses(values)) {
      faults.push(
        `${name} must be https unless its host is loopback or ALLOW_INSECURE_HTTP=true, but is ${quoted(address)}`,
      )
    }
  }
  if (values.OAUTH_FLOWS?.has('client') && values.CLIENT_FLUX_ALLOWED === null) {
    faults.push('CLIENT_FLUX_ALLOWED is required with the client flow (entries wac/fluxId, or *)')
  }
  if (values.WAC && values.WAC_ALLOWED && !values.WAC_ALLOWED.has(values.WAC)) {
    faults.push(`WAC must be one of WAC_ALLOWED, but is ${quoted(values.WAC)}`)
  }
  if (values.SESSION_STORE === 'redis' && values.REDIS_URL === null) {
    faults.push('REDIS_URL is required unless SESSION_STORE=memory')
  }
  if (values.SESSION_STORE === 'memory' && values.WORKERS !== undefined && values.WORKERS > 1) {
    faults.push(
      `WORKERS must be 1 with SESSION_STORE=memory, which one process holds, but is ${values.WORKERS}`,
    )
  }
  if (values.PORT !== undefined && values.PORT !== 0 && values.PORT === values.OPS_PORT) {
    faults.push(`OPS_PORT must not be the same as PORT, but both are ${values.PORT}`)
  }
  return faults
}

/** What is permitted but should be known: discouraged flows, lost protection, settings without effect. */
export function relationWarnings(values: Values): string[] {
  const warnings: string[] = []
  for (const flow of values.OAUTH_FLOWS) {
    const warning = FLOWS[flow]
    if (warning !== null) warnings.push(`OAUTH_FLOWS permits the discouraged flow ${flow}: ${warning}`)
  }
  if (values.STORE_OUTAGE_GRACE_SECONDS > 0) {
    warnings.push(
      values.SESSION_STORE === 'memory'
        ? 'STORE_OUTAGE_GRACE_SECONDS has no effect with SESSION_STORE=memory, which is never away'
        : `STORE_OUTAGE_GRACE_SECONDS=${values.STORE_OUTAGE_GRACE_SECONDS}: while Redis is away, a sign-out on another replica is not seen for that long`,
    )
  }
  if (values.SESSION_STORE === 'memory') {
    warnings.push('SESSION_STORE=memory: sessions live in this one process and are lost when it ends')
  }
  for (const [name] of insecureAddresses(values)) {
    warnings.push(`${name} is plain http (ALLOW_INSECURE_HTTP): whoever is on the way reads what passes`)
  }
  if (values.CLIENT_FLUX_ALLOWED !== null && !values.OAUTH_FLOWS.has('client')) {
    warnings.push('CLIENT_FLUX_ALLOWED has no effect without the client flow')
  }
  if (values.SESSION_STORE === 'redis') {
    if (values.REDIS_CA_FILE !== null && !values.REDIS_URL?.tls) {
      warnings.push('REDIS_CA_FILE has no effect: the REDIS_URL is without TLS (rediss)')
    }
    if (values.REDIS_SENTINEL_PASSWORD !== null && values.REDIS_URL?.kind !== 'sentinel') {
      warnings.push('REDIS_SENTINEL_PASSWORD has no effect: the REDIS_URL names no Sentinels')
    }
  }
  return warnings
}

function insecureAddresses(values: Partial<Values>): [name: string, address: string][] {
  return ADDRESSES.flatMap((name): [string, string][] => {
    const address = values[name]
    return address && isInsecure(address) ? [[name, address]] : []
  })
}
