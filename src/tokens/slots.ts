/**
 * A semaphore, first come first served: bounds the refreshes for which a caller still waits. A refresh without a
 * response in time gives its slot back. Sign-ins and the application's own token take none.
 */
export interface Slots {
  take(): Promise<() => void>
  free(): number
}

export function createSlots(count: number): Slots {
  let free = count
  const waiting: (() => void)[] = []

  function release(): void {
    const next = waiting.shift()
    if (next === undefined) free += 1
    else next()
  }

  function once(): () => void {
    let released = false
    return () => {
      if (!released) release()
      released = true
    }
  }

  return {
    async take() {
      if (free > 0) free -= 1
      else await new Promise<void>((resolve) => waiting.push(resolve))
      return once()
    },
    free: () => free,
  }
}
