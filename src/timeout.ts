/** The result of `work`, or null if it takes longer than `ms`; the work goes on. */
export async function withTimeout<T>(work: Promise<T>, ms: number): Promise<T | null> {
  if (ms <= 0) return null
  let stop = (): void => {}
  const timeout = new Promise<null>((resolve) => {
    stop = afterReading(ms, () => resolve(null))
  })
  return await Promise.race([work, timeout]).finally(stop)
}

/**
 * Calls back after `ms`, unless the function that it returns is called before. What came in that time is read first: in a
 * process that was held up timers run before sockets are read.
 */
export function afterReading(ms: number, callback: () => void): () => void {
  let immediate: NodeJS.Immediate | undefined
  const timer = setTimeout(() => {
    immediate = setImmediate(callback)
  }, ms)
  return () => {
    clearTimeout(timer)
    clearImmediate(immediate)
  }
}

/** Like `AbortSignal.timeout`, but what came in that time is read first. */
export function timeoutSignal(ms: number): AbortSignal {
  const controller = new AbortController()
  const reason = 'The operation was aborted due to timeout'
  const abort = (): void => controller.abort(new DOMException(reason, 'TimeoutError'))
  setTimeout(() => setImmediate(abort), ms).unref()
  return controller.signal
}
