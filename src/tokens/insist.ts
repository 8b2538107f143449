import type { Logger } from '../log.ts'
import type { RecordKey } from '../store/store.ts'
import { StoreUnavailable } from '../store/store.ts'
import type { StoreStep } from './events.ts'

/** A step on a record that the store did not take, and that must not be forgotten. */
export interface Insist {
  /**
   * Repeats `run` every second until the store takes it or `forMs` milliseconds have
   * passed. While such a step on this record waits, a newer one is dropped.
   */
  insist(step: Exclude<StoreStep, 'tokens'>, key: RecordKey, forMs: number, run: () => Promise<unknown>): void
  /** Gives all of them up. */
  stop(): void
}

const EVERY_MS = 1_000

export interface InsistOptions {
  monotonic: () => number
  log: Logger
  onRetry: (step: StoreStep) => void
}

export function createInsist({ monotonic, log, onRetry }: InsistOptions): Insist {
  const waiting = new Map<string, NodeJS.Timeout>()
  let stopped = false

  function later(name: string, untilMs: number, retry: () => Promise<unknown>): void {
    if (stopped || monotonic() + EVERY_MS > untilMs) return void waiting.delete(name)
    waiting.set(
      name,
      setTimeout(() => void again(name, untilMs, retry), EVERY_MS),
    )
  }

  async function again(name: string, untilMs: number, retry: () => Promise<unknown>): Promise<void> {
    try {
      await retry()
      waiting.delete(name)
    } catch (error) {
      if (error instanceof StoreUnavailable) return later(name, untilMs, retry)
      waiting.delete(name)
      log.error({ event: 'store.step_failed', err: error }, 'a step on a session record failed')
    }
  }

  return {
    insist(step, key, forMs, run) {
      const name = `${step} ${key}`
      if (waiting.has(name)) return
      later(name, monotonic() + forMs, () => {
        onRetry(step)
        return run()
      })
    },
    stop() {
      stopped = true
      for (const timer of waiting.values()) clearTimeout(timer)
      waiting.clear()
    },
  }
}
