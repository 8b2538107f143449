import type { Teardown } from '../../helpers/child.ts'

export type VirtualTime = ReturnType<typeof installVirtualTime>

interface Timer {
  id: number
  at: number
  every: number | null
  work: () => void
}

const START_AT = 1_700_000_000_000

const real = { setTimeout, clearTimeout, setInterval, clearInterval }

/**
 * A clock that only the test moves. It replaces the timers until the test ends, for code that waits for nothing but
 * timers and promises.
 */
export function installVirtualTime(t: Teardown) {
  const timers = new Map<number, Timer>()
  let now = START_AT
  let lastId = 0

  function add(work: () => void, ms: number, every: number | null): NodeJS.Timeout {
    lastId += 1
    const id = lastId
    timers.set(id, { id, at: now + Math.max(1, ms), every, work })
    const handle = { unref: () => handle, [Symbol.toPrimitive]: () => id }
    return handle as unknown as NodeJS.Timeout
  }
  const remove = (handle: unknown): void => void timers.delete(Number(handle))

  Object.assign(globalThis, {
    setTimeout: (work: () => void, ms = 0) => add(work, ms, null),
    setInterval: (work: () => void, ms = 0) => add(work, ms, ms),
    clearTimeout: remove,
    clearInterval: remove,
  })
  t.teardown(() => void Object.assign(globalThis, real))

  function next(until: number): Timer | null {
    let first: Timer | null = null
    for (const timer of timers.values()) {
      if (timer.at <= until && (first === null || timer.at < first.at)) first = timer
    }
    return first
  }

  /** Runs everything that waits only for promises. */
  function settle(): Promise<void> {
    return new Promise((resolve) => setImmediate(resolve))
  }

  return {
    now: () => now,
    /** The wall clock and the monotonic clock of a process. The monotonic one starts at 0. */
    clock: { wall: () => now, monotonic: () => now - START_AT },
    settle,
    /** Stalls all processes: the clock moves and no timer runs. The next `advance` runs the overdue ones first. */
    stall(ms: number) {
      now += ms
    },
    /** Number of pending timers. */
    waiting: () => timers.size,
    /** Moves the clock forward, timer by timer, and runs the microtasks after each timer. */
    async advance(ms: number) {
      const until = now + ms
      await settle()
      for (let timer = next(until); timer !== null; timer = next(until)) {
        now = Math.max(now, timer.at)
        if (timer.every === null) timers.delete(timer.id)
        else timer.at = now + timer.every
        timer.work()
        await settle()
      }
      now = until
    },
  }
}
