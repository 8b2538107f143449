/** A request must be told within a second that the store does not answer. */
const COMMAND_TIMEOUT_MS = 800
const LAST_MS = 100

/**
 * The store's answer to a command, or a rejection after 0.8 s; the command may run all the same. A process
 * that was held up takes the answer that came meanwhile or comes at once: timers run before sockets are
 * read, which is why the library's own limit would call it late.
 */
export function inTime<T>(answer: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const giveUp = (): void => reject(new Error('no answer in time'))
    // In two steps: the command may have left no sooner than the first of them ends.
    const lastStep = (): void => {
      timer = setTimeout(() => setImmediate(giveUp), LAST_MS)
    }
    let timer = setTimeout(lastStep, COMMAND_TIMEOUT_MS - LAST_MS)
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
