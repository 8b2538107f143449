import type { IncomingHttpHeaders } from 'node:http'
import type { FastifyRequest } from 'fastify'
import type { Endpoint } from './faults.ts'

/** A string for a single value, an array for a repeated name. */
type Fields = Record<string, string | string[]>

/** One request as it arrived, and its result. It contains secrets in plain text, for tests. */
export interface JournalEntry {
  readonly seq: number
  /** Epoch milliseconds of the arrival. */
  readonly at: number
  readonly endpoint: Endpoint | 'authorize' | 'unknown'
  /** The grant type as sent (token), or `GetFlux` or `UpdateSite` (resource). */
  readonly kind: string | null
  readonly method: string
  /** Path and query exactly as they came. */
  readonly url: string
  readonly path: string
  readonly query: Fields
  readonly headers: IncomingHttpHeaders
  /** Alternating names and values, repeated fields included. */
  readonly rawHeaders: readonly string[]
  readonly form: Fields | null
  /** The text of the body if it is not a form. */
  readonly body: string | null
  /** Null while nothing was done yet; `granted`, `answered`, an error code, `fault`, … */
  outcome: string | null
  /** Mode of the fault that was applied to the request. */
  fault: string | null
  /** User of the request; null without a user context. */
  username: string | null
  /** Number of the access token that the request led to, within its authorization; null without one. */
  issued: number | null
  /** Status that was sent; null before that and where no complete response was sent. */
  status: number | null
}

/** What `entries` and `until` compare; members left out match anything. */
export type EntryFilter = Partial<
  Pick<JournalEntry, 'endpoint' | 'kind' | 'method' | 'path' | 'outcome' | 'fault' | 'username' | 'status'>
>

export type Journal = ReturnType<typeof createJournal>

/** The last `size` requests, and counters over all requests until they are cleared. */
export function createJournal({ size, now }: { size: number; now: () => number }) {
  let entries: JournalEntry[] = []
  let counts: Record<string, number> = {}
  let seq = 0
  const watchers = new Set<() => void>()

  function changed(): void {
    for (const look of [...watchers]) look()
  }

  function matching(filter: EntryFilter): JournalEntry[] {
    const wanted = Object.entries(filter)
    return entries.filter((entry) =>
      wanted.every(([name, value]) => entry[name as keyof EntryFilter] === value),
    )
  }

  return {
    /** Oldest first. */
    entries(filter: EntryFilter = {}): JournalEntry[] {
      return matching(filter)
    },

    /** Requests by `endpoint kind outcome`, for example `token refresh_token granted`. */
    counters(): Record<string, number> {
      return { ...counts }
    },

    /** Resolves as soon as `count` kept entries match, with them. Never rejects: bound the test in time. */
    until(filter: EntryFilter, count = 1): Promise<JournalEntry[]> {
      return new Promise((resolve) => {
        function look(): void {
          const found = matching(filter)
          if (found.length < count) return
          watchers.delete(look)
          resolve(found)
        }
        watchers.add(look)
        look()
      })
    },

    clear(): void {
      entries = []
      counts = {}
    },

    /** Records the arrival of a request. */
    recordArrival(
      request: FastifyRequest,
      what: Pick<JournalEntry, 'endpoint' | 'kind'> & { form?: URLSearchParams; body?: string },
    ): JournalEntry {
      const url = request.raw.url ?? '/'
      const mark = url.indexOf('?')
      seq += 1
      const entry: JournalEntry = {
        seq,
        at: now(),
        endpoint: what.endpoint,
        kind: what.kind,
        method: request.method,
        url,
        path: mark === -1 ? url : url.slice(0, mark),
        query: fieldsOf(queryOf(request)),
        headers: request.headers,
        rawHeaders: request.raw.rawHeaders,
        form: what.form === undefined ? null : fieldsOf(what.form),
        body: what.body ?? null,
        outcome: null,
        fault: null,
        username: null,
        issued: null,
        status: null,
      }
      entries.push(entry)
      if (entries.length > size) entries.shift()
      changed()
      return entry
    },

    /** Records the fault that the request meets. */
    recordFault(entry: JournalEntry, fault: string): void {
      entry.fault = fault
      changed()
    },

    /** Records what was done for the request, and counts it. */
    recordOutcome(entry: JournalEntry, outcome: string): void {
      entry.outcome = outcome
      const key = [entry.endpoint, entry.kind, outcome].filter((part) => part !== null).join(' ')
      counts[key] = (counts[key] ?? 0) + 1
      changed()
    },

    /** Records that a response was sent whole. */
    recordStatus(entry: JournalEntry, status: number): void {
      entry.status = status
      changed()
    },
  }
}

/** The query of a request, repeated and odd parameters included. */
export function queryOf(request: FastifyRequest): URLSearchParams {
  const url = request.raw.url ?? '/'
  const mark = url.indexOf('?')
  return new URLSearchParams(mark === -1 ? '' : url.slice(mark + 1))
}

function fieldsOf(params: URLSearchParams): Fields {
  return Object.fromEntries(
    [...new Set(params.keys())].map((name) => {
      const values = params.getAll(name)
      return [name, values.length === 1 ? (values[0] ?? '') : values]
    }),
  )
}
