import { setTimeout as pause } from 'node:timers/promises'

const RETRY_MS = 10

/**
 * Repeats a call of a store until its connection is made. Rejects with the call's error after `withinMs`, and where
 * `isFinal` says that waiting will not help.
 */
export async function whenConnected<T>(
  call: () => Promise<T>,
  withinMs: number,
  isFinal: (error: unknown) => boolean = () => false,
): Promise<T> {
  const deadline = performance.now() + withinMs
  for (;;) {
    try {
      return await call()
    } catch (error) {
      if (isFinal(error) || performance.now() > deadline) throw error
      await pause(RETRY_MS)
    }
  }
}
