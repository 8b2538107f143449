import type { RecordKey } from '../../src/vault/store/record.ts'
import { SimulatedAuthorizationServer } from './authorization-server.ts'
import { Browser } from './browsers.ts'
import { type Connection, type LinkFaults, noLinkFaults } from './connections.ts'
import type { FaultKind, ProtocolStep } from './faults.ts'
import { InvariantChecker } from './invariants.ts'
import { Random } from './random.ts'
import { type BrowserRequest, type BrowserResponse, Replica } from './replica.ts'
import { SimulatedResourceServer } from './resource-server.ts'
import type { Settings, Update } from './settings.ts'
import { RedisServer } from './simulated-redis.ts'
import { masterOf, type StoreCommand } from './simulated-store.ts'
import type { Trace } from './trace.ts'
import { EPOCH, VirtualClock } from './virtual-clock.ts'

/** How long after a fault its effects on connections may last. */
const AFTERMATH_MS = 4_000
/** A replica that is asked to stop has ended after this. */
const STOP_SLACK_MS = 1_500

/** What the execution of a command means to the protocol. */
const STEPS: Partial<Record<StoreCommand, ProtocolStep>> = {
  beginRefresh: 'lease granted',
  replaceTokens: 'tokens stored',
  end: 'session ended',
  confirm: 'session begun',
}

/** The simulated fleet with its Redis servers, its platform and its browsers. */
export class Deployment {
  readonly seed: number
  readonly settings: Settings
  readonly trace: Trace
  readonly clock: VirtualClock
  readonly checker: InvariantChecker
  readonly authorizationServer: SimulatedAuthorizationServer
  readonly resourceServer: SimulatedResourceServer
  readonly masters: RedisServer[]
  readonly replicas: Replica[] = []
  readonly browsers: Browser[]
  readonly wallOffsets: number[]
  readonly injected = new Map<FaultKind, number>()
  onStep: (step: ProtocolStep, index: number) => void = () => {}
  readonly #random: Random
  readonly #linkFaults: LinkFaults[][]
  /** Where a replica stays with a master that was replaced, and until when. */
  readonly #stays = new Map<string, { server: RedisServer; until: number }>()
  /** Indexes of the replicas that run version 0.2. */
  readonly #of02 = new Set<number>()
  #lastId = 0
  #servers = 0

  constructor(seed: number, settings: Settings, trace: Trace) {
    this.seed = seed
    this.settings = settings
    this.trace = trace
    this.clock = new VirtualClock(new Random(seed, 'schedule'), trace)
    // Before any code of a process runs, since that sets timers.
    this.clock.install()
    this.#random = new Random(seed, 'deployment')
    this.wallOffsets = Array.from({ length: settings.replicas }, () =>
      Math.round(this.#random.between(-400, 400)),
    )
    this.#linkFaults = Array.from({ length: settings.masters }, () =>
      Array.from({ length: settings.replicas }, noLinkFaults),
    )
    this.checker = new InvariantChecker(this)
    this.authorizationServer = new SimulatedAuthorizationServer(this)
    this.resourceServer = new SimulatedResourceServer(this)
    this.masters = Array.from({ length: settings.masters }, () => this.#newServer())
    if (settings.update !== null) this.#beginWith02(settings.update)
    for (let index = 0; index < settings.replicas; index += 1) this.#start(index)
    this.browsers = Array.from({ length: settings.browsers }, (_, user) => new Browser(this, user))
  }

  // The servers, as the connections of the replicas see them.

  /** The master that has this record. */
  masterOf(key: RecordKey): RedisServer {
    return this.masters[masterOf(key, this.settings.masters)]!
  }

  /** Where a new connection of that process leads. */
  serverFor(master: number, index: number): RedisServer {
    const stay = this.#stays.get(`${master} ${index}`)
    if (stay !== undefined && this.clock.now < stay.until && !stay.server.dead) return stay.server
    return this.masters[master]!
  }

  faults(master: number, index: number): LinkFaults {
    return this.#linkFaults[master]![index]!
  }

  /** A command of that process was executed. */
  executed(index: number, command: StoreCommand, result: unknown): void {
    const step = STEPS[command]
    if (step !== undefined && (result as { kind?: string }).kind === 'written') this.onStep(step, index)
  }

  #newServer(): RedisServer {
    return new RedisServer({
      name: this.#nextServerName(),
      trueTime: () => this.trueTime(),
      events: {
        stored: (server, before, after) => this.checker.stored(server, before, after),
        leaseChanged: (record) => this.checker.leaseChanged(record),
        deleted: (server, key, reason) => this.checker.deleted(server, key, reason),
      },
    })
  }

  // Browsers and the load balancer.

  anyReplica(random: Random): Replica | null {
    const ready = this.replicas.filter((replica) => replica.alive && replica.ready)
    return ready.length === 0 ? null : random.pick(ready)
  }

  /** `seen` is called in the process when it responds, `done` at the browser; null where the connection broke. */
  send(
    replica: Replica,
    request: BrowserRequest,
    {
      latencyMs,
      seen = () => {},
      done = () => {},
    }: {
      latencyMs: number
      seen?: (response: BrowserResponse) => void
      done?: (response: BrowserResponse | null) => void
    },
  ): void {
    const { waiting } = replica
    let over = false
    const finish = (response: BrowserResponse | null): void => {
      if (over) return
      over = true
      waiting.delete(lost)
      done(response)
    }
    const lost = (): void => finish(null)
    if (!replica.alive) return void this.clock.in(latencyMs, null, lost)
    waiting.add(lost)
    this.clock.in(latencyMs, replica, () => {
      if (!replica.ready) return void this.clock.in(latencyMs, null, lost)
      replica.handle(request, (response) => {
        if (over) return
        seen(response)
        this.clock.in(latencyMs, null, () => finish(response))
      })
    })
  }

  /** Whether the replica of this place runs version 0.2: this code over the records and queue of that version. */
  is02(index: number): boolean {
    return this.#of02.has(index)
  }

  /** All replicas run version 0.2, and are replaced one after the other. */
  #beginWith02({ at, everyMs }: Update): void {
    for (let index = 0; index < this.settings.replicas; index += 1) {
      this.#of02.add(index)
      this.clock.in(at + index * everyMs, null, () => {
        this.#of02.delete(index)
        // What it cannot write any more keeps it until it is killed.
        this.disturb(0)
        this.restart(index, 500)
      })
    }
  }

  died(replica: Replica): void {
    for (const lost of replica.waiting) this.clock.in(1, null, lost)
  }

  // Faults.

  /** Connections may be disturbed for so long, and a while after that. */
  disturb(ms: number): void {
    this.checker.disturbedUntil = Math.max(this.checker.disturbedUntil, this.clock.now + ms + AFTERMATH_MS)
  }

  #start(index: number): void {
    this.#lastId += 1
    this.replicas[index] = new Replica(this, this.#lastId, index)
    this.replicas[index]!.note(this.is02(index) ? 'starts, of version 0.2' : 'starts')
  }

  crash(index: number, downMs: number): void {
    const replica = this.replicas[index]!
    if (!replica.alive) return
    replica.crash()
    this.clock.in(downMs, null, () => this.#start(index))
  }

  /** A graceful stop, followed by a start. */
  restart(index: number, downMs: number): void {
    const replica = this.replicas[index]!
    if (!replica.alive || !replica.ready) return
    this.stop(replica, () => {
      this.clock.in(downMs, null, () => {
        if (!this.replicas[index]!.alive) this.#start(index)
      })
    })
  }

  /** Stops a replica, then calls `then`. A replica that does not end in time is killed. */
  stop(replica: Replica, then: () => void): void {
    const { clock, settings, checker } = this
    const beganAt = clock.now
    let over = false
    const end = (): void => {
      if (over) return
      over = true
      replica.note(`has stopped after ${Math.round(clock.now - beganAt)} ms`)
      then()
    }
    replica.ready = false
    clock.in(0, replica, () => {
      replica.stop().then(end, (error: unknown) => checker.violated('a stop fails', String(error)))
    })
    const look = (): void => {
      if (over || !replica.alive) {
        end()
        return
      }
      const stalled = replica.stalledMsSince(beganAt)
      const leftMs = beganAt + stalled + settings.shutdownMs + STOP_SLACK_MS - clock.now
      if (replica.stalled || leftMs > 0) return void clock.in(Math.max(100, leftMs), null, look)
      // Redis may keep it; the token endpoint may not. A restart is itself what disturbs until then.
      if (checker.disturbedUntil <= beganAt + AFTERMATH_MS)
        checker.violated('a stop takes too long', `${replica.name}: ${Math.round(clock.now - beganAt)} ms`)
      replica.crash()
      end()
    }
    clock.in(settings.shutdownMs + STOP_SLACK_MS, null, look)
  }

  stepWallClock(index: number, byMs: number): void {
    const offset = this.wallOffsets[index]! + byMs
    if (Math.abs(offset) > 4_000_000) return
    this.wallOffsets[index] = offset
    const replica = this.replicas[index]!
    replica.wallOffset = offset
    replica.step = { at: this.clock.now, byMs }
  }

  stepRedisClock(master: number, byMs: number): void {
    const server = this.masters[master]!
    if (Math.abs(server.clockOffset + byMs) > 4_000_000) return
    server.clockOffset += byMs
    if (byMs > 0) this.checker.clockSteppedAt = this.clock.now
  }

  thaw(master: number): void {
    for (const server of [this.masters[master]!, ...this.checker.superseded]) this.#thaw(server)
  }

  #thaw(server: RedisServer): void {
    server.frozen = false
    for (const connection of this.#connectionsTo(server)) connection.flush()
  }

  #connectionsTo(server: RedisServer): Connection[] {
    const all = this.replicas.flatMap(({ transport }) => transport.commands)
    return all.filter((connection) => connection.server === server)
  }

  #breakConnections(server: RedisServer): void {
    for (const connection of this.#connectionsTo(server)) connection.breakSoon()
  }

  /** A replica of a master takes its place, without what it had not received. */
  failOver(
    master: number,
    { lostMs, frozenMs, staysMs }: { lostMs: number; frozenMs: number; staysMs: number },
  ): void {
    const old = this.masters[master]!
    this.disturb(frozenMs + staysMs)
    old.frozen = frozenMs > 0 || old.frozen
    const from = this.clock.now
    this.clock.in(frozenMs, null, () => {
      if (this.masters[master] !== old) return
      this.#replace(master, from - lostMs, true)
      if (staysMs === 0) {
        old.dead = true
        return this.#breakConnections(old)
      }
      // It was only frozen or cut off, and goes on as a master until each replica has followed the promotion.
      this.#thaw(old)
      for (const [index, { transport }] of this.replicas.entries()) {
        const stayMs = this.#random.next() * staysMs
        this.#stays.set(`${master} ${index}`, { server: old, until: this.clock.now + stayMs })
        this.clock.in(stayMs, null, () => {
          const connection = transport.commands[master]!
          if (connection.server === old) connection.breakSoon()
        })
      }
      this.clock.in(staysMs, null, () => {
        old.dead = true
        this.#breakConnections(old)
      })
    })
  }

  #replace(master: number, heldAt: number, kept: boolean): void {
    const old = this.masters[master]!
    const fresh = kept ? old.fork(this.#nextServerName(), EPOCH + heldAt) : this.#newServer()
    this.masters[master] = fresh
    this.checker.replaced(old, fresh, kept)
    this.checker.note(fresh.name, `takes the place of ${old.name}`)
  }

  #nextServerName(): string {
    this.#servers += 1
    return `redis-${this.#servers}`
  }

  restartMaster(
    master: number,
    { keeps, downMs }: { keeps: 'everything' | 'all but the last second' | 'nothing'; downMs: number },
  ): void {
    this.disturb(downMs)
    const old = this.masters[master]!
    const lostMs = keeps === 'everything' ? -1 : this.#random.next() * 1_000
    this.#replace(master, this.clock.now - lostMs, keeps !== 'nothing')
    old.dead = true
    this.#breakConnections(old)
    const fresh = this.masters[master]!
    fresh.refusesConnections = true
    this.clock.in(downMs, null, () => {
      fresh.refusesConnections = false
    })
  }

  /** True time as every clock would show it without steps. */
  trueTime(): number {
    return EPOCH + this.clock.now
  }
}
