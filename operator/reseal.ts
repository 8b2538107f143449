import type { Keyring } from '../src/keyring.ts'
import { openTokens, type RecordKey, type SessionStore, sealTokens } from '../src/vault/vault.ts'

/** Under which secret of the list tokens are sealed; `unreadable`: under none of them. */
type Seal = 'newest' | 'older' | 'unreadable'

export interface SealOptions {
  store: Pick<SessionStore, 'read' | 'reseal'>
  keyring: Keyring
}

const TRIES = 3

/** The seal of a session's tokens; null where there is no record. Rejects with `StoreUnavailable`. */
export async function sealOf(key: RecordKey, { store, keyring }: SealOptions): Promise<Seal | null> {
  const record = await store.read(key)
  if (record === null) return null
  const opened = openTokens(keyring, key, record.tokens)
  if (opened === null) return 'unreadable'
  return opened.underOlderSecret ? 'older' : 'newest'
}

/**
 * Seals tokens under the newest secret that are under an older one. `older` where they are replaced faster than
 * that; otherwise as `sealOf`.
 */
export async function reseal(
  key: RecordKey,
  { store, keyring }: SealOptions,
): Promise<Seal | 'resealed' | null> {
  for (let tries = 0; tries < TRIES; tries += 1) {
    const record = await store.read(key)
    if (record === null) return null
    const opened = openTokens(keyring, key, record.tokens)
    if (opened === null) return 'unreadable'
    if (!opened.underOlderSecret) return 'newest'
    if (await store.reseal(key, record.tokens, sealTokens(keyring, key, opened.tokens))) return 'resealed'
  }
  return 'older'
}
