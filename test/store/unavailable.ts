import type { Test } from 'tap'
import { COMMAND_TIMEOUT_MS, LAST_STEP_MS } from '../../src/store/redis/command-timeout.ts'
import { type RecordKey, type SessionStore, StoreUnavailable } from '../../src/store/store.ts'
import { elapsed } from '../helpers/wait.ts'
import { everyMethod } from './every-method.ts'

/**
 * Calls every method at once: each rejects with `StoreUnavailable` in time. What holds up this process, as others on a busy
 * machine do, holds up a timer as well, and does not count.
 */
export async function refusesEveryMethod(
  t: Test,
  store: SessionStore,
  key: RecordKey,
  withinMs = 1_000,
): Promise<void> {
  const calls = Object.entries(everyMethod(store, key)).map(async ([name, call]) => {
    const startedAt = performance.now()
    const error = await call().then(
      () => null,
      (cause: unknown) => cause,
    )
    return { name, error, ms: performance.now() - startedAt }
  })
  const heldUpMs = await howLate(Math.min(withinMs, COMMAND_TIMEOUT_MS))
  for (const { name, error, ms } of await Promise.all(calls)) {
    t.ok(error instanceof StoreUnavailable, `${name} rejects with StoreUnavailable`)
    t.ok(ms < withinMs + heldUpMs, `${name} rejects in time (${ms.toFixed()} ms)`)
  }
}

/** By how much two timers in a row, the second of them short, end later than due. */
async function howLate(ms: number): Promise<number> {
  const startedAt = performance.now()
  const lastStepMs = Math.min(ms, LAST_STEP_MS)
  await elapsed(ms - lastStepMs)
  await elapsed(lastStepMs)
  return Math.max(0, performance.now() - startedAt - ms)
}
