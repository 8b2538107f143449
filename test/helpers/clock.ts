// A movable wall clock and monotonic clock for code that takes a Clock.

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
