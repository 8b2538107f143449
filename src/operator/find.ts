import type { RecordKey, SessionStore } from '../store/store.ts'
import { distinct } from './walk.ts'

export type FoundKey = { kind: 'one'; key: RecordKey } | { kind: 'none' } | { kind: 'several'; count: number }

const WHOLE = 64

/** The session whose id begins so. A whole id is taken as it is. Rejects with `StoreUnavailable`. */
export async function findKey(store: Pick<SessionStore, 'keys'>, beginning: string): Promise<FoundKey> {
  if (beginning.length === WHOLE) return { kind: 'one', key: beginning }
  let first: RecordKey | null = null
  let count = 0
  for await (const batch of distinct(store)) {
    for (const key of batch) {
      if (!key.startsWith(beginning)) continue
      first ??= key
      count += 1
    }
  }
  if (first === null) return { kind: 'none' }
  return count === 1 ? { kind: 'one', key: first } : { kind: 'several', count }
}
