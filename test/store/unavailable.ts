import type { Test } from 'tap'
import { type RecordKey, type SessionStore, StoreUnavailable } from '../../src/store/store.ts'
import { everyMethod } from './every-method.ts'
import { wait } from './stores.ts'

/** Calls every method at once: each rejects with `StoreUnavailable` in time. */
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
  for (const { name, error, ms } of await Promise.all(calls)) {
    t.ok(error instanceof StoreUnavailable, `${name} rejects with StoreUnavailable`)
    t.ok(ms < withinMs, `${name} rejects in time (${ms.toFixed()} ms)`)
  }
}

/** Polls until the store responds. Throws after `withinMs`. */
export async function untilItWorks(store: SessionStore, withinMs = 5_000): Promise<void> {
  const startedAt = performance.now()
  for (;;) {
    const failure = await store.ping().then(
      () => null,
      (error: unknown) => error,
    )
    if (failure === null) return
    if (performance.now() - startedAt > withinMs) throw failure
    await wait(20)
  }
}
