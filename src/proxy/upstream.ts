import { type buildConnector, Client, type Dispatcher, Pool } from 'undici'

/** What is known of the connection that a request was given. One request at a time uses it. */
export interface Connection {
  /** It has carried an answer before, so it may have been closed at the far end meanwhile. */
  answered: boolean
  /** The socket failed. undici takes that for a normal end where the body ends with the connection. */
  broken: boolean
}

/** A request to the resource server; its connection is noted on `exchange` as soon as it is chosen. */
export interface UpstreamRequest extends Dispatcher.DispatchOptions {
  exchange: { connection: Connection }
}

export interface Upstream {
  /** Connections that are kept and used again. */
  kept: Pool
  /** A new connection for each request: never stale, so a request on it is never lost to that. */
  fresh: Pool
  /** Ends all connections at once. */
  destroy(): Promise<void>
}

export interface UpstreamOptions {
  origin: string
  /** For connecting, for the answer's head, and between two parts of its body, milliseconds. */
  timeoutMs: number
  /** At most so many connections, in each of the two pools. */
  connections: number
}

/**
 * The connections to the resource server. undici's timers tick every half second: a timeout below one
 * second fires after up to 1.0 s, a longer one up to half a second late.
 */
export function createUpstream({ origin, timeoutMs, connections }: UpstreamOptions): Upstream {
  const options = {
    connections,
    connectTimeout: timeoutMs,
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
    // A connection costs up to three round trips, and apps poll every few seconds. One that the far end has
    // closed meanwhile does no harm: only reads go out on kept connections, and are sent again.
    keepAliveTimeout: 30_000,
    // Said here, so that no environment variable of Node switches the check off.
    connect: { rejectUnauthorized: true },
    factory: (url: URL, given: object) => new TrackedClient(url, given),
  }
  const kept = new Pool(origin, { ...options, pipelining: 1 })
  const fresh = new Pool(origin, { ...options, pipelining: 0 })
  return {
    kept,
    fresh,
    async destroy() {
      await Promise.all([kept.destroy(), fresh.destroy()])
    },
  }
}

/**
 * A client of one connection, which it notes on each request. A class, and no method put on an object:
 * that would be slower than all else that happens here.
 */
class TrackedClient extends Client {
  private readonly connection: Connection

  constructor(origin: URL, options: object) {
    const connection: Connection = { answered: false, broken: false }
    const { connect } = options as { connect: buildConnector.connector }
    super(origin, {
      ...options,
      connect(target, done) {
        connect(target, (...result) => {
          const [failure, socket] = result
          if (failure === null) {
            connection.answered = false
            connection.broken = false
            socket.on('error', () => {
              connection.broken = true
            })
          }
          done(...result)
        })
      },
    })
    this.connection = connection
  }

  override dispatch(request: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean {
    ;(request as UpstreamRequest).exchange.connection = this.connection
    return super.dispatch(request, handler)
  }
}
