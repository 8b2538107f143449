/**
 * A function that asks again after a question in progress, which may have been sent before what its caller wants to see.
 * Callers that wait for the same question get the same answer.
 */
export function oneAtATime(ask: () => Promise<void>): () => Promise<void> {
  let asking: Promise<void> | null = null
  return async () => {
    await asking
    asking ??= ask().finally(() => {
      asking = null
    })
    return asking
  }
}
