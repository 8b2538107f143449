import net, { type Socket } from 'node:net'
import { Agent, buildConnector, Client, type Dispatcher, Pool } from 'undici'
import { type Egress, type EgressProxy, proxyFor } from '../config/egress.ts'
import { sharedLookup, throughProxy } from '../egress.ts'
import { type HttpResponse, NoTokenResponse } from './token-response.ts'

/** Bounds of one token request. */
export interface RequestBounds {
  /** By the monotonic clock: a request whose first byte has not been written by then is not sent. */
  sendBefore: number
  /** Resets the connection, so that nothing more is delivered on it in either direction. */
  signal: AbortSignal
}

/** What openid-client passes to its `customFetch`. */
interface FetchOptions {
  body?: unknown
  headers: Record<string, string>
  method: string
}

/** A token response is a few kilobytes; a larger one is not a token response. */
const MAX_RESPONSE_BYTES = 65_536

/** So long after its begin a connection carries its last request: in a steady stream it never idles, while its name may lead elsewhere. */
const CONNECTION_LIFE_MS = 60_000

/** How long no connection is reused once the server has ended one so soon. */
const NO_REUSE_MS = 600_000

/** In place of a body of which nothing arrived. */
const CUT_OFF = Buffer.from('cut off')

/**
 * Sends the requests of openid-client over undici's dispatch. That costs a quarter of `fetch`, and shows whether a
 * failed request had been written. Rejects with `NoTokenResponse`. Follows no redirect.
 */
export function createTokenFetch({
  connections,
  timeoutMs,
  egress,
  monotonic,
  onDate,
  onBody,
}: {
  connections: number
  /** Limits the time in which a connection is made, whatever number of addresses is tried. */
  timeoutMs: number
  egress: Egress
  monotonic: () => number
  /** Called with the server's `Date` in epoch milliseconds, and how long the request took. */
  onDate: (date: number, elapsedMs: number) => void
  /** Called with each body as it came. */
  onBody: (body: string) => void
}) {
  const options = {
    connections,
    pipelining: 1,
    // A request on a socket that the other side has just closed leaves the refresh token in doubt, so a socket is
    // reused only soon after its last response.
    keepAliveTimeout: 1_000,
    // Without this a server could ask for a longer time.
    keepAliveMaxTimeout: 1_000,
    // The signal bounds the whole call.
    headersTimeout: 0,
    bodyTimeout: 0,
  }
  // One connector for all connections, which share its TLS sessions. TLS checks are set here, so that no environment
  // variable of Node switches them off.
  const connector = buildConnector({ timeout: timeoutMs, rejectUnauthorized: true, lookup: sharedLookup })
  let reuseAfter = Number.NEGATIVE_INFINITY
  // Some servers end each connection after its response without announcing it, as the next request leaves. One that is
  // idle is ended here before such a server would.
  function noteEnd(_origin: URL, _clients: unknown, error: Error): void {
    if (error.message === 'other side closed') reuseAfter = monotonic() + NO_REUSE_MS
  }
  const agent = new Agent({
    ...options,
    factory(origin) {
      const proxy = proxyFor(egress, origin)
      return new Pool(origin, {
        ...options,
        factory: (origin) =>
          new ResettableClient(origin, options, { connector, proxy, timeoutMs, monotonic }).on(
            'disconnect',
            noteEnd,
          ),
      })
    },
  })

  return {
    /** Sends one request within these bounds. */
    within: (bounds: RequestBounds) => async (url: string, options: FetchOptions) => {
      const sentAt = monotonic()
      const request = { url: new URL(url), options, bounds, isLast: sentAt < reuseAfter }
      const response = await exchange(request, agent, monotonic)
      const date = Date.parse(response.headers.date ?? '')
      if (!Number.isNaN(date)) onDate(date, monotonic() - sentAt)
      onBody(response.body)
      return response
    },
    /** Closes every connection. */
    close: () => agent.destroy(),
  }
}

/** Dispatch options that tell the caller how to reset the connection that its request is on. */
type ResettableOptions = Dispatcher.DispatchOptions & { onConnection?: (reset: () => void) => void }

/** How a connection is made; `proxy` null: straight to the target. */
interface Reach {
  connector: buildConnector.connector
  proxy: EgressProxy | null
  timeoutMs: number
  monotonic: () => number
}

/** A client of one connection at a time that can be reset: `close` alone would still deliver what the kernel has buffered. */
class ResettableClient extends Client {
  readonly #connection: { socket: Socket | null; begunAt: number }
  readonly #monotonic: () => number

  constructor(
    origin: string | URL,
    options: Client.Options,
    { connector, proxy, timeoutMs, monotonic }: Reach,
  ) {
    const connection = { socket: null as Socket | null, begunAt: Number.POSITIVE_INFINITY }
    super(origin, {
      ...options,
      connect(target, done) {
        connection.begunAt = monotonic()
        if (proxy !== null) {
          connection.socket = throughProxy(proxy, connector, timeoutMs)(target, done)
          return
        }
        // Only a plain TCP socket can be reset, so TLS gets one of ours to work on.
        const tcp =
          target.protocol === 'https:'
            ? net.connect({
                host: target.hostname,
                port: Number(target.port || 443),
                noDelay: true,
                lookup: sharedLookup,
              })
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
    this.#monotonic = monotonic
    this.on('disconnect', () => {
      connection.begunAt = Number.POSITIVE_INFINITY
    })
  }

  override dispatch(options: ResettableOptions, handler: Dispatcher.DispatchHandler): boolean {
    options.onConnection?.(() => this.#connection.socket?.resetAndDestroy())
    const isOld = this.#monotonic() - this.#connection.begunAt >= CONNECTION_LIFE_MS
    return super.dispatch(isOld ? { ...options, reset: true } : options, handler)
  }
}

function exchange(
  /** `isLast`: its connection is used for no other request. */
  request: { url: URL; options: FetchOptions; bounds: RequestBounds; isLast: boolean },
  agent: Dispatcher,
  monotonic: () => number,
): Promise<HttpResponse> {
  const { url, isLast } = request
  const { body, headers, method } = request.options
  const { sendBefore, signal } = request.bounds
  return new Promise((resolve, reject) => {
    let sent = false
    let resetConnection = (): void => {}
    let givenUp = false
    let controller: Dispatcher.DispatchController | null = null
    const chunks: Buffer[] = []
    let size = 0
    let status = 0
    const responseHeaders: Record<string, string> = {}
    const timer = setTimeout(
      () => {
        if (!sent) fail(tooLate())
      },
      Math.max(0, sendBefore - monotonic()),
    )

    function stopListening(): void {
      clearTimeout(timer)
      signal.removeEventListener('abort', onAbort)
    }
    function finish(): void {
      stopListening()
      resolve({ status, headers: responseHeaders, body: Buffer.concat(chunks).toString('utf8') })
    }
    function fail(cause: unknown): void {
      if (givenUp) return
      givenUp = true
      stopListening()
      // A status that reports an error needs no body, but one that did not arrive is not an empty one.
      if (status >= 300) {
        if (size === 0) chunks.push(CUT_OFF)
        finish()
      } else reject(new NoTokenResponse(sent, cause))
      // Once a response has begun nothing waits unsent, and undici would take a reset for the end of its body.
      if (sent && status < 200) resetConnection()
      controller?.abort(cause instanceof Error ? cause : new Error('aborted'))
    }
    function onAbort(): void {
      fail(signal.reason)
    }
    signal.addEventListener('abort', onAbort, { once: true })

    const handler: Dispatcher.DispatchHandler = {
      onRequestStart(started) {
        // It was given up while it waited for a connection, or the process was stopped: it must not be written now.
        if (givenUp || signal.aborted || monotonic() >= sendBefore) {
          // Before the abort, which reports an error of its own.
          fail(tooLate())
          return started.abort(new Error('given up'))
        }
        controller = started
        sent = true
      },
      onResponseStart(_controller, statusCode, received) {
        status = statusCode
        for (const [name, value] of Object.entries(received)) {
          if (value !== undefined) responseHeaders[name] = Array.isArray(value) ? value.join(', ') : value
        }
      },
      onResponseData(_controller, chunk) {
        size += chunk.length
        if (size > MAX_RESPONSE_BYTES) fail(new TooLarge())
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
      // Nothing here decodes a response.
      headers: { ...headers, 'accept-encoding': 'identity' },
      body: body === undefined || body === null ? null : String(body),
      reset: isLast,
    }
    agent.dispatch(dispatched, handler)
  })
}

/** Its message is logged. */
class TooLarge extends Error {
  readonly code = `the response is larger than ${MAX_RESPONSE_BYTES} bytes`
}

function tooLate(): DOMException {
  return new DOMException('it could not be sent in time', 'TimeoutError')
}
