/** The result of `work`, or null if it takes longer than `ms`; the work goes on. */
export async function withTimeout<T>(work: Promise<T>, ms: number): Promise<T | null> {
  if (ms <= 0) return null
  let timer: NodeJS.Timeout | undefined
  const timeout = new Promise<null>((resolve) => {
    timer = setTimeout(() => resolve(null), ms)
  })
  return await Promise.race([work, timeout]).finally(() => clearTimeout(timer))
}
