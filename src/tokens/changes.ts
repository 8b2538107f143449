import type { RecordKey, SessionStore } from '../store/port.ts'

/** Waits for the change message of a record; resolves at the message or after `ms`. */
export type WaitForChange = (key: RecordKey, ms: number) => Promise<void>

export function createWaitForChange(store: SessionStore): WaitForChange {
  const waiting = new Map<RecordKey, Set<() => void>>()

  store.onChange((key) => {
    for (const wake of waiting.get(key) ?? []) wake()
  })

  return (key, ms) =>
    new Promise((resolve) => {
      const wakes = waiting.get(key) ?? new Set()
      waiting.set(key, wakes)
      const timer = setTimeout(wake, ms)
      function wake(): void {
        clearTimeout(timer)
        wakes.delete(wake)
        if (wakes.size === 0) waiting.delete(key)
        resolve()
      }
      wakes.add(wake)
    })
}
