// A movable wall clock and monotonic clock for code that takes a Clock, and the wall clock of this process.

import type { Teardown } from './child.ts'

/** Clocks that run at the speed of the system clocks, plus what the test added. */
export function createMovableClock() {
  let passed = 0
  return {
    wall: () => Date.now() + passed,
    monotonic: () => performance.now() + passed,
    pass(ms: number): void {
      passed += ms
    },
  }
}

/** Sets the wall clock of this process, and so of servers in it, off by the milliseconds that the returned function is given. */
export function offsetWallClock(t: Teardown): (ms: number) => void {
  const { now } = Date
  let offsetMs = 0
  Date.now = () => now() + offsetMs
  t.teardown(() => {
    Date.now = now
  })
  return (ms) => {
    offsetMs = ms
  }
}
