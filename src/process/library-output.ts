import { format } from 'node:util'
import type { Logger } from '../log.ts'

/** From now on text that libraries and Node print goes to the log, one line of JSON each. */
export function captureLibraryOutput(log: Logger): void {
  const capture = (...parts: unknown[]): void =>
    log.warn({ event: 'library.message', text: format(...parts).slice(0, MAX_TEXT) }, 'a library reports')
  for (const name of ['log', 'info', 'warn', 'error', 'debug', 'trace'] as const) console[name] = capture
  // Node's own listener prints the warning on stderr.
  process.removeAllListeners('warning')
  process.on('warning', ({ name, message }) => capture(`${name}: ${message}`))
}

const MAX_TEXT = 500
