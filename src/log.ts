import { type DestinationStream, type Logger, pino } from 'pino'
import type { Config } from './config/config.ts'
import { PATHS } from './paths.ts'

export type { Logger }

/** Longest text of a request in one line. */
const MAX_TEXT = 200
/** Workers share a pipe, and what is longer than this may be torn apart there (POSIX: PIPE_BUF). */
const MAX_WRITE_BYTES = 4_096
/** Causes of causes that are described; one can be its own. */
const MAX_CAUSES = 4

/**
 * The log of the process: JSON lines on stdout. Requests are described by method and path alone,
 * never by query, cookie, header or body, since these hold codes and session ids; errors by type,
 * message, code, stack and causes, and not by what libraries hang on them, such as a command with
 * its password.
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
  stdout ??= stdoutByTurns()
  return pino(options, stdout)
}

/** The time as pino wants it; made once for all lines of a millisecond. */
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

let stdout: DestinationStream | null = null

/**
 * Stdout, to which the lines of one turn of the event loop go together at its end, or before the process
 * ends: writing each by itself costs more than making it.
 */
function stdoutByTurns(): DestinationStream {
  const lines = pino.destination({
    dest: process.stdout.fd,
    sync: true,
    minLength: MAX_WRITE_BYTES / 2,
    maxWrite: MAX_WRITE_BYTES,
  })
  let waiting = false
  const endTurn = (): void => {
    waiting = false
    lines.flush()
  }
  process.on('exit', () => {
    try {
      // Not flushSync, which tries for ever where nobody reads any more or the disk is full.
      lines.flush()
    } catch {}
  })
  return {
    write(line) {
      lines.write(line)
      if (!waiting) setImmediate(endTurn)
      waiting = true
    },
  }
}

function describeRequest(request: { method?: string; url?: string; id?: unknown }): object {
  return { id: request.id, method: request.method, path: pathOf(request.url ?? '') }
}

function describeResponse(response: { statusCode?: number }): object {
  return { status: response.statusCode }
}

function describeError(error: unknown, depth = 0): object {
  if (!(error instanceof Error)) return { message: String(error).slice(0, MAX_TEXT) }
  const { stack, cause } = error
  return {
    type: error.constructor.name,
    message: messageOf(error),
    ...('code' in error && typeof error.code === 'string' ? { code: error.code } : {}),
    stack: stack === undefined ? undefined : withoutArguments(stack),
    ...(cause !== undefined && depth < MAX_CAUSES ? { cause: describeError(cause, depth + 1) } : {}),
  }
}

/** What an error says, without the arguments of a command that Redis repeats: these may be credentials. */
export function messageOf(error: Error): string {
  return withoutArguments(error.message)
}

function withoutArguments(text: string): string {
  return text.replace(/, with args beginning with:.*/g, '')
}

const CALLBACK_PREFIX = `${PATHS.callback}/`

/** The path of a request target for a log line: without query and nonce, cut to `MAX_TEXT`. */
export function pathOf(url: string): string {
  const end = url.search(/[?#]/)
  const path = end < 0 ? url : url.slice(0, end)
  // The path of the callback ends in the nonce of a sign-in, which the log must not hold.
  const holdsNonce = path.startsWith(CALLBACK_PREFIX) && path.length > CALLBACK_PREFIX.length
  return holdsNonce ? `${CALLBACK_PREFIX}-` : path.slice(0, MAX_TEXT)
}
