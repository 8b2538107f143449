import { once } from 'node:events'
import type { Writable } from 'node:stream'

/** Where a command says what it found, and how far it is. */
export interface Terminal {
  /** One line of the answer. */
  say(line: string): Promise<void>
  /** What is no answer: faults, warnings. */
  note(line: string): void
  /** How many are done; at most one note a second. */
  progress(done: number, what: string): void
}

const PROGRESS_EVERY_MS = 1_000

/** `elapsed`: milliseconds since any instant. */
export function createTerminal(out: Writable, err: Writable, elapsed: () => number): Terminal {
  let toldAt = elapsed()
  return {
    async say(line) {
      if (!out.write(`${line}\n`)) await once(out, 'drain')
    },
    note: (line) => void err.write(`${line}\n`),
    progress(done, what) {
      if (elapsed() - toldAt < PROGRESS_EVERY_MS) return
      toldAt = elapsed()
      err.write(`${done} ${what} so far\n`)
    },
  }
}
