import { type Config, parseConfig } from '../../src/config/config.ts'
import { Secret } from '../../src/secret.ts'

export type Env = Record<string, string | undefined>

export const SESSION_SECRET = 'session-secret-0123456789-abcdefgh'
export const OTHER_SECRET = 'another-secret-0123456789-abcdefgh'
/** What is required, and nothing else. */
export const BASE: Env = {
  BASE_URL: 'https://api.example.com',
  AUTH_URL: 'https://auth.example.com',
  PUBLIC_URL: 'https://app.example.com',
  CLIENT_ID: 'client-1',
  CLIENT_SECRET: 'client-secret-value',
  SESSION_SECRET,
  REDIS_URL: 'redis://redis',
}

/** A self-signed certificate; nothing is signed with its key. */
export const CERTIFICATE = `-----BEGIN CERTIFICATE-----
MIIBdjCCARugAwIBAgIUeWW+TsNSlV2Mt+q6xgUWVusui6MwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjAxNDEwMzNaGA8yMTI2MTAyNzE0MTAz
M1owDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABEv/
yUOcU8BZugbqmcqQy4NLBZ2qdZ1BfxuNoZ3tSccrlquffz3Yp5wMrzP0pqGrufSN
Y4MBB9dFO5WXRxJG87OjUzBRMB0GA1UdDgQWBBQUuvBtfCVA05ceJ+8LsbSysVb+
xTAfBgNVHSMEGDAWgBQUuvBtfCVA05ceJ+8LsbSysVb+xTAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0kAMEYCIQDL98XNxNr3fOemztjodF0Zz2xvB5Z9KcZ1
doS/ZlIKjAIhALUMPp8w4UkBwcP12PAfygZ5HyTSciNhJ3oSVa+EnqED
-----END CERTIFICATE-----
`

/** The faults of these variables and the required ones; none where they are taken. */
export function faultsOf(env: Env): readonly string[] {
  const parsed = parseConfig({ ...BASE, ...env })
  return parsed.ok ? [] : parsed.faults
}

/** The configuration of these variables and the required ones. */
export function configOf(env: Env): Config {
  const parsed = parseConfig({ ...BASE, ...env })
  if (!parsed.ok) throw new Error(parsed.faults.join('\n'))
  return parsed.config
}

/** The warnings at these variables and the required ones. */
export function warningsOf(env: Env): readonly string[] {
  const parsed = parseConfig({ ...BASE, ...env })
  return parsed.ok ? parsed.warnings : ['faulty']
}

/** The secrets of a configuration in clear, for comparison. */
export function revealed(value: unknown): unknown {
  if (value instanceof Secret) return value.reveal()
  if (value instanceof Set) return [...value]
  if (Array.isArray(value)) return value.map(revealed)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, revealed(member)]))
}
