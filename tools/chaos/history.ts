import { createHash } from 'node:crypto'

export type Mode = 'single' | 'sentinel' | 'cluster'

/** One call of a simulated browser. All instants of a history are in milliseconds since its start. */
export interface Call {
  readonly sentAt: number
  readonly respondedAt: number
  readonly replica: number
  /** User name of the session whose cookie the call carried; null before sign-in. */
  readonly session: string | null
  readonly what: 'login' | 'callback' | 'flux' | 'site' | 'session' | 'logout'
  /** HTTP status; 0 where no response came. */
  readonly status: number
  /** Code of the problem, or what was wrong with the response. */
  readonly code: string
  /** Name of the user whose data the response held; null where it held none. */
  readonly dataOf: string | null
  /** Only for `session`: whether the response said that a user is signed in. */
  readonly authenticated: boolean | null
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
  /** When a session that counted as lost was served again. */
  cameBackAt: number | null
}

export type FaultArea = 'process' | 'redis' | 'token' | 'resource'

/** A fault that was made on purpose. */
export interface Fault {
  readonly kind: string
  readonly area: FaultArea
  /** The replica that it concerns; null: all of them. */
  readonly replica: number | null
  /** The Redis node that it concerns, where it is one. */
  readonly node: string | null
  readonly detail: string
  readonly from: number
  /** Null while it lasts. */
  until: number | null
}

/** What happened to a server process. */
export interface ProcessEvent {
  readonly at: number
  readonly replica: number
  readonly what: 'started' | 'ready' | 'frozen' | 'resumed' | 'killed' | 'terminated' | 'exited'
  /** Only for `exited`: the exit code, null for a signal, and whether the chaos caused it. */
  readonly code: number | null
  readonly expected: boolean
}

/** A replica of Redis that became a master. */
export interface Failover {
  /** When the promotion was seen. */
  readonly at: number
  /** When the trouble of the old master began; an estimate where no fault was made on purpose. */
  readonly troubleSince: number
  readonly from: string
  readonly to: string
  /** When the old master no longer called itself one; null while it does or is away. */
  supersededUntil: number | null
}

/** One request to the token endpoint, as the gateway between a replica and the sandbox saw it. */
export interface TokenRequest {
  readonly seq: number
  readonly replica: number
  readonly kind: 'code' | 'refresh' | 'revoke' | 'other'
  /** A short digest of the code or token that was presented. */
  readonly token: string
  readonly user: string | null
  readonly arrivedAt: number
  /** When it went on to the sandbox; null: it never did. */
  forwardedAt: number | null
  /** When the sandbox responded, with which status. */
  respondedAt: number | null
  status: number | null
  /** When the whole response had been passed to the replica. */
  deliveredAt: number | null
  /** When the connection to the replica ended before that. */
  closedAt: number | null
  /** The fault of the network that took the request or its response. */
  lostBy: string | null
  /** From the sandbox's journal: what was done (`granted`, an error code, `fault`), and the fault that it met. */
  outcome: string | null
  fault: string | null
}

interface LogLine {
  readonly at: number
  readonly replica: number
  readonly text: string
}

/** A violation that needs no context, found during the campaign. */
interface Finding {
  readonly at: number
  readonly what: string
  readonly detail: string
}

/** Begin and end of the time in which no fault was active and every session had to be served again. */
interface Healing {
  readonly from: number
  readonly until: number
  /** Users whose sessions were not served by every replica in time. */
  readonly notServed: readonly string[]
}

/** Everything that the checks judge. */
export interface History {
  readonly mode: Mode
  readonly calls: Call[]
  readonly sessions: Map<string, Session>
  readonly faults: Fault[]
  readonly processes: ProcessEvent[]
  readonly failovers: Failover[]
  readonly tokenRequests: TokenRequest[]
  readonly logs: LogLine[]
  readonly findings: Finding[]
  readonly healings: Healing[]
  /** Events from the logs of the Sentinels. */
  readonly notes: { readonly at: number; readonly text: string }[]
  /** Stalls of this machine: so long at that instant no timer ran here. */
  readonly stalls: { readonly at: number; readonly ms: number }[]
  /** Slow responses to `/livez` (null: of Redis) without a fault at the responder. */
  readonly delays: { readonly at: number; readonly replica: number | null; readonly ms: number }[]
}

/** A history without events. */
export function createHistory(mode: Mode): History {
  return {
    mode,
    calls: [],
    sessions: new Map(),
    faults: [],
    processes: [],
    failovers: [],
    tokenRequests: [],
    logs: [],
    findings: [],
    healings: [],
    notes: [],
    stalls: [],
    delays: [],
  }
}

/** Milliseconds since the begin of a campaign, by the monotonic clock. */
export type Clock = () => number

/** A name for a secret, from which it cannot be found. */
export function digestOf(secret: string): string {
  return createHash('sha256').update(secret).digest('hex').slice(0, 8)
}

/** What looks like a token, a code or the value of a session cookie. */
export const TOKEN_OR_COOKIE = /(?:at|rt|code)-[A-Za-z0-9_-]{43}|[A-Za-z0-9_-]{43}\.[A-Za-z0-9_-]{43}/g
