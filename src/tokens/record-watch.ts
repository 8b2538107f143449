import type { RecordKey, SessionStore } from '../store/store.ts'

/** Misses no change of the record after its creation. A loss of change messages counts as a change. */
export interface RecordWatch {
  /** Resolves when a change has come since the last call, or after `ms`. */
  next(ms: number): Promise<void>
  stop(): void
}

/** Watches one record; `onChange` is called at each change. */
export type WatchRecord = (key: RecordKey, onChange?: () => void) => RecordWatch

/** While messages are not proven to arrive, a waiter looks for itself this often. */
const LOOK_EVERY_MS = 250

/** One listener at the store for all watches of this process. */
export function createRecordWatch(store: Pick<SessionStore, 'onChange' | 'health'>): WatchRecord {
  const watching = new Map<RecordKey, Set<() => void>>()

  store.onChange((key) => {
    for (const notify of [...(watching.get(key) ?? [])]) notify()
  })
  // Missed messages never come: every waiter looks for itself.
  store.health.onLive((live) => {
    if (!live) for (const watches of [...watching.values()]) for (const notify of [...watches]) notify()
  })

  return (key, onChange) => {
    let changed = false
    let wake: (() => void) | null = null
    const watches = watching.get(key) ?? new Set()
    watching.set(key, watches.add(notify))

    function notify(): void {
      changed = true
      wake?.()
      onChange?.()
    }

    return {
      async next(ms) {
        if (!changed) {
          const atMost = store.health.isLive() ? ms : Math.min(ms, LOOK_EVERY_MS)
          await new Promise<void>((resolve) => {
            const timer = setTimeout(resolve, atMost)
            wake = () => {
              clearTimeout(timer)
              resolve()
            }
          })
          wake = null
        }
        changed = false
      },
      stop() {
        watches.delete(notify)
        if (watches.size === 0 && watching.get(key) === watches) watching.delete(key)
      },
    }
  }
}
