import { format } from 'node:util'
import { type Logger, logLibraryMessage } from '../log.ts'

/** From now on text that libraries and Node print goes to the log, one line of JSON each. */
export function captureLibraryOutput(log: Logger): void {
  const capture = (...parts: unknown[]): void => logLibraryMessage(log, format(...parts))
  for (const name of ['log', 'info', 'warn', 'error', 'debug', 'trace'] as const) console[name] = capture
  // Node's own listener prints the warning on stderr.
  process.removeAllListeners('warning')
  process.on('warning', ({ name, message }) => capture(`${name}: ${message}`))
}
