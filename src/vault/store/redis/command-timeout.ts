import { afterReading } from '../../../timeout.ts'

/** Requests have to learn within a second that the store does not reply. */
export const COMMAND_TIMEOUT_MS = 800
/** The part of it that begins only when the process runs, so that a stalled one leaves this time for a reply. */
export const LAST_STEP_MS = 100

/**
 * The reply to a command, or a rejection after `withinMs`: 0.8 s, or what is left of it for the second command of a step.
 * A process that resumes still takes a reply that waits in its socket: timers run before sockets are read, so the timeout
 * of ioredis would reject it.
 */
export function inTime<T>(reply: Promise<T>, withinMs = COMMAND_TIMEOUT_MS): Promise<T> {
  const lastMs = Math.min(LAST_STEP_MS, withinMs)
  return new Promise((resolve, reject) => {
    const giveUp = (): void => reject(new Error('no reply in time'))
    // In two steps: in a process that is stalled the command leaves only after the first timer has fired.
    const timer = setTimeout(() => {
      stop = afterReading(lastMs, giveUp)
    }, withinMs - lastMs)
    let stop = (): void => clearTimeout(timer)
    reply.then(
      (value) => {
        stop()
        resolve(value)
      },
      (error: Error) => {
        stop()
        reject(error)
      },
    )
  })
}
