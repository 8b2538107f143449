// Waits in real time: for a condition, or for a span.

/** Polls `look` every 10 ms. Returns the milliseconds until it is true; throws after `withinMs`. */
export async function until(
  what: string,
  look: () => boolean | Promise<boolean>,
  withinMs = 20_000,
): Promise<number> {
  const startedAt = performance.now()
  for (;;) {
    if (await look()) return performance.now() - startedAt
    if (performance.now() - startedAt > withinMs) throw new Error(`${what}: not within ${withinMs} ms`)
    await elapsed(10)
  }
}

/** Waits in real time, for tests of lifetimes and limits. */
export function elapsed(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
