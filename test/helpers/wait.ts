// Waits in real time: for a condition, or for a span. Measures what holds up this process.

/** Shorter than the time limit of the runner, so that the failure says what it waited for. No slow machine needs as long. */
export const PATIENCE_MS = 600_000

/** Polls `look`, at first every 10 ms, and seldomer the longer it takes: a look may be a request. Returns the milliseconds until it is true. */
export async function until(what: string, look: () => boolean | Promise<boolean>): Promise<number> {
  const startedAt = performance.now()
  for (;;) {
    if (await look()) return performance.now() - startedAt
    const waitedMs = performance.now() - startedAt
    if (waitedMs > PATIENCE_MS) throw new Error(`${what}: not within ${PATIENCE_MS} ms`)
    await elapsed(Math.min(10 + waitedMs / 10, 100))
  }
}

/** Waits in real time, for tests of lifetimes and limits. */
export function elapsed(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}

/** Holds up this process, without using the processor that others need. */
export function holdUp(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
}

/** Lets the event loop turn: what is in the sockets of this process now is read by then, however long the process was held up. */
export async function turns(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve))
}

const TICK_MS = 20

interface HeldUp {
  /** All in all, with the ordinary lateness of each timer. */
  readonly lateMs: number
  /** At once. */
  readonly longestMs: number
}

/**
 * Watches by how much timers of this process are late: what holds up a test on a busy machine holds up timers as well.
 * Returns a function that ends this and returns what there was.
 */
export function watchLateness(): () => HeldUp {
  let [lateMs, longestMs] = [0, 0]
  let dueAt = performance.now() + TICK_MS
  const look = (): void => {
    const now = performance.now()
    const late = Math.max(0, now - dueAt)
    lateMs += late
    longestMs = Math.max(longestMs, late)
    dueAt = now + TICK_MS
  }
  const timer = setInterval(look, TICK_MS)
  return () => {
    clearInterval(timer)
    look()
    return { lateMs, longestMs }
  }
}

/** More tries would hide a fault that a busy machine makes likely. */
const MOST_TRIES = 5

/**
 * Tries `work` again, at most four times, while it fails and this process was held up meanwhile for `heldUpMs` at once: a limit
 * of what is tested may have passed before its client could act.
 */
export async function unlessHeldUp<T>(heldUpMs: number, work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    const endWatch = watchLateness()
    try {
      const result = await work()
      endWatch()
      return result
    } catch (error) {
      if (endWatch().longestMs < heldUpMs || tries === MOST_TRIES) throw error
    }
  }
}
