/**
 * The two clocks of a process. Instants that are stored or compared with other machines are wall time. Every
 * wait is measured by the monotonic clock, since a wall clock may step by an hour.
 */
export interface Clock {
  /** Epoch milliseconds. */
  wall(): number
  /** Milliseconds since an arbitrary instant; never steps. */
  monotonic(): number
}

export const SYSTEM_CLOCK: Clock = {
  wall: () => Date.now(),
  monotonic: () => performance.now(),
}
