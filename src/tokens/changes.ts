import type { RecordKey, SessionStore } from '../store/store.ts'

/** Sees every change of one record from the moment it is made, so that none falls between two steps. */
export interface Watch {
  /** Resolves when a change has come since the last call, or after `ms`. */
  next(ms: number): Promise<void>
  stop(): void
}

/** `onChange` is called at each change. */
export type WatchChanges = (key: RecordKey, onChange?: () => void) => Watch

/** Where messages cannot be counted on, a waiter looks for itself this often. */
const LOOK_EVERY_MS = 250

export function createWatchChanges(
  store: Pick<SessionStore, 'onChange' | 'messagesArrive' | 'onMessagesLost'>,
): WatchChanges {
  const watching = new Map<RecordKey, Set<() => void>>()

  store.onChange((key) => {
    for (const note of [...(watching.get(key) ?? [])]) note()
  })
  // What was missed is not told later: everybody looks.
  store.onMessagesLost(() => {
    for (const notes of [...watching.values()]) for (const note of [...notes]) note()
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
          const atMost = store.messagesArrive() ? ms : Math.min(ms, LOOK_EVERY_MS)
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
