import type { Socket } from 'node:net'
import { type buildConnector, Client, type Dispatcher } from 'undici'
import type { EgressProxy } from '../config/egress.ts'
import { connectorBy } from '../egress.ts'
import { afterReading } from '../timeout.ts'

/** For what the peer sent before it closed to be read. */
const READ_FIRST_MS = 100

/** What uses a connection, one at a time. */
interface User extends Dispatcher.DispatchHandler {
  /** Called when the connection that it has waited for is established. It is used after the promise, if any. */
  onConnected(): Promise<void> | null
}

interface ConnectionsOptions {
  origin: string
  /** null: straight to the origin. */
  proxy: EgressProxy | null
  /** For connecting, for the response's head, and between two parts of its body, milliseconds. */
  timeoutMs: number
  /** Connections at most. */
  most: number
  /** Whether a connection is used again after its response. */
  kept: boolean
  /** How long: after that the next one asks the DNS again. */
  keptForMs: number
}

/**
 * The connections to the resource server. A stack of undici's clients, because its pool looks through all of them twice
 * for each request (decision 0008). undici's timers tick every half second: a timeout below one second fires after up to
 * 1.0 s, a longer one up to half a second late.
 */
export class Connections {
  private readonly options: ConnectionsOptions
  private readonly connect: buildConnector.connector
  private readonly made: Connection[] = []
  private readonly idle: Connection[] = []

  constructor(options: ConnectionsOptions) {
    this.options = options
    this.connect = connectorBy(options.proxy, options.timeoutMs)
  }

  /** A connection for one request, the last one that came back; null if all are in use. */
  take(): Connection | null {
    const idle = this.idle.pop()
    if (idle !== undefined) return idle
    if (this.made.length === this.options.most) return null
    const connection = new Connection(this.options, this.connect)
    this.made.push(connection)
    return connection
  }

  /** Takes a connection back when its response is over, or nothing was sent. */
  giveBack(connection: Connection): void {
    this.idle.push(connection)
  }

  /** Ends all connections at once. */
  async destroy(): Promise<void> {
    await Promise.all(this.made.map((connection) => connection.destroy()))
  }
}

/** One connection after another to the same place. */
export class Connection {
  /** It was open before what it carries now was sent, so the peer may have closed it since. */
  wasOpen = false
  /** The socket failed. undici treats that as a normal end if the body ends with the connection. */
  broken = false
  private readonly options: ConnectionsOptions
  private readonly connect: buildConnector.connector
  private client: Client | null = null
  private isOpen = false
  private openedAt = 0
  private user: User | null = null

  constructor(options: ConnectionsOptions, connect: buildConnector.connector) {
    this.options = options
    this.connect = connect
  }

  send(options: Dispatcher.DispatchOptions, user: User): void {
    this.user = user
    this.wasOpen = this.isOpen
    this.client ??= this.createClient()
    this.client.dispatch(options, user)
  }

  /** To call when a request is over. `failed`: without the end of its response. */
  release(failed: boolean): void {
    const { kept, keptForMs } = this.options
    // A busy connection never idles: reads would stay with the server that the name had, while updates go to the new one.
    const isOld = performance.now() - this.openedAt >= keptForMs
    // After a failure undici would connect once more for nothing (nodejs/undici#5845).
    if (failed || !kept || isOld) void this.destroy()
  }

  async destroy(): Promise<void> {
    const { client } = this
    this.client = null
    this.isOpen = false
    await client?.destroy()
  }

  private createClient(): Client {
    const { origin, timeoutMs, kept } = this.options
    const client: Client = new Client(origin, {
      headersTimeout: timeoutMs,
      bodyTimeout: timeoutMs,
      // A connection costs up to three round trips, and apps poll every few seconds. One that the peer has
      // closed does no harm: only reads use kept connections, and they are sent again.
      keepAliveTimeout: 30_000,
      // 0 closes a connection after its response.
      pipelining: kept ? 1 : 0,
      connect: (target, done) => this.connect(target, (...result) => this.connected(client, done, result)),
    })
    return client
  }

  private connected(
    client: Client,
    done: buildConnector.Callback,
    result: Parameters<buildConnector.Callback>,
  ): void {
    const [failure, socket] = result
    let waits: Promise<void> | null = null
    // undici ends the connection of a client that was destroyed meanwhile.
    if (failure === null && client === this.client) {
      this.isOpen = true
      this.openedAt = performance.now()
      this.wasOpen = false
      this.broken = false
      const noteBroken = (): void => {
        this.broken = true
      }
      socket.on('error', noteBroken)
      // Kept connections are for reads, which have no body.
      if (!this.options.kept) reportFailedWritesLate(socket, noteBroken)
      socket.on('close', () => {
        if (client === this.client) this.isOpen = false
      })
      waits = this.user?.onConnected() ?? null
    }
    if (waits === null) done(...result)
    else void waits.then(() => done(...result))
  }
}

/**
 * A peer that refuses a request before it has read the body may respond and close at once. The next write then fails, and
 * Node would destroy the socket with the response unread.
 */
function reportFailedWritesLate(socket: Socket, onFailure: () => void): void {
  type Done = (error?: Error | null) => void
  const late =
    (done: Done): Done =>
    (error) => {
      if (!error) return done()
      onFailure()
      afterReading(READ_FIRST_MS, () => done(error))
    }
  const { _write, _writev } = socket
  socket._write = (chunk, encoding, done) => _write.call(socket, chunk, encoding, late(done))
  if (_writev) socket._writev = (chunks, done) => _writev.call(socket, chunks, late(done))
}

/** A call of one holder. */
export interface Sharer {
  /** What it keeps in memory while it waits until another one ends. */
  readonly keptBytes: number
  /** When it came, by the monotonic clock. */
  readonly cameAt: number
  start(): void
  /** Gives its place to this one as soon as its connection allows. false: it keeps its place. */
  giveWay(heir: Sharer): boolean
}

/** One holder's part of the connections. */
export interface Share {
  /** In the order of their start. */
  readonly open: Sharer[]
  /** In the order of their arrival. */
  readonly waiting: Set<Sharer>
  /** Of those that wait. */
  waitingBytes: number
  /** When one of them was overtaken last, by the monotonic clock. */
  overtakenAt: number
}

/** Above so many holders those without a call are forgotten. */
const MAX_HOLDERS = 50_000

/**
 * Divides connections between holders (sessions, client addresses), so that one cannot take all of them. No share is
 * removed when its last call ends: a Map that changes with each request costs more than the call (decision 0008).
 */
export class Shares {
  /** Calls at once for one holder. */
  private readonly most: number
  /** Of the waiting calls of a holder: further ones are refused at once. */
  private readonly mostBytes: number
  private readonly shares = new Map<string, Share>()

  constructor(most: number, mostBytes = Number.POSITIVE_INFINITY) {
    this.most = most
    this.mostBytes = mostBytes
  }

  of(holder: string): Share {
    const known = this.shares.get(holder)
    if (known !== undefined) return known
    if (this.shares.size >= MAX_HOLDERS) this.forgetIdle()
    const share: Share = {
      open: [],
      waiting: new Set<Sharer>(),
      waitingBytes: 0,
      overtakenAt: Number.NEGATIVE_INFINITY,
    }
    this.shares.set(holder, share)
    return share
  }

  /** Starts the call now, or when one of the same holder leaves; `full`: too many wait already. */
  enter(share: Share, call: Sharer): 'started' | 'waits' | 'full' {
    if (share.open.length >= this.most) {
      if (share.waitingBytes + call.keptBytes > this.mostBytes) return 'full'
      share.waiting.add(call)
      share.waitingBytes += call.keptBytes
      return 'waits'
    }
    share.open.push(call)
    call.start()
    return 'started'
  }

  /** A call that was started gives its place away: to `heir` if that one still waits, else to the one that has waited longest. */
  leave(share: Share, call: Sharer, heir: Sharer | null = null): void {
    share.open.splice(share.open.indexOf(call), 1)
    if (share.waiting.size === 0) return
    const next = heir !== null && share.waiting.has(heir) ? heir : share.waiting.values().next().value!
    this.forget(share, next)
    share.open.push(next)
    next.start()
  }

  /**
   * Asks the open calls that came at least `olderByMs` before `heir`, in the order of their start, for a place. The first that
   * agrees gives its own. One call of a holder is overtaken in `olderByMs`: more would leave reads that are merely slow no
   * time to end. false: none was now.
   */
  overtake(share: Share, heir: Sharer, olderByMs: number): boolean {
    const at = performance.now()
    if (at - share.overtakenAt < olderByMs) return false
    for (const call of share.open) {
      if (call.cameAt > heir.cameAt - olderByMs || !call.giveWay(heir)) continue
      share.overtakenAt = at
      return true
    }
    return false
  }

  /** A call that may wait wants to start no more. */
  forget(share: Share, call: Sharer): void {
    if (share.waiting.delete(call)) share.waitingBytes -= call.keptBytes
  }

  private forgetIdle(): void {
    for (const [holder, { open }] of this.shares) if (open.length === 0) this.shares.delete(holder)
  }
}
