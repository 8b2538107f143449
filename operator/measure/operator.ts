import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'

/** The operator has stopped the command. */
export class Stopped extends Error {}

/** The person at the terminal, or the lines of a program. */
export interface Operator {
  /** The next line; an empty one at the end of the input. Rejects with `Stopped`. */
  answer(): Promise<string>
  /** Throws `Stopped` if the operator has stopped the command. */
  check(): void
  /** `work`, or a rejection with `Stopped` as soon as the operator stops the command. */
  unlessStopped<T>(work: Promise<T>): Promise<T>
  close(): void
}

export function createOperator(input: Readable, stop: AbortSignal): Operator {
  const lines = createInterface({ input })
  const kept: string[] = []
  let ended = false
  let wake = (): void => {}
  lines.on('line', (line) => {
    kept.push(line)
    wake()
  })
  lines.on('close', () => {
    ended = true
    wake()
  })
  const stopped = new Promise<never>((_resolve, reject) => {
    const onAbort = (): void => reject(new Stopped())
    if (stop.aborted) onAbort()
    else stop.addEventListener('abort', onAbort, { once: true })
  })
  // It may never be raced.
  stopped.catch(() => {})
  const unlessStopped = <T>(work: Promise<T>): Promise<T> => Promise.race([work, stopped])

  return {
    unlessStopped,
    check() {
      if (stop.aborted) throw new Stopped()
    },
    async answer() {
      while (kept.length === 0 && !ended)
        await unlessStopped(
          new Promise<void>((resolve) => {
            wake = resolve
          }),
        )
      return kept.shift()?.trim() ?? ''
    },
    close: () => lines.close(),
  }
}
