import { type DestinationStream, type Logger as PinoLogger, pino } from 'pino'
import type { Config } from './config/config.ts'
import { describeError, describeRequest, describeResponse } from './log-text.ts'
import { stdoutWriter } from './stdout.ts'

/** A logger of the process; every line has an `event`. */
export type Logger = PinoLogger

/** Longest text of a library in a line, in characters. */
const MAX_LIBRARY_TEXT = 500

/**
 * The log of the process: JSON lines, on stdout unless there is another destination. Lines that nobody reads hold nothing
 * up: they wait, and beyond 8 MB they are dropped and counted.
 */
export function createLog(level: Config['logLevel'], destination?: DestinationStream): Logger {
  const options = {
    level,
    base: { pid: process.pid },
    timestamp: clock(),
    formatters: { level: (label: string) => ({ level: label }) },
    serializers: {
      req: describeRequest,
      res: describeResponse,
      err: (error: unknown) => describeError(error),
    },
  }
  if (destination !== undefined) return pino(options, destination)
  const writer = stdoutWriter()
  const log = pino(options, writer)
  writer.onFlow((lines) =>
    log.warn({ event: 'log.dropped', lines }, 'log lines were dropped: nothing read stdout, and 8 MB waited'),
  )
  return log
}

/** The time in pino's format, built once for all lines of a millisecond. */
function clock(): () => string {
  let at = 0
  let text = ''
  return () => {
    const now = Date.now()
    if (now !== at) text = `,"time":"${new Date(now).toISOString()}"`
    at = now
    return text
  }
}

/** Logs what a library or Node reports as text of its own. */
export function logLibraryMessage(log: Logger, text: string): void {
  log.warn({ event: 'library.message', text: text.slice(0, MAX_LIBRARY_TEXT) }, 'a library reports')
}

/** How log lines name the request behind an event: its id, and the address of its client by TRUST_PROXY. */
export interface RequestInLog {
  reqId: string
  address: string
}

/** The id and address of a request, for the log. */
export function requestInLog({ id, ip }: { id: string; ip: string }): RequestInLog {
  return { reqId: id, address: ip }
}
