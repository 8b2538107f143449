import type { RecordKey } from './record.ts'
import type { SessionStore } from './store.ts'

interface Reports {
  /** This process has recorded activity of a session: earlier reads show an older state. */
  onTouched: (key: RecordKey) => void
  /** This process has ended or bound a session or replaced its tokens, or may have: the reply can be lost. */
  onChanged: (key: RecordKey) => void
}

/**
 * The store with its writes reported to the cache: each step that changes what a cached caller goes by (`SessionState` of
 * record.ts) has its line below. A touch that failed is not reported: at worst the cache shows older activity. An end or a
 * replacement that failed is, since it may have run.
 */
export function reportWrites(store: SessionStore, { onTouched, onChanged }: Reports): SessionStore {
  const reported =
    <Args extends unknown[], Result extends { kind: string }>(
      write: (key: RecordKey, ...args: Args) => Promise<Result>,
    ) =>
    async (key: RecordKey, ...args: Args): Promise<Result> => {
      try {
        const result = await write(key, ...args)
        // A read asks for this end if its process' clock is wrong. Reported, it would repeat that read for ever.
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
    // A cached entry would go on serving the session cookie alone.
    bindDevice: reported(store.bindDevice),
  }
}
