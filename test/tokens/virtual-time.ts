import type { Clock } from '../../src/clock.ts'
import type { Teardown } from '../helpers/child.ts'

/** A clock that only the test moves, for all code that uses timers while it is installed. */
export interface VirtualTime {
  now(): number
  /** The wall clock and the monotonic clock of a process. The monotonic one starts at 0. */
  readonly clock: Clock
  /** Moves the clock forward, timer by timer, and runs the microtasks after each timer. */
  advance(ms: number): Promise<void>
  /** Runs everything that waits only for promises. */
  settle(): Promise<void>
  /** Stalls all processes: the clock moves and no timer runs. The next `advance` runs the overdue ones first. */
  stall(ms: number): void
  /** Number of pending timers. */
  waiting(): number
}

interface Timer {
  id: number
  at: number
  every: number | null
  work: () => void
}

const START_AT = 1_700_000_000_000

const real = { setTimeout, clearTimeout, setInterval, clearInterval, setImmediate }

/** Replaces the timers until the test ends. Only for code that waits for nothing but timers and promises. */
export function installVirtualTime(t: Teardown): VirtualTime {
  const timers = new Map<number, Timer>()
  let now = START_AT
  let lastId = 0

  function add(work: () => void, ms: number, every: number | null): NodeJS.Timeout {
    lastId += 1
    const id = lastId
    timers.set(id, { id, at: now + Math.max(1, ms), every, work })
    const handle = {
      unref: () => handle,
      ref: () => handle,
      hasRef: () => true,
      [Symbol.toPrimitive]: () => id,
    }
    return handle as unknown as NodeJS.Timeout
  }
  const remove = (handle: unknown): void => {
    if (handle !== undefined && handle !== null) timers.delete(Number(handle))
  }

  globalThis.setTimeout = ((work: () => void, ms = 0) => add(work, ms, null)) as typeof setTimeout
  globalThis.setInterval = ((work: () => void, ms = 0) => add(work, ms, ms)) as typeof setInterval
  globalThis.clearTimeout = remove as typeof clearTimeout
  globalThis.clearInterval = remove as typeof clearInterval
  const restore = (): void => void Object.assign(globalThis, real)
  t.teardown(restore)

  function next(until: number): Timer | null {
    let first: Timer | null = null
    for (const timer of timers.values()) {
      if (timer.at <= until && (first === null || timer.at < first.at)) first = timer
    }
    return first
  }

  async function settle(): Promise<void> {
    await new Promise<void>((resolve) => real.setImmediate(resolve))
  }

  return {
    now: () => now,
    clock: { wall: () => now, monotonic: () => now - START_AT },
    settle,
    stall(ms) {
      now += ms
    },
    waiting: () => timers.size,
    async advance(ms) {
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
