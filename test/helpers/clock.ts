// A movable wall clock and monotonic clock for code that takes a Clock.

import type { Clock } from '../../src/clock.ts'

/** The clocks of this process, which a test can move. */
export interface MovableClock extends Clock {
  /** Moves both clocks forward. */
  pass(ms: number): void
  /** Sets the wall clock only, as NTP does. */
  step(ms: number): void
}

/** Clocks that run at the speed of the system clocks, plus what the test added. */
export function createMovableClock(): MovableClock {
  let passed = 0
  let stepped = 0
  return {
    wall: () => Date.now() + passed + stepped,
    monotonic: () => performance.now() + passed,
    pass(ms) {
      passed += ms
    },
    step(ms) {
      stepped += ms
    },
  }
}
