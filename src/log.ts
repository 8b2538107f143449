import { readFileSync } from 'node:fs'
import { SourceMap } from 'node:module'
import { type Bindings, type DestinationStream, type Logger as PinoLogger, pino } from 'pino'
import type { Config } from './config/config.ts'
import { decoded, PATHS } from './paths.ts'

/** A logger of the process; every line has an `event`. */
export type Logger = PinoLogger

/** Longest text of a request in a line, in characters. */
const MAX_TEXT = 200
/** Longest text of a library in a line, in characters. */
const MAX_LIBRARY_TEXT = 500
/** Processes may share a pipe, which may split longer writes (POSIX: PIPE_BUF). */
const MAX_WRITE_BYTES = 4_096
/** Depth of logged causes; an error can be its own cause. */
const MAX_CAUSES = 4

/**
 * The log of the process: JSON lines on stdout. A request is logged by method and path, never by query, cookie,
 * header or body, which hold codes and session ids. An error is logged by type, message, code, stack and causes,
 * never by other properties: libraries add commands with passwords.
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

type Method = 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal'

/**
 * The log of one request, for handlers, plugins and Fastify itself: each line has the request's id. It becomes a logger
 * of pino's with the first line, so a request without one pays next to nothing.
 */
export class RequestLog {
  readonly #make: () => Logger
  #made: Logger | undefined

  /** `make`: the logger of pino's, with its bindings. */
  constructor(make: () => Logger) {
    this.#make = make
  }

  /** For the request of this id. */
  static of(log: Logger, reqId: string): RequestLog {
    return new RequestLog(() => log.child({ event: 'server', reqId }, { redact: HOLD_SECRETS }))
  }

  get level(): string {
    return this.#pino().level
  }

  trace(...line: unknown[]): void {
    this.#write('trace', line)
  }
  debug(...line: unknown[]): void {
    this.#write('debug', line)
  }
  info(...line: unknown[]): void {
    this.#write('info', line)
  }
  warn(...line: unknown[]): void {
    this.#write('warn', line)
  }
  error(...line: unknown[]): void {
    this.#write('error', line)
  }
  fatal(...line: unknown[]): void {
    this.#write('fatal', line)
  }
  silent(): void {}

  child(bindings: Bindings): RequestLog {
    return new RequestLog(() => this.#pino().child(bindings))
  }

  #write(method: Method, line: unknown[]): void {
    const [first, ...more] = line.map((part) => (typeof part === 'string' ? withoutQueries(part) : part))
    const members = first instanceof Error ? { err: first } : first
    const error = (members as { err?: unknown } | undefined)?.err
    // Without a text pino would take that of the error as it is.
    const texts = more.length === 0 && error instanceof Error ? [messageOf(error)] : more
    this.#pino()[method](members as object, ...(texts as []))
  }

  #pino(): Logger {
    this.#made ??= this.#make()
    return this.#made
  }
}

/** Members of requests and responses that no line may hold, for plugins that log them as they are. */
const HOLD_SECRETS = [
  'url',
  'originalUrl',
  'raw',
  'headers',
  'rawHeaders',
  'cookies',
  'cookie',
  'query',
  'body',
  'session',
  'authorization',
].flatMap((name) => [name, `*.${name}`])

/** Fastify names whole addresses in some of its messages. */
function withoutQueries(text: string): string {
  return text.replace(/[^\s"']+/g, (word) => (word.startsWith('/') ? pathOf(word) : word))
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

let stdout: DestinationStream | null = null

/**
 * Stdout that writes all lines of one turn of the event loop at once, and the rest when the process ends: a
 * write for each line costs more than building it.
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
      // flushSync would retry for ever when nobody reads the pipe or the disk is full.
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
    stack: stack === undefined ? undefined : withSourcePlaces(withoutQueries(withoutArguments(stack))),
    ...(cause !== undefined && depth < MAX_CAUSES ? { cause: describeError(cause, depth + 1) } : {}),
  }
}

/** The message of an error, without the command arguments that Redis repeats (they may be credentials) and without queries. */
export function messageOf(error: Error): string {
  return withoutQueries(withoutArguments(error.message))
}

function withoutArguments(text: string): string {
  return text.replace(/, with args beginning with:.*/g, '')
}

/** The stack with the places of `src/` for those of the bundle. Node can do so too, for 10 MB of memory. */
function withSourcePlaces(stack: string): string {
  return stack.replace(/(file:\/\/[^\s()]+\.js):(\d+):(\d+)/g, (place, url: string, line, column) => {
    const origin = sourceMapOf(url)?.findOrigin(Number(line), Number(column))
    // Packages have no places in the map.
    if (origin === undefined || !('fileName' in origin) || !origin.fileName.includes('/src/')) return place
    return `${origin.fileName}:${origin.lineNumber}:${origin.columnNumber}`
  })
}

/** Source maps of the bundle by its files; null for a file without one. */
const sourceMaps = new Map<string, SourceMap | null>()

function sourceMapOf(url: string): SourceMap | null {
  let map = sourceMaps.get(url)
  if (map === undefined) {
    map = readSourceMap(url)
    sourceMaps.set(url, map)
  }
  return map
}

function readSourceMap(url: string): SourceMap | null {
  try {
    return new SourceMap(JSON.parse(readFileSync(new URL(`${url}.map`), 'utf8')))
  } catch {
    return null
  }
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

const CALLBACK_PREFIX = `${PATHS.callback}/`

/** The path of a request target for a log line: without query and nonce, cut to `MAX_TEXT`. */
export function pathOf(url: string): string {
  const end = url.search(/[?#]/)
  const path = end < 0 ? url : url.slice(0, end)
  // The path of the callback ends in the nonce of a sign-in, which the log must not hold. The router decodes paths.
  const routed = path.includes('%') ? (decoded(path, decodeURI) ?? path) : path
  const holdsNonce = routed.startsWith(CALLBACK_PREFIX) && routed.length > CALLBACK_PREFIX.length
  return holdsNonce ? `${CALLBACK_PREFIX}-` : path.slice(0, MAX_TEXT)
}
