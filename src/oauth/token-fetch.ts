import net, { type Socket } from 'node:net'
import { Agent, buildConnector, Client, type Dispatcher, Pool } from 'undici'
import { hasErrorCode, tidyTokenAnswer } from './tidy.ts'

/** The token endpoint gave no readable answer. `sent`: the request may have reached it. */
export class NoAnswer extends Error {
  readonly sent: boolean
  readonly timedOut: boolean

  constructor(sent: boolean, cause: unknown) {
    super(`${sent ? 'no readable answer came' : 'the request never left'} (${codeOf(cause)})`, { cause })
    this.name = 'NoAnswer'
    this.sent = sent
    this.timedOut = cause instanceof Error && /Timeout/.test(cause.name)
  }
}

/** A name that a program gave the failure: free of texts of the other side, so it may be logged. */
function codeOf(cause: unknown): string {
  if (!(cause instanceof Error)) return 'unknown'
  const { code } = cause as NodeJS.ErrnoException
  return typeof code === 'string' ? code : cause.name
}

/** What openid-client hands to its `customFetch`. */
export interface FetchOptions {
  body?: unknown
  headers: Record<string, string>
  method: string
  signal?: AbortSignal | undefined
}

const CONNECT_TIMEOUT_MS = 5_000

/** Bounds of one token request. */
export interface RequestBounds {
  /** By the monotonic clock: a request whose first byte has not been written by then is not sent. */
  sendBefore: number
  /** Resets the connection, so that nothing more is delivered on it in either direction. */
  signal?: AbortSignal
}

/** A token response is a few kilobytes; more than this is not one. */
const MAX_ANSWER_BYTES = 65_536

/**
 * `fetch` for openid-client over undici's dispatch: a quarter of the cost of the built-in one, and it
 * knows whether a request that failed had been written. Rejects with `NoAnswer`. Follows no redirect.
 */
export function createTokenHttp({
  connections,
  monotonic,
}: {
  connections: number
  monotonic: () => number
}) {
  const options = {
    connections,
    pipelining: 1,
    // A request written to a socket that the other side has just closed leaves a doubt about the
    // refresh token, so a socket is used again only soon after its last answer.
    keepAliveTimeout: 1_000,
    // Without this a server could ask for a longer time.
    keepAliveMaxTimeout: 1_000,
    // The signal and the caller bound the whole call.
    headersTimeout: 0,
    bodyTimeout: 0,
  }
  // One for all connections, which share its TLS sessions. Checks are set here, so that no environment variable of Node
  // switches them off.
  const connector = buildConnector({ timeout: CONNECT_TIMEOUT_MS, rejectUnauthorized: true })
  const agent = new Agent({
    ...options,
    factory: (origin) =>
      new Pool(origin, { ...options, factory: (origin) => new ResettableClient(origin, options, connector) }),
  })

  const tokenFetch = (bounds: RequestBounds) => async (url: string, options: FetchOptions) => {
    const answer = await exchange(agent, new URL(url), options, bounds, monotonic)
    const { status, headers, body } = answer
    const tidied = status === 200 ? tidyTokenAnswer(body) : null
    if (tidied !== null || (status !== 200 && hasErrorCode(body))) {
      // openid-client reads neither a body of another type nor one that comes with a challenge.
      headers.set('content-type', 'application/json')
      headers.delete('www-authenticate')
    }
    const nullBody = status === 204 || status === 304
    return new Response(nullBody ? null : (tidied ?? body), { status, headers })
  }

  return {
    /** A `fetch` for one request within these bounds. */
    tokenFetch,
    /** Closes every connection. */
    close: () => agent.destroy(),
  }
}

/** Dispatch options that tell the caller how to reset the connection that its request is on. */
type ResettableOptions = Dispatcher.DispatchOptions & { onConnection?: (reset: () => void) => void }

/** A client of one connection at a time, which can be reset: `close` alone would still deliver what waits in the kernel. */
class ResettableClient extends Client {
  readonly #connection: { socket: Socket | null }

  constructor(origin: string | URL, options: Client.Options, connector: buildConnector.connector) {
    const connection: { socket: Socket | null } = { socket: null }
    super(origin, {
      ...options,
      connect(target, done) {
        // Only a plain TCP socket can be reset, so TLS gets one of ours to work on.
        const tcp =
          target.protocol === 'https:'
            ? net.connect({ host: target.hostname, port: Number(target.port || 443), noDelay: true })
            : null
        const secured = tcp === null ? target : { ...target, httpSocket: tcp }
        connector(secured as buildConnector.Options, (...[error, socket]) => {
          connection.socket = tcp ?? socket
          if (error !== null) {
            tcp?.destroy()
            done(error, null)
          } else done(null, socket)
        })
      },
    })
    this.#connection = connection
  }

  override dispatch(options: ResettableOptions, handler: Dispatcher.DispatchHandler): boolean {
    options.onConnection?.(() => this.#connection.socket?.resetAndDestroy())
    return super.dispatch(options, handler)
  }
}

interface Answer {
  status: number
  headers: Headers
  body: string
}

function exchange(
  agent: Dispatcher,
  url: URL,
  { body, headers, method, signal: timeout }: FetchOptions,
  { sendBefore, signal }: RequestBounds,
  monotonic: () => number,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    let sent = false
    let resetConnection = (): void => {}
    let givenUp = false
    let controller: Dispatcher.DispatchController | null = null
    const chunks: Buffer[] = []
    let size = 0
    let status = 0
    const answerHeaders = new Headers()
    const timer = setTimeout(
      () => {
        if (!sent) fail(tooLate())
      },
      Math.max(0, sendBefore - monotonic()),
    )

    function stopListening(): void {
      clearTimeout(timer)
      signal?.removeEventListener('abort', onReset)
      timeout?.removeEventListener('abort', onTimeout)
    }
    function finish(): void {
      stopListening()
      // Decoded already, whatever these say of the bytes on the wire.
      answerHeaders.delete('content-length')
      resolve({ status, headers: answerHeaders, body: Buffer.concat(chunks).toString('utf8') })
    }
    function fail(cause: unknown): void {
      if (givenUp) return
      givenUp = true
      stopListening()
      // A status that says no says it without its body.
      if (status >= 300) finish()
      else reject(new NoAnswer(sent, cause))
      // With an answer begun nothing waits unsent, and undici would take a reset for the end of its body.
      if (sent && status < 200) resetConnection()
      controller?.abort(cause instanceof Error ? cause : new Error('aborted'))
    }
    function onReset(): void {
      fail(signal?.reason)
    }
    function onTimeout(): void {
      fail(timeout?.reason)
    }
    signal?.addEventListener('abort', onReset, { once: true })
    timeout?.addEventListener('abort', onTimeout, { once: true })

    const handler: Dispatcher.DispatchHandler = {
      onRequestStart(started) {
        // Given up while it waited for a connection, or the process was stopped meanwhile: it must not be written now.
        if (givenUp || signal?.aborted || monotonic() >= sendBefore) {
          started.abort(new Error('given up'))
          return fail(tooLate())
        }
        controller = started
        sent = true
      },
      onResponseStart(_controller, statusCode, received) {
        status = statusCode
        for (const [name, value] of Object.entries(received)) {
          if (value !== undefined) answerHeaders.set(name, Array.isArray(value) ? value.join(', ') : value)
        }
      },
      onResponseData(_controller, chunk) {
        size += chunk.length
        if (size > MAX_ANSWER_BYTES) fail(new Error('the answer is too large'))
        else chunks.push(chunk)
      },
      onResponseEnd: finish,
      onResponseError(_controller, error) {
        fail(error)
      },
    }
    const dispatched: ResettableOptions = {
      onConnection: (reset) => {
        resetConnection = reset
      },
      origin: url.origin,
      path: url.pathname + url.search,
      method: method as Dispatcher.HttpMethod,
      // Nothing here decodes an answer.
      headers: { ...headers, 'accept-encoding': 'identity' },
      body: body === undefined || body === null ? null : String(body),
    }
    agent.dispatch(dispatched, handler)
  })
}

function tooLate(): DOMException {
  return new DOMException('it could not be sent in time', 'TimeoutError')
}
