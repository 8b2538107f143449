/** What the work comes to, or null where that takes longer than `ms`; the work goes on. */
export async function within<T>(work: Promise<T>, ms: number): Promise<T | null> {
  if (ms <= 0) return null
  let timer: NodeJS.Timeout | undefined
  const patience = new Promise<null>((resolve) => {
    timer = setTimeout(() => resolve(null), ms)
  })
  return await Promise.race([work, patience]).finally(() => clearTimeout(timer))
}
