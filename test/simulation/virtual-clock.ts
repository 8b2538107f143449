import type { Random } from './random.ts'
import type { Trace } from './trace.ts'

/** The wall clock of every party at the beginning of a simulation, epoch milliseconds. */
export const EPOCH = 1_800_000_000_000

/** A process as the clock sees it: what it waits for is held back while it is stalled, and dropped when it has died. */
export interface Owner {
  readonly id: number
  alive: boolean
  stalled: boolean
  /** How far its wall clock is from the true time, milliseconds. */
  wallOffset: number
  readonly held: ScheduledEvent[]
  /** Timers that the code of this process has set and that have not fired. */
  timers: number
}

/** Deliveries of one connection keep their order, also when they were held back. */
export interface Channel {
  lastAt: number
}

/** Something that happens at an instant of virtual time. It is also what `setTimeout` returns. */
export class ScheduledEvent {
  at = 0
  /** Orders events that are due at the same instant. */
  order = 0
  cancelled = false
  readonly owner: Owner | null
  readonly work: () => unknown
  readonly channel: Channel | null
  /** Of a timer of the code under test: its interval, 0 for none. Otherwise null. */
  readonly everyMs: number | null

  constructor(
    owner: Owner | null,
    work: () => unknown,
    { channel = null, everyMs = null }: { channel?: Channel | null; everyMs?: number | null } = {},
  ) {
    this.owner = owner
    this.work = work
    this.channel = channel
    this.everyMs = everyMs
  }

  unref(): this {
    return this
  }
}

const real = {
  setTimeout: globalThis.setTimeout,
  clearTimeout: globalThis.clearTimeout,
  setInterval: globalThis.setInterval,
  clearInterval: globalThis.clearInterval,
  setImmediate: globalThis.setImmediate,
  clearImmediate: globalThis.clearImmediate,
}
const realDateNow = Date.now

/**
 * Virtual time: one queue of events for the whole fleet. The order of events that are due at the same instant is
 * drawn from the seed. After each event every microtask runs before the next event, so whatever the code under
 * test does runs as one step, in the name of the process that the event belongs to.
 */
export class VirtualClock {
  /** Milliseconds since the simulation began; the monotonic clock of every process. */
  now = 0
  /** The process whose code runs at present. */
  current: Owner | null = null
  events = 0
  /** Nothing more happens. */
  stopped = false
  /** The next event is the last one. */
  readonly #queue: ScheduledEvent[] = []
  readonly #random: Random
  readonly #trace: Trace

  constructor(random: Random, trace: Trace) {
    this.#random = random
    this.#trace = trace
  }

  /** Replaces the timers and clocks of the process until `uninstall` is called. */
  install(): void {
    const set =
      (repeats: boolean) =>
      (work: () => void, ms?: number): ScheduledEvent => {
        // Node cuts fractions off, so a timer may fire a moment before its time by a finer clock. Here some do.
        const exact = Number(ms) || 0
        const delay = Math.max(1, this.#random.chance(0.1) ? Math.trunc(exact) : exact)
        return this.#setTimer(work, delay, repeats ? delay : 0)
      }
    const clear = (event: unknown): void => {
      if (event instanceof ScheduledEvent) this.cancel(event)
    }
    Object.assign(globalThis, {
      setTimeout: set(false),
      setInterval: set(true),
      setImmediate: (work: () => void) => this.#setTimer(work, 0, 0),
      clearTimeout: clear,
      clearInterval: clear,
      clearImmediate: clear,
    })
    performance.now = () => this.now
    Date.now = () => this.wall(this.current)
  }

  uninstall(): void {
    Object.assign(globalThis, real)
    delete (performance as { now?: unknown }).now
    Date.now = realDateNow
  }

  /** Epoch milliseconds by the clock of that process, or the true time. */
  wall(owner: Owner | null): number {
    return Math.floor(EPOCH + this.now + (owner?.wallOffset ?? 0))
  }

  /** Something happens in so many milliseconds. `owner`: in that process, if it lives and is not stalled. */
  in(ms: number, owner: Owner | null, work: () => unknown): ScheduledEvent {
    return this.#schedule(new ScheduledEvent(owner, work), this.now + ms)
  }

  /** A delivery on a connection: never before one that was sent earlier. */
  deliver(channel: Channel, ms: number, owner: Owner | null, work: () => unknown): void {
    channel.lastAt = Math.max(this.now + ms, channel.lastAt + 0.001)
    this.#schedule(new ScheduledEvent(owner, work, { channel }), channel.lastAt)
  }

  cancel(event: ScheduledEvent): void {
    if (event.cancelled) return
    event.cancelled = true
    if (event.everyMs !== null) event.owner!.timers -= 1
  }

  /** Everything that was held back happens now: what came by one connection in its order, all else in any. */
  resume(owner: Owner): void {
    owner.stalled = false
    const held = owner.held.splice(0)
    const orders = new Map<Channel, number[]>()
    for (const { channel } of held) {
      if (channel === null) continue
      const known = orders.get(channel) ?? []
      orders.set(channel, known)
      known.push(this.#random.bits())
    }
    for (const list of orders.values()) list.sort((a, b) => a - b)
    for (const event of held) {
      event.at = this.now
      event.order = event.channel === null ? this.#random.bits() : orders.get(event.channel)!.shift()!
      this.#push(event)
    }
  }

  /** Lets virtual time pass up to that instant, or until it is stopped. */
  async run(untilMs: number): Promise<void> {
    // Microtasks can be run from a task of the real event loop alone, not from another microtask.
    await new Promise<void>((resolve, reject) => {
      real.setImmediate(() => {
        try {
          this.#run(untilMs)
          resolve()
        } catch (error) {
          reject(error)
        }
      })
    })
  }

  #run(untilMs: number): void {
    const queue = this.#queue
    while (!this.stopped && queue.length > 0 && queue.at(-1)!.at <= untilMs) {
      const event = queue.pop()!
      if (event.cancelled) continue
      const { owner } = event
      if (owner !== null) {
        if (!owner.alive) continue
        if (owner.stalled) {
          owner.held.push(event)
          continue
        }
      }
      if (event.at > this.now) this.now = event.at
      this.events += 1
      this.#trace.mix(Math.round(this.now * 1_000), owner === null ? 0 : owner.id)
      this.current = owner
      if (event.everyMs === 0) this.cancel(event)
      else if (event.everyMs !== null) this.#schedule(event, this.now + event.everyMs)
      event.work()
      // Without an owner nothing but the simulation itself has run, which leaves no microtasks.
      if (owner !== null) runMicrotasks()
    }
    this.current = null
    if (this.now < untilMs) this.now = untilMs
  }

  #setTimer(work: () => unknown, ms: number, everyMs: number): ScheduledEvent {
    const owner = this.current
    if (owner === null) throw new Error('a timer was set outside of every simulated process')
    owner.timers += 1
    return this.#schedule(new ScheduledEvent(owner, work, { everyMs }), this.now + ms)
  }

  #schedule(event: ScheduledEvent, at: number): ScheduledEvent {
    event.at = at
    event.order = this.#random.bits()
    this.#push(event)
    return event
  }

  #push(event: ScheduledEvent): void {
    const queue = this.#queue
    let [low, high] = [0, queue.length]
    while (low < high) {
      const middle = (low + high) >> 1
      if (isBefore(event, queue[middle]!)) low = middle + 1
      else high = middle
    }
    queue.splice(low, 0, event)
  }
}

function isBefore(a: ScheduledEvent, b: ScheduledEvent): boolean {
  return a.at === b.at ? a.order < b.order : a.at < b.at
}

/**
 * Runs every microtask, and reports rejections that nobody has handled by then: what Node does after each of its own
 * events. Not documented, and there in every version since 0.8.
 */
const runMicrotasks: () => void = (process as unknown as { _tickCallback: () => void })._tickCallback

/** Resolves in the next turn of the real event loop. */
export function realTurn(): Promise<void> {
  return new Promise((resolve) => real.setImmediate(resolve))
}
