import type { Clock } from '../../src/clock.ts'

/** The clocks of this process, as a test moves them. */
export interface MovableClock extends Clock {
  /** Time passes, for both clocks. */
  pass(ms: number): void
  /** The wall clock alone is set, as NTP does it. */
  step(ms: number): void
}

/** Clocks that run as the system's do, from where they were moved. */
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
