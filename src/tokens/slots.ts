/** A semaphore: bounds how many token requests run at once, first come first served. */
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
