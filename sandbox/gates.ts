import type { Endpoint } from './faults.ts'
import type { JournalEntry } from './journal.ts'

export interface GateOptions {
  /** Before anything is done for the request (default), or after the work and before the response. */
  point?: 'before' | 'after'
  /** Only this grant type, or this operation. */
  only?: string
}

/** Holds every request that it matches until it is released. */
export interface Gate {
  readonly id: number
  /** Resolves with the first request that is held here. */
  readonly arrived: Promise<JournalEntry>
  /** Resolves once so many requests have been held here; rejects if it is released before. */
  arrivals(count: number): Promise<void>
  /** Requests held at this moment. */
  waiting(): number
  /** Releases the held requests and removes the gate. */
  release(): void
}

interface OpenGate extends Gate {
  endpoint: Endpoint
  options: GateOptions
  hold(entry: JournalEntry): Promise<void>
}

export type Gates = ReturnType<typeof createGates>

/** Points at which a test can hold requests, so that no test needs to sleep to win a race. */
export function createGates() {
  const open = new Map<number, OpenGate>()
  let lastId = 0

  return {
    /** Adds a gate. Requests that have already passed its point are not held. */
    hold(endpoint: Endpoint, options: GateOptions = {}): Gate {
      lastId += 1
      const gate = createGate({ id: lastId, endpoint, options, remove: () => open.delete(gate.id) })
      open.set(gate.id, gate)
      return gate
    },

    find(id: number): Gate | null {
      return open.get(id) ?? null
    },

    list(): { id: number; endpoint: Endpoint; options: GateOptions; waiting: number }[] {
      return [...open.values()].map((gate) => ({
        id: gate.id,
        endpoint: gate.endpoint,
        options: gate.options,
        waiting: gate.waiting(),
      }))
    },

    /** Releases every gate. */
    releaseAll(): void {
      for (const gate of [...open.values()]) gate.release()
    },

    /** Resolves when no gate holds the request at this point any more. */
    async pass(endpoint: Endpoint, point: 'before' | 'after', entry: JournalEntry): Promise<void> {
      for (const gate of open.values()) {
        const { only, point: at = 'before' } = gate.options
        const matches = gate.endpoint === endpoint && at === point
        if (matches && (only === undefined || only === entry.kind)) await gate.hold(entry)
      }
    },
  }
}

function createGate({
  id,
  endpoint,
  options,
  remove,
}: {
  id: number
  endpoint: Endpoint
  options: GateOptions
  remove: () => void
}): OpenGate {
  const first = deferred<JournalEntry>()
  const opened = deferred<void>()
  const watchers = new Set<() => void>()
  let released = false
  let arrivals = 0
  let waiting = 0

  return {
    id,
    endpoint,
    options,
    arrived: first.promise,
    waiting: () => waiting,

    arrivals(count) {
      return new Promise((resolve, reject) => {
        function look(): void {
          if (arrivals >= count) resolve()
          else if (released) reject(new Error(`gate released after ${arrivals} of ${count} arrivals`))
          else return
          watchers.delete(look)
        }
        watchers.add(look)
        look()
      })
    },

    async hold(entry) {
      arrivals += 1
      waiting += 1
      first.resolve(entry)
      for (const look of [...watchers]) look()
      await opened.promise
      waiting -= 1
    },

    release() {
      released = true
      remove()
      opened.resolve()
      for (const look of [...watchers]) look()
    },
  }
}

// Promise.withResolvers needs Node 22.
function deferred<T>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve!: (value: T) => void
  const promise = new Promise<T>((settle) => {
    resolve = settle
  })
  return { promise, resolve }
}
