import type { Logger } from '../log.ts'
import { StoreUnavailable } from '../store/port.ts'

/** A step on a record that the store did not take, and that must not be forgotten. */
export interface Insist {
  /**
   * Repeats `step` every second until the store takes it or `untilMs` (epoch milliseconds) has
   * passed. While a step of this name waits, a newer one is dropped.
   */
  insist(name: string, untilMs: number, step: () => Promise<unknown>): void
  /** Gives all of them up. */
  stop(): void
}

const EVERY_MS = 1_000

export function createInsist({ now, log }: { now: () => number; log: Logger }): Insist {
  const waiting = new Map<string, NodeJS.Timeout>()
  let stopped = false

  function later(name: string, untilMs: number, step: () => Promise<unknown>): void {
    if (stopped || now() + EVERY_MS > untilMs) return void waiting.delete(name)
    waiting.set(
      name,
      setTimeout(() => void again(name, untilMs, step), EVERY_MS),
    )
  }

  async function again(name: string, untilMs: number, step: () => Promise<unknown>): Promise<void> {
    try {
      await step()
      waiting.delete(name)
    } catch (error) {
      if (error instanceof StoreUnavailable) return later(name, untilMs, step)
      waiting.delete(name)
      log.error({ event: 'store.step_failed', err: error }, 'a step on a session record failed')
    }
  }

  return {
    insist(name, untilMs, step) {
      if (!waiting.has(name)) later(name, untilMs, step)
    },
    stop() {
      stopped = true
      for (const timer of waiting.values()) clearTimeout(timer)
      waiting.clear()
    },
  }
}
