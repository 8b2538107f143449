import type { Keyring } from '../keyring.ts'
import { Secret } from '../secret.ts'
import type { RecordKey } from './store/record.ts'
import type { User } from './user.ts'

/** The tokens of one session, as the record keeps them sealed. */
export interface TokenSet {
  accessToken: Secret
  /** null: the session lasts as long as the access token. */
  refreshToken: Secret | null
  /** When the access token expires, epoch milliseconds. */
  expiresAt: number
  /** The life of the access token when it was issued. */
  lifeSeconds: number
  /** When the refresh token expires, epoch milliseconds; absent or null where that is not known. */
  refreshExpiresAt?: number | null
  scope: string | null
  /** Absent or null where it is not known. */
  user?: User | null
}

interface OpenedTokens {
  tokens: TokenSet
  /** Sealed under an older secret, until the next refresh or `npm run sessions -- reseal`. */
  underOlderSecret: boolean
}

interface Plain {
  a: string
  r: string | null
  e: number
  l: number
  x?: number
  s: string | null
  u?: readonly [id: string, name: string | null]
}

/** A string of one byte a character. Bound to the record key: a sealed set that is moved to another record does not open there. */
export function sealTokens(keyring: Keyring, key: RecordKey, tokens: TokenSet): string {
  const plain: Plain = {
    a: tokens.accessToken.reveal(),
    r: tokens.refreshToken?.reveal() ?? null,
    e: tokens.expiresAt,
    l: tokens.lifeSeconds,
    s: tokens.scope,
    ...(tokens.refreshExpiresAt ? { x: tokens.refreshExpiresAt } : {}),
    ...(tokens.user ? { u: [tokens.user.id, tokens.user.name] } : {}),
  }
  return keyring.sealBinary('tokens', JSON.stringify(plain), key)
}

/** null if no current secret opens it. */
export function openTokens(keyring: Keyring, key: RecordKey, sealed: string): OpenedTokens | null {
  const opened = keyring.openBinary('tokens', sealed, key)
  if (opened === null) return null
  const plain = JSON.parse(opened.text) as Plain
  return {
    tokens: {
      accessToken: new Secret(plain.a),
      refreshToken: plain.r === null ? null : new Secret(plain.r),
      expiresAt: plain.e,
      lifeSeconds: plain.l,
      refreshExpiresAt: plain.x ?? null,
      scope: plain.s,
      user: plain.u === undefined ? null : { id: plain.u[0], name: plain.u[1] },
    },
    underOlderSecret: opened.underOlderSecret,
  }
}
