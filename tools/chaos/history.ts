/** How Redis runs. */
export type Mode = 'single' | 'sentinel' | 'cluster'

/** Milliseconds since the begin of a campaign, by the monotonic clock. All instants of a history are of this clock. */
export type Clock = () => number

/** One call of a simulated browser. */
export interface Call {
  readonly sentAt: number
  readonly respondedAt: number
  readonly replica: number
  /** User name of the session whose cookie the call carried; null before sign-in. */
  readonly session: string | null
  readonly what: 'login' | 'callback' | 'flux' | 'logout'
  /** HTTP status; 0 where no response came. */
  readonly status: number
  /** Code of the problem, or why there is no response. */
  readonly code: string
  /** Name of the user whose data the response held; null where it held none. */
  readonly dataOf: string | null
}

/** One sign-in with a user name of its own, until the session is ended or lost. */
export interface Session {
  readonly user: string
  readonly signInBeganAt: number
  readonly signedInAt: number
  /** Begin of the record key, as in the log. */
  readonly recordKey: string
  /** When the first sign-out was sent; from then on a 401 is no loss. */
  endingAt: number | null
  /** When a sign-out had its 204, and from which replica. */
  ended: { readonly at: number; readonly replica: number } | null
  /** When a call was refused although the session was never ended. */
  lostAt: number | null
}

/** A fault that was made on purpose. */
export interface Fault {
  readonly kind: string
  readonly strikes: 'process' | 'network to Redis' | 'Redis' | 'token endpoint'
  /** The replica that it concerns; null: all of them. */
  readonly replica: number | null
  readonly detail: string
  readonly from: number
  /** Null while it lasts. */
  until: number | null
}

/** What happened to a server process. */
export interface ProcessEvent {
  readonly at: number
  readonly replica: number
  readonly what: 'started' | 'frozen' | 'resumed' | 'killed' | 'terminated' | 'exited'
  /** Only for `exited`: null for a signal. */
  readonly code: number | null
}

/** A replica of Redis that became a master. */
export interface Failover {
  /** When the promotion was seen. */
  readonly at: number
  /** When the trouble of the old master began; an estimate where no fault was made on purpose. */
  readonly troubleSince: number
  readonly to: string
}

/** One request to the token endpoint, as the gateway between a replica and the sandbox saw it. */
export interface TokenRequest {
  readonly seq: number
  readonly replica: number
  readonly isRefresh: boolean
  /** A short digest of the refresh token. */
  readonly token: string
  /** That of the refresh token in the response. */
  issued: string | null
  readonly arrivedAt: number
  /** When it went on to the sandbox; null: it never did. */
  forwardedAt: number | null
  /** Of the response of the sandbox; null: it gave none. */
  status: number | null
  /** When the whole response had been passed to the replica. */
  deliveredAt: number | null
  /** When the connection to the replica ended before that. */
  closedAt: number | null
  /** From the sandbox's journal: its user, what was done (`granted`, an error code), and the fault that it met. */
  user: string | null
  outcome: string | null
  fault: string | null
}

/** Everything that the checks judge. */
export interface History {
  readonly calls: Call[]
  readonly sessions: Map<string, Session>
  readonly faults: Fault[]
  readonly processes: ProcessEvent[]
  readonly failovers: Failover[]
  readonly tokenRequests: TokenRequest[]
  readonly logs: { readonly at: number; readonly replica: number; readonly text: string }[]
  /** Violations that need no context, found during the campaign. */
  readonly findings: { readonly at: number; readonly what: string; readonly detail: string }[]
  /** Times in which no fault was active, and the users whose sessions not every replica served by their end. */
  readonly healings: {
    readonly from: number
    readonly until: number
    readonly notServed: readonly string[]
  }[]
  /** Stalls of this machine: so long at that instant no timer ran here. */
  readonly stalls: { readonly at: number; readonly ms: number }[]
}

/** A history without events. */
export function createHistory(): History {
  return {
    ...{ calls: [], sessions: new Map(), faults: [], processes: [], failovers: [], tokenRequests: [] },
    ...{ logs: [], findings: [], healings: [], stalls: [] },
  }
}

/** An instant as the log of the campaign has it. */
export function at(instant: number): string {
  return `${(instant / 1_000).toFixed(3)} s`
}
