import type { RecordKey, SessionStore } from './store.ts'

interface Reports {
  /** This process has recorded activity of a session: earlier reads show an older state. */
  onTouched: (key: RecordKey) => void
  /** This process has ended a session or replaced its tokens, or may have: the reply can be lost. */
  onChanged: (key: RecordKey) => void
}

/**
 * The store with its writes reported to the cache. A touch that failed is not: what was read before is as new. Any
 * other write may have run although it failed.
 */
export function reportWrites(store: SessionStore, { onTouched, onChanged }: Reports): SessionStore {
  const reported =
    <Args extends unknown[], Result extends { kind: string }>(
      write: (key: RecordKey, ...args: Args) => Promise<Result>,
    ) =>
    async (key: RecordKey, ...args: Args): Promise<Result> => {
      try {
        const result = await write(key, ...args)
        // A look that finds a limit passed by a wrong clock would otherwise overtake itself, for ever.
        if (result.kind !== 'precondition_failed') onChanged(key)
        return result
      } catch (error) {
        onChanged(key)
        throw error
      }
    }
  return {
    ...store,
    async touch(key) {
      const exists = await store.touch(key)
      onTouched(key)
      return exists
    },
    end: reported(store.end),
    replaceTokens: reported(store.replaceTokens),
  }
}
