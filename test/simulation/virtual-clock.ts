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

interface EventOptions {
  at: number
  /** Orders events that are due at the same instant. */
  order: number
  owner: Owner | null
  work: () => unknown
  /** Default: none. */
  channel?: Channel | null
  timer?: boolean
  everyMs?: number
}

/** Something that happens at an instant of virtual time. It is also what `setTimeout` returns. */
export class ScheduledEvent {
  at: number
  order: number
  sequence = 0
  cancelled = false
  readonly owner: Owner | null
  readonly channel: Channel | null
  readonly work: () => unknown
  /** A timer of the code under test, with its interval or 0. */
  readonly timer: boolean
  readonly everyMs: number

  constructor({ at, order, owner, work, channel = null, timer = false, everyMs = 0 }: EventOptions) {
    this.at = at
    this.order = order
    this.owner = owner
    this.channel = channel
    this.work = work
    this.timer = timer
    this.everyMs = everyMs
  }

  unref(): this {
    return this
  }
  ref(): this {
    return this
  }
  hasRef(): boolean {
    return true
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
  readonly #heap: ScheduledEvent[] = []
  readonly #random: Random
  readonly #trace: Trace
  #sequence = 0

  constructor(random: Random, trace: Trace) {
    this.#random = random
    this.#trace = trace
  }

  /** Replaces the timers and clocks of the process until `uninstall` is called. */
  install(): void {
    const set =
      (repeats: boolean) =>
      (work: (...args: unknown[]) => void, ms?: number, ...args: unknown[]): ScheduledEvent => {
        // Node cuts fractions off, so a timer may fire a moment before its time by a finer clock. Here some do.
        const exact = Number(ms) || 0
        const delay = Math.max(1, this.#random.chance(0.1) ? Math.trunc(exact) : exact)
        return this.#setTimer(args.length === 0 ? work : () => work(...args), delay, repeats ? delay : 0)
      }
    const clear = (event: unknown): void => {
      if (event instanceof ScheduledEvent) this.cancel(event)
    }
    Object.assign(globalThis, {
      setTimeout: set(false),
      setInterval: set(true),
      setImmediate: (work: (...args: unknown[]) => void, ...args: unknown[]) =>
        this.#setTimer(() => work(...args), 0, 0),
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
    return this.#push(new ScheduledEvent({ at: this.now + ms, order: this.#random.bits(), owner, work }))
  }

  /** A delivery on a connection: never before one that was sent earlier. */
  deliver(
    channel: Channel,
    { ms, owner, work }: { ms: number; owner: Owner | null; work: () => unknown },
  ): ScheduledEvent {
    const at = Math.max(this.now + ms, channel.lastAt + 0.001)
    channel.lastAt = at
    return this.#push(new ScheduledEvent({ at, order: this.#random.bits(), owner, work, channel }))
  }

  cancel(event: ScheduledEvent): void {
    if (event.cancelled) return
    event.cancelled = true
    if (event.timer) event.owner!.timers -= 1
  }

  /** From now on `owner` does nothing. */
  stall(owner: Owner): void {
    owner.stalled = true
  }

  /** Everything that was held back happens now: what came by one connection in its order, all else in any. */
  resume(owner: Owner): void {
    owner.stalled = false
    const held = owner.held.splice(0)
    const orders = new Map<Channel, number[]>()
    for (const event of held) {
      if (event.channel === null) continue
      const known = orders.get(event.channel)
      if (known === undefined) orders.set(event.channel, [this.#random.bits()])
      else known.push(this.#random.bits())
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
    const heap = this.#heap
    while (!this.stopped && heap.length > 0 && heap[0]!.at <= untilMs) {
      const event = this.#pop()
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
      if (event.timer) {
        if (event.everyMs === 0) {
          event.cancelled = true
          owner!.timers -= 1
        } else {
          event.at = this.now + event.everyMs
          event.order = this.#random.bits()
          this.#push(event)
        }
      }
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
    const at = this.now + ms
    return this.#push(
      new ScheduledEvent({ at, order: this.#random.bits(), owner, work, timer: true, everyMs }),
    )
  }

  #push(event: ScheduledEvent): ScheduledEvent {
    const heap = this.#heap
    this.#sequence += 1
    event.sequence = this.#sequence
    let at = heap.length
    heap.push(event)
    while (at > 0) {
      const parent = (at - 1) >> 1
      if (!isBefore(event, heap[parent]!)) break
      heap[at] = heap[parent]!
      at = parent
    }
    heap[at] = event
    return event
  }

  #pop(): ScheduledEvent {
    const heap = this.#heap
    const first = heap[0]!
    const last = heap.pop()!
    const length = heap.length
    if (length === 0) return first
    let at = 0
    for (;;) {
      let child = 2 * at + 1
      if (child >= length) break
      if (child + 1 < length && isBefore(heap[child + 1]!, heap[child]!)) child += 1
      if (!isBefore(heap[child]!, last)) break
      heap[at] = heap[child]!
      at = child
    }
    heap[at] = last
    return first
  }
}

function isBefore(a: ScheduledEvent, b: ScheduledEvent): boolean {
  if (a.at !== b.at) return a.at < b.at
  if (a.order !== b.order) return a.order < b.order
  return a.sequence < b.sequence
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
