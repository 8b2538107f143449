import type { Bindings } from 'pino'
import type { Logger } from '../log.ts'
import { messageOf, withoutQueries } from '../log-text.ts'

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
