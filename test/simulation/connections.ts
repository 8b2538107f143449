import type { RecordKey } from '../../src/vault/store/record.ts'
import { COMMAND_TIMEOUT_MS, LAST_STEP_MS } from '../../src/vault/store/redis/command-timeout.ts'
import { LOOK_EVERY_MS, RECONNECT_MAX_MS, SILENT_LOOKS } from '../../src/vault/store/redis/connection.ts'
import { NO_WRITES } from '../../src/vault/store/redis/health.ts'
import { CONNECT_TIMEOUT_MS } from '../../src/vault/store/redis/sentinels.ts'
import { type StoreHealth, StoreUnavailable } from '../../src/vault/store/store.ts'
import type { Deployment } from './deployment.ts'
import { Random } from './random.ts'
import type { Replica } from './replica.ts'
import { ErrorReply, type RedisServer, WrongType } from './simulated-redis.ts'
import { masterOf, type StoreCommand } from './simulated-store.ts'
import type { Channel, ScheduledEvent, VirtualClock } from './virtual-clock.ts'

/** A command waits half of the interval for the first look, on average. */
const SILENCE_MS = (SILENT_LOOKS - 0.5) * LOOK_EVERY_MS
/** A pause between two writes that counts as a gap. */
const LONG_GAP_MS = 2_000

/** What a master does not execute while it refuses writes. */
const WRITES: ReadonlySet<StoreCommand> = new Set([
  ...(['schedule', 'scheduleMissing', 'claimDue', 'claimNonce', 'ping'] as const),
])

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
  /** When a command last failed or had no reply. */
  failedAt = Number.NEGATIVE_INFINITY
  incidentAt = Number.NEGATIVE_INFINITY
  /** The times in which commands that write succeeded. Each follows a failure, or a long gap. */
  readonly writable: { from: number; to: number; gapMs: number }[] = [{ from: 0, to: 0, gapMs: 0 }]

  constructor(transport: FleetTransport, master: number) {
    this.transport = transport
    this.master = master
  }

  get #faults(): LinkFaults {
    const { servers, owner } = this.transport
    return servers.faults(this.master, owner.index)
  }

  get isCut(): boolean {
    return this.#faults.cut > 0
  }

  latency(): number {
    return this.transport.random.between(0.1, 1.5) + this.#faults.slowMs
  }

  connect(): void {
    if (this.#closed) return
    const { clock, owner, servers } = this.transport
    this.#tries += 1
    const server = servers.serverFor(this.master, owner.index)
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
      if (!stands || servers.serverFor(this.master, owner.index) !== server) return this.#again()
      this.server = server
      if (this.lastServer !== null && this.lastServer !== server) this.movedAt = clock.now
      this.lastServer = server
      this.ready = true
      this.#tries = 0
      this.receivedAt = clock.now
      this.transport.noteIncident(this)
    })
  }

  #again(): void {
    const { clock, owner, random } = this.transport
    if (this.#closed) return
    const pause = Math.min(RECONNECT_MAX_MS, this.#tries * 50) * random.between(0.75, 1.25)
    clock.in(pause, owner, () => this.connect())
  }

  /** The connection has ended, and the process has noticed. */
  break(): void {
    if (!this.ready) return
    this.ready = false
    this.epoch += 1
    this.#heldOut = []
    this.#heldIn = []
    this.server = null
    const failed = [...this.waiting]
    this.waiting.clear()
    this.transport.noteIncident(this)
    for (const fail of failed) fail(new Error('the connection broke'))
    this.#again()
  }

  /** The server closed the connection. The process notices after a short delay. */
  breakSoon(): void {
    const { clock, owner } = this.transport
    const { epoch } = this
    clock.in(this.latency(), owner, () => {
      if (epoch === this.epoch) this.break()
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
    this.transport.clock.deliver(this.#out, this.latency(), null, arrive)
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
    clock.deliver(this.#in, this.latency(), owner, receive)
  }

  /** A command that writes has succeeded. */
  wrote(): void {
    const { now } = this.transport.clock
    const last = this.writable.at(-1)!
    const gapMs = now - last.to
    if (gapMs > LONG_GAP_MS || this.failedAt > last.to) this.writable.push({ from: now, to: now, gapMs })
    else last.to = now
  }

  /** For how long nothing could be written: at present, or until a moment ago. */
  couldNotWriteMs(momentMs: number): number {
    const { now } = this.transport.clock
    const gap = this.writable.findLast(({ gapMs }) => gapMs > LONG_GAP_MS)
    const gapMs = gap !== undefined && now - gap.from < momentMs ? gap.gapMs : 0
    return Math.max(now - this.writable.at(-1)!.to, gapMs)
  }

  /** Whether commands could write without a failure, for so long at a stretch, since then. */
  couldWriteFor(forMs: number, since: number): boolean {
    return this.writable.some(({ from, to }) => to - Math.max(from, since) >= forMs)
  }

  /** Until when commands last could write without a failure for so long at a stretch. */
  couldWriteUntil(forMs: number): number {
    return this.writable.findLast(({ from, to }) => to - from >= forMs)?.to ?? 0
  }

  /** Whether this leads to the master, and did until now, and within the last `ms`. */
  followsMaster(ms = 0): boolean {
    const { clock, servers } = this.transport
    if (this.movedAt > clock.now - ms) return false
    return this.lastServer === null || this.lastServer === servers.masters[this.master]
  }

  /** The way is open again: what was held back by it goes on, in its order. */
  flush(): void {
    if (this.isCut) return
    for (const send of this.#heldIn.splice(0)) send()
    if (this.server?.frozen === true) return
    const held = this.#heldOut
    this.#heldOut = []
    for (const arrive of held) this.transport.clock.deliver(this.#out, this.latency(), null, arrive)
  }
}

/** Receives the failure of a command without a reply so far. */
type Pending = (error: Error) => void

/** The connections of one process to the masters of the store, with the rules of src/vault/store for health. */
export class FleetTransport {
  readonly masterCount: number
  readonly clock: VirtualClock
  readonly owner: Replica
  readonly random: Random
  readonly servers: Deployment
  readonly commands: Connection[]
  readonly #incidentListeners: (() => void)[] = []

  constructor(owner: Replica, servers: Deployment) {
    this.owner = owner
    this.servers = servers
    this.clock = servers.clock
    this.random = new Random(servers.seed, `${owner.name} network`)
    this.masterCount = servers.settings.masters
    this.commands = Array.from({ length: this.masterCount }, (_, master) => new Connection(this, master))
    for (const connection of this.commands) connection.connect()
  }

  /** Runs `work` on that master. Rejects with `StoreUnavailable`. */
  ask = <T>(
    master: number,
    command: StoreCommand,
    work: (server: RedisServer) => T | ErrorReply,
    { withinMs = COMMAND_TIMEOUT_MS, writes = WRITES.has(command) } = {},
  ): Promise<T> =>
    new Promise((resolve, reject) => {
      const { clock, owner } = this
      const connection = this.commands[master]!
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
        if (!settle()) return
        // What this record is says nothing of the connection.
        if (!(error instanceof WrongType)) connection.failedAt = clock.now
        if (error instanceof ErrorReply && NO_WRITES.test(error.message)) this.noteIncident(connection)
        reject(new StoreUnavailable(error))
      }
      if (!connection.ready) return fail(new Error('not connected'))
      let rearmed = false
      const giveUp = (): void => {
        // A process that was stalled reads what came meanwhile before it gives up.
        const late = clock.now > sentAt + withinMs + 1
        if (late && !rearmed) {
          rearmed = true
          timeout = clock.in(LAST_STEP_MS, owner, giveUp)
          return
        }
        this.#watchSilence(connection, sentAt)
        fail(new Error('no reply in time'))
      }
      timeout = clock.in(withinMs, owner, giveUp)
      connection.waiting.add(fail)
      connection.toServer((server) => {
        const faults = this.servers.faults(master, owner.index)
        if (faults.breakBefore.delete(command)) return connection.breakSoon()
        const refused = writes && server.refusesWrites !== null
        const reply = refused ? new ErrorReply(server.refusesWrites!) : work(server)
        if (!refused) this.servers.executed(owner.index, command, reply)
        if (faults.breakAfter.delete(command)) return connection.breakSoon()
        connection.toProcess(() => {
          connection.waiting.delete(fail)
          if (reply instanceof ErrorReply) return fail(reply)
          if (!settle()) return
          if (writes) connection.wrote()
          resolve(reply)
        })
      })
    })

  /** As the watch of src/vault/store over connections that owe a reply and receive nothing. */
  #watchSilence(connection: Connection, sentAt: number): void {
    const { epoch } = connection
    this.clock.in(Math.max(0, sentAt + SILENCE_MS - this.clock.now), this.owner, () => {
      if (connection.epoch === epoch && connection.receivedAt < sentAt) connection.break()
    })
  }

  noteIncident(connection: Connection): void {
    connection.incidentAt = this.clock.now
    for (const listener of this.#incidentListeners) listener()
  }

  /** The connection to the master that has this record. */
  commandsOf(key: RecordKey): Connection {
    return this.commands[masterOf(key, this.masterCount)]!
  }

  wall = (): number => this.clock.wall(this.owner)
  readonly health: StoreHealth = {
    onIncident: (listener) => void this.#incidentListeners.push(listener),
    msSinceIncident: (key) => {
      return this.clock.now - this.commandsOf(key).incidentAt
    },
  }

  close = async (): Promise<void> => {
    for (const connection of this.commands) connection.close()
  }
}
