import type { RecordKey, SessionStore } from '../store/store.ts'

/** From its creation on no change of the record is missed. It also reports when change messages may have been missed. */
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
    for (const note of [...(watching.get(key) ?? [])]) note()
  })
  // Missed messages never come: every waiter looks for itself.
  store.health.onLive((live) => {
    if (!live) for (const notes of [...watching.values()]) for (const note of [...notes]) note()
  })

  return (key, onChange) => {
    let changed = false
    let wake: (() => void) | null = null
    const notes = watching.get(key) ?? new Set()
    watching.set(key, notes.add(note))

    function note(): void {
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
        notes.delete(note)
        if (notes.size === 0 && watching.get(key) === notes) watching.delete(key)
      },
    }
  }
}
