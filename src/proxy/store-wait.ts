import type { ServerResponse } from 'node:http'
import type { Clock } from '../clock.ts'
import { Problem } from '../errors.ts'
import { withTimeout } from '../timeout.ts'

/**
 * What `ask` shows. Where it rejects with `store_unavailable` it is asked again until the store is back, so that what happened
 * meanwhile counts. Rejects with its last error after `waitMs`, at once where too many wait, and when the browser leaves. All
 * questions for one response share the wait.
 */
export type StoreWait = <T extends object>(response: ServerResponse, ask: () => Promise<T>) => Promise<T>

interface StoreWaitOptions {
  /** 0: nothing waits (`STORE_WAIT_MS`). */
  waitMs: number
  clock: Pick<Clock, 'monotonic'>
  /** That wait at once, in this process. */
  most?: number
}

const MOST_WAITING = 500
/** An unreached store refuses in microseconds, so this is also what 500 that wait may cost. */
export const ASK_AGAIN_MS = 250

export function createStoreWait({ waitMs, clock, most = MOST_WAITING }: StoreWaitOptions): StoreWait {
  let waiting = 0
  /** Of the responses that have waited, monotonic milliseconds. */
  const ends = new WeakMap<ServerResponse, number>()

  return async function waitForStore(response, ask) {
    const until = ends.get(response) ?? clock.monotonic() + waitMs
    try {
      return await ask()
    } catch (error) {
      if (!isAway(error) || waiting >= most || response.closed) throw error
      ends.set(response, until)
      waiting += 1
      try {
        return await askUntil(until - clock.monotonic(), response, ask, error)
      } finally {
        waiting -= 1
      }
    }
  }
}

async function askUntil<T extends object>(
  leftMs: number,
  response: ServerResponse,
  ask: () => Promise<T>,
  failure: Problem,
): Promise<T> {
  let last = failure
  let isOver = false

  async function askAgain(): Promise<T | null> {
    while (!isOver) {
      await new Promise((resolve) => setTimeout(resolve, ASK_AGAIN_MS))
      if (isOver) break
      try {
        return await ask()
      } catch (error) {
        if (!isAway(error)) throw error
        last = error
      }
    }
    return null
  }

  if (leftMs <= 0) throw failure
  const left = new Promise<null>((resolve) => void response.once('close', () => resolve(null)))
  const found = await withTimeout(Promise.race([askAgain(), left]), leftMs).finally(() => {
    isOver = true
  })
  if (found === null) throw last
  return found
}

/** Redis is away, fails over, or refuses for a moment. */
function isAway(error: unknown): error is Problem {
  return error instanceof Problem && error.code === 'store_unavailable'
}
