/** A request must be told within a second that the store does not answer. */
const COMMAND_TIMEOUT_MS = 800

/**
 * The store's answer to a command, or a rejection after 0.8 s; the command may run all the same. A process
 * that was held up takes an answer that came meanwhile: its timers run before it reads its sockets, which
 * is why the library's own limit would call it late.
 */
export function inTime<T>(answer: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const giveUp = (): void => reject(new Error('no answer in time'))
    const timer = setTimeout(() => setImmediate(giveUp), COMMAND_TIMEOUT_MS)
    answer.then(
      (value) => {
        clearTimeout(timer)
        resolve(value)
      },
      (error: Error) => {
        clearTimeout(timer)
        reject(error)
      },
    )
  })
}
