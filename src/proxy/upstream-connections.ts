import { type buildConnector, Client, type Dispatcher, Pool } from 'undici'
import type { EgressProxy } from '../config/egress.ts'
import { throughProxy } from '../egress.ts'

/** The connection of a request. One request at a time uses it. */
export interface Connection {
  /** It has carried a response before, so the peer may have closed it since. */
  hasResponded: boolean
  /** The socket failed. undici treats that as a normal end if the body ends with the connection. */
  broken: boolean
}

/** The request of a connection. */
interface Tracker {
  connection: Connection
  /** Called when the connection that the request has waited for is established. It is used after the promise, if any. */
  onConnected(): Promise<void> | null
}

/** What undici sends. `tracker` gets its connection as soon as one is chosen. */
export interface TrackedDispatchOptions extends Dispatcher.DispatchOptions {
  tracker: Tracker
}

export interface UpstreamConnections {
  /** Connections that are kept and used again. */
  kept: Pool
  /** A new connection for each request, which cannot be stale. */
  fresh: Pool
  /** Ends all connections at once. */
  destroy(): Promise<void>
}

interface UpstreamConnectionsOptions {
  origin: string
  /** null: straight to the origin. */
  proxy: EgressProxy | null
  /** For connecting, for the response's head, and between two parts of its body, milliseconds. */
  timeoutMs: number
  /** Connections at most, in each of the two pools. */
  connections: number
}

/**
 * The connections to the resource server. undici's timers tick every half second: a timeout below one
 * second fires after up to 1.0 s, a longer one up to half a second late.
 */
export function createUpstreamConnections({
  origin,
  proxy,
  timeoutMs,
  connections,
}: UpstreamConnectionsOptions): UpstreamConnections {
  const options = {
    connections,
    connectTimeout: timeoutMs,
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
    // A connection costs up to three round trips, and apps poll every few seconds. One that the peer has
    // closed does no harm: only reads use kept connections, and they are sent again.
    keepAliveTimeout: 30_000,
    // Set here, so that no environment variable of Node turns the check off.
    connect: { rejectUnauthorized: true },
    factory: (url: URL, given: object) => {
      const options = given as ClientOptions
      const { connect } = options
      return new TrackedClient(
        url,
        proxy === null ? options : { ...options, connect: throughProxy(proxy, connect, timeoutMs) },
      )
    },
  }
  const kept = new Pool(origin, { ...options, pipelining: 1 })
  // 0 closes a connection after its response.
  const fresh = new Pool(origin, { ...options, pipelining: 0 })
  return {
    kept,
    fresh,
    async destroy() {
      await Promise.all([kept.destroy(), fresh.destroy()])
    },
  }
}

/** What a pool gives its clients. */
type ClientOptions = { connect: buildConnector.connector }

/**
 * A client of one connection, which it sets on each request. A subclass, because a method assigned to one
 * client makes all of undici slower.
 */
class TrackedClient extends Client {
  private readonly connection: Connection
  private tracker: Tracker | null = null

  constructor(origin: URL, options: ClientOptions) {
    // Not a member: `this` does not exist before the call of the constructor below.
    const connection: Connection = { hasResponded: false, broken: false }
    const { connect } = options
    const whenConnected = (): Promise<void> | null => this.tracker?.onConnected() ?? null
    super(origin, {
      ...options,
      connect(target, done) {
        connect(target, (...result) => {
          const [failure, socket] = result
          if (failure === null) {
            connection.hasResponded = false
            connection.broken = false
            socket.on('error', () => {
              connection.broken = true
            })
          }
          const waits = failure === null ? whenConnected() : null
          if (waits === null) done(...result)
          else void waits.then(() => done(...result))
        })
      },
    })
    this.connection = connection
  }

  override dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean {
    const { tracker } = options as TrackedDispatchOptions
    tracker.connection = this.connection
    this.tracker = tracker
    return super.dispatch(options, handler)
  }
}
