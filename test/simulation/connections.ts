import { COMMAND_TIMEOUT_MS, LAST_STEP_MS } from '../../src/store/redis/command-timeout.ts'
import {
  CONNECT_TIMEOUT_MS,
  LOOK_EVERY_MS,
  RECONNECT_MAX_MS,
  SILENT_LOOKS,
} from '../../src/store/redis/connection.ts'
import { NO_WRITES, UNREACHED_AFTER_MS } from '../../src/store/redis/health.ts'
import { type StoreHealth, StoreUnavailable } from '../../src/store/store.ts'
import type { Deployment } from './deployment.ts'
import type { Random } from './random.ts'
import { ErrorReply, type RedisServer } from './simulated-redis.ts'
import { masterOf, type StoreCommand } from './simulated-store.ts'
import type { Channel, Owner, ScheduledEvent, VirtualClock } from './virtual-clock.ts'

/** A command waits half of the interval for the first look, on average. */
const SILENCE_MS = (SILENT_LOOKS - 0.5) * LOOK_EVERY_MS
const LONG_GAP_MS = 2_000

/** What a master executes also while it refuses writes. */
const READS: ReadonlySet<StoreCommand> = new Set(['read', 'readState', 'readEnd', 'queueLength', 'keys'])

/** The network faults between one process and one master. Counters, because faults may overlap. */
export interface LinkFaults {
  /** No data passes in either direction. Connections stay open until one side closes them. */
  cut: number
  /** Added to each way. */
  slowMs: number
  /** The connection breaks before the next commands of these names are executed. */
  breakBefore: Set<StoreCommand>
  /** The connection breaks after the next commands of these names were executed. */
  breakAfter: Set<StoreCommand>
}

/** A network without faults. */
export function noLinkFaults(): LinkFaults {
  return { cut: 0, slowMs: 0, breakBefore: new Set(), breakAfter: new Set() }
}

/** One TCP connection from a process to a server, made again for ever. */
export class Connection {
  readonly master: number
  readonly transport: FleetTransport
  ready = false
  server: RedisServer | null = null
  /** The last one: what it has said may be on its way to a browser. */
  lastServer: RedisServer | null = null
  /** When it was last connected to another server than before. */
  movedAt = Number.NEGATIVE_INFINITY
  /** Raised with each end of a connection: what was on its way then does not arrive. */
  epoch = 0
  readonly waiting = new Set<Pending>()
  #tries = 0
  #closed = false
  readonly #out: Channel = { lastAt: 0 }
  readonly #in: Channel = { lastAt: 0 }
  #heldOut: (() => void)[] = []
  #heldIn: (() => void)[] = []
  receivedAt = 0

  constructor(transport: FleetTransport, master: number) {
    this.transport = transport
    this.master = master
  }

  get #faults(): LinkFaults {
    const { servers, index } = this.transport
    return servers.faults(this.master, index)
  }

  get isCut(): boolean {
    return this.#faults.cut > 0
  }

  latency(): number {
    return this.transport.random.between(0.1, 1.5) + this.#faults.slowMs
  }

  connect(): void {
    if (this.#closed) return
    const { clock, owner, servers, index } = this.transport
    this.#tries += 1
    const server = servers.serverFor(this.master, index)
    const failIn = (ms: number): void => void clock.in(ms, owner, () => this.#again())
    if (this.isCut || server.frozen) {
      failIn(CONNECT_TIMEOUT_MS)
      return
    }
    if (server.dead || server.refusesConnections) {
      failIn(1)
      return
    }
    const { epoch } = this
    clock.in(3 * this.latency(), owner, () => {
      if (epoch !== this.epoch || this.#closed) return
      const stands = !server.dead && !server.frozen && !this.isCut
      if (!stands || servers.serverFor(this.master, index) !== server) return this.#again()
      this.server = server
      if (this.lastServer !== null && this.lastServer !== server) this.movedAt = clock.now
      this.lastServer = server
      this.ready = true
      this.#tries = 0
      this.receivedAt = clock.now
      this.transport.connected(this)
    })
  }

  #again(): void {
    const { clock, owner, random } = this.transport
    if (this.#closed) return
    const pause = Math.min(RECONNECT_MAX_MS, this.#tries * 50) * random.between(0.75, 1.25)
    clock.in(pause, owner, () => this.connect())
  }

  /** The connection has ended, and the process has noticed. */
  break(why: string): void {
    if (!this.ready) return
    this.ready = false
    this.epoch += 1
    this.#heldOut = []
    this.#heldIn = []
    this.server = null
    const failed = [...this.waiting]
    this.waiting.clear()
    this.transport.disconnected(this)
    for (const fail of failed) fail(new Error(why))
    this.#again()
  }

  /** The server closed the connection. The process notices after a short delay. */
  breakSoon(why: string): void {
    const { clock, owner } = this.transport
    const { epoch } = this
    clock.in(this.latency(), owner, () => {
      if (epoch === this.epoch) this.break(why)
    })
  }

  close(): void {
    this.#closed = true
    this.ready = false
    this.epoch += 1
    this.waiting.clear()
    this.server = null
  }

  /** Something arrives at the server, unless the connection ends before. */
  toServer(work: (server: RedisServer) => void): void {
    const { epoch } = this
    const arrive = (): void => {
      if (epoch !== this.epoch || this.server === null) return
      if (this.isCut || this.server.frozen || this.#heldOut.length > 0) this.#heldOut.push(arrive)
      else work(this.server)
    }
    this.transport.clock.deliver(this.#out, { ms: this.latency(), owner: null, work: arrive })
  }

  /** Something arrives at the process, unless the connection ends before. */
  toProcess(work: () => void): void {
    if (this.isCut || this.#heldIn.length > 0) return void this.#heldIn.push(() => this.#toProcess(work))
    this.#toProcess(work)
  }

  #toProcess(work: () => void): void {
    const { epoch } = this
    const { clock, owner } = this.transport
    const receive = (): void => {
      if (epoch !== this.epoch) return
      this.receivedAt = clock.now
      work()
    }
    clock.deliver(this.#in, { ms: this.latency(), owner, work: receive })
  }

  /** The way is open again: what was held back by it goes on, in its order. */
  flush(): void {
    if (this.isCut) return
    for (const send of this.#heldIn.splice(0)) send()
    if (this.server?.frozen === true) return
    const held = this.#heldOut
    this.#heldOut = []
    for (const arrive of held)
      this.transport.clock.deliver(this.#out, { ms: this.latency(), owner: null, work: arrive })
  }
}

/** Receives the failure of a command without a reply so far. */
type Pending = (error: Error) => void

/** The connections of one process to the masters of the store, with the rules of src/store for health. */
export class FleetTransport {
  readonly masterCount: number
  readonly clock: VirtualClock
  readonly owner: Owner
  readonly index: number
  readonly random: Random
  readonly servers: Deployment
  readonly commands: Connection[]
  readonly #incidentListeners: (() => void)[] = []
  readonly #incidentAt: number[]
  #lost = false
  #lastReplyAt = Number.NEGATIVE_INFINITY
  /** Commands that failed or had no reply, by master: when the last one failed. */
  readonly failedAt: number[]
  /** When a command that writes to that master last had a reply. */
  readonly wroteAt: number[]
  /** The last time that took longer than the shortest lease: how long, and when it ended. */
  readonly gaps: { ms: number; endedAt: number }[]
  /** The times in which commands that write succeeded without a failure in between, by master. */
  readonly writable: { from: number; to: number }[][]

  constructor(options: {
    clock: VirtualClock
    owner: Owner
    index: number
    random: Random
    servers: Deployment
  }) {
    this.clock = options.clock
    this.owner = options.owner
    this.index = options.index
    this.random = options.random
    this.servers = options.servers
    this.masterCount = options.servers.masterCount
    const all = Array.from({ length: this.masterCount }, (_, master) => master)
    this.commands = all.map((master) => new Connection(this, master))
    this.#incidentAt = all.map(() => Number.NEGATIVE_INFINITY)
    this.failedAt = all.map(() => Number.NEGATIVE_INFINITY)
    this.wroteAt = all.map(() => 0)
    this.gaps = all.map(() => ({ ms: 0, endedAt: Number.NEGATIVE_INFINITY }))
    this.writable = all.map(() => [])
    for (const connection of this.commands) connection.connect()
  }

  /** Runs `work` on that master. Rejects with `StoreUnavailable`. */
  ask = <T>(master: number, command: StoreCommand, work: (server: RedisServer) => T): Promise<T> =>
    new Promise((resolve, reject) => {
      const failed = (error: Error): void => {
        this.failedAt[master] = this.clock.now
        if (error instanceof ErrorReply && NO_WRITES.test(error.message)) this.#noteIncident(master)
        reject(new StoreUnavailable(error, this.#failed(error)))
      }
      this.#send({ master, command, work, done: resolve, failed })
    })

  #send<T>({
    master,
    command,
    work,
    done,
    failed,
  }: {
    master: number
    command: StoreCommand
    work: (server: RedisServer) => T
    done: (result: T) => void
    failed: (error: Error) => void
  }): void {
    const writes = !READS.has(command)
    const { clock, owner } = this
    const connection = this.commands[master]!
    if (!connection.ready) {
      failed(new Error('not connected'))
      return
    }
    const sentAt = clock.now
    let over = false
    let timeout: ScheduledEvent | null = null
    const settle = (): boolean => {
      if (over) return false
      over = true
      if (timeout !== null) clock.cancel(timeout)
      return true
    }
    const fail: Pending = (error) => {
      if (settle()) failed(error)
    }
    const giveUp = (): void => {
      // A process that was stalled reads what came meanwhile before it gives up.
      const late = clock.now > sentAt + COMMAND_TIMEOUT_MS + 1
      if (late && !rearmed) {
        rearmed = true
        timeout = clock.in(LAST_STEP_MS, owner, giveUp)
        return
      }
      this.#watchSilence(connection, sentAt)
      fail(new Error('no reply in time'))
    }
    let rearmed = false
    timeout = clock.in(COMMAND_TIMEOUT_MS, owner, giveUp)
    connection.waiting.add(fail)
    connection.toServer((server) => {
      const faults = this.servers.faults(master, this.index)
      if (faults.breakBefore.delete(command)) return connection.breakSoon('the connection broke')
      let result: T
      let error: Error | null = null
      if (writes && server.refusesWrites !== null) error = new ErrorReply(server.refusesWrites)
      else {
        result = work(server)
        this.servers.executed(this.index, command, result)
      }
      if (faults.breakAfter.delete(command)) return connection.breakSoon('the connection broke')
      connection.toProcess(() => {
        connection.waiting.delete(fail)
        if (!settle()) return
        if (error !== null) return failed(error)
        this.#replied()
        if (writes) this.#wrote(master)
        done(result)
      })
    })
  }

  #wrote(master: number): void {
    const { now } = this.clock
    const ms = now - this.wroteAt[master]!
    if (ms > LONG_GAP_MS) this.gaps[master] = { ms, endedAt: now }
    const times = this.writable[master]!
    const last = times.at(-1)
    if (last === undefined || ms > LONG_GAP_MS || this.failedAt[master]! > last.to)
      times.push({ from: now, to: now })
    else last.to = now
    this.wroteAt[master] = now
  }

  /** As the watch of src/store over connections that owe a reply and receive nothing. */
  #watchSilence(connection: Connection, sentAt: number): void {
    const { epoch } = connection
    this.clock.in(SILENCE_MS - COMMAND_TIMEOUT_MS, this.owner, () => {
      if (connection.epoch === epoch && connection.receivedAt < sentAt)
        connection.break('no reply for two seconds')
    })
  }

  #replied(): void {
    this.#lost = false
    this.#lastReplyAt = this.clock.now
  }

  #failed(error: Error): boolean {
    this.#lost = !(error instanceof ErrorReply)
    if (!this.#lost) this.#lastReplyAt = this.clock.now
    return this.#isUnreached()
  }

  #isUnreached = (): boolean => {
    if (!this.#lost) return false
    return (
      !this.commands.some(({ ready }) => ready) || this.clock.now - this.#lastReplyAt > UNREACHED_AFTER_MS
    )
  }

  connected({ master }: Connection): void {
    this.#noteIncident(master)
  }

  disconnected({ master }: Connection): void {
    this.#noteIncident(master)
  }

  #noteIncident(master: number): void {
    this.#incidentAt[master] = this.clock.now
    for (const listener of this.#incidentListeners) listener()
  }

  wall = (): number => this.clock.wall(this.owner)
  readonly health: StoreHealth = {
    onIncident: (listener) => void this.#incidentListeners.push(listener),
    msSinceIncident: (key) => {
      return this.clock.now - this.#incidentAt[masterOf(key, this.masterCount)]!
    },
  }

  close = async (): Promise<void> => {
    for (const connection of this.commands) connection.close()
  }
}
