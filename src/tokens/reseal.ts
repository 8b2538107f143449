import type { Keyring } from '../keyring.ts'
import { openTokens, sealTokens } from '../session/sealed-tokens.ts'
import type { RecordKey, RecordStore } from '../store/store.ts'

/** Under which secret of the list tokens are sealed; `unreadable`: under none of them. */
export type Seal = 'newest' | 'older' | 'unreadable'

export interface SealsOptions {
  store: Pick<RecordStore, 'read' | 'reseal'>
  keyring: Keyring
  now: () => number
}

/** The seals of records, whoever reads them. null where there is no record. Rejects with `StoreUnavailable`. */
export interface Seals {
  look(key: RecordKey): Promise<Seal | null>
  /** Seals tokens that are under an older secret again; `older` where they are replaced faster than that. */
  renew(key: RecordKey): Promise<Seal | 'resealed' | null>
}

const TRIES = 3

export function createSeals({ store, keyring, now }: SealsOptions): Seals {
  async function open(key: RecordKey) {
    const record = await store.read(key)
    return record === null ? null : { sealed: record.tokens, opened: openTokens(keyring, key, record.tokens) }
  }

  return {
    async look(key) {
      const found = await open(key)
      if (found === null) return null
      if (found.opened === null) return 'unreadable'
      return found.opened.stale ? 'older' : 'newest'
    },

    async renew(key) {
      for (let tries = 0; tries < TRIES; tries += 1) {
        const found = await open(key)
        if (found === null) return null
        const { sealed, opened } = found
        if (opened === null) return 'unreadable'
        if (!opened.stale) return 'newest'
        if (await store.reseal(key, sealed, sealTokens(keyring, key, opened.tokens, now()))) return 'resealed'
      }
      return 'older'
    },
  }
}
