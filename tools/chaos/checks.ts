import { around, describeRequest, historyOf } from './describe.ts'
import type { Call, Fault, History, Session, TokenRequest } from './history.ts'

/**
 * Settings of the servers under test, and the bounds that the checks derive from them, in milliseconds. The bounds are
 * numbers of their own: a change of the server must not move them.
 */
export const TOKEN_TIMEOUT_MS = 2_000
export const SHUTDOWN_SECONDS = 12
/** Life of an access token. The server refreshes it for the last third. */
export const TOKEN_LIFE_SECONDS = 9
/** How long a process may present a refresh token after its last contact with Redis. */
const LEASE_MS = TOKEN_TIMEOUT_MS + 5_000
/** How long one presentation may have no response before the same refresh token is presented again. */
const NO_RESPONSE_MS = 30_000
/** A process that stops ends requests to the token endpoint so long after the signal. */
const STOP_WAITS_MS = SHUTDOWN_SECONDS * 1_000 - 3_000
/** A replica serves a session from memory: the default of SESSION_CACHE_MS. */
const SESSION_CACHE_MS = 1_000
/** After a promotion every replica follows within this, and no refresh begins for at least the pause. */
const FOLLOW_MS = 6_000
const PAUSE_MS = 3_500
/** How exactly this process knows when something happened, stalls apart. */
const SLACK_MS = 350

/** Something that must not happen, and what led to it. */
interface Violation {
  readonly check: string
  readonly at: number
  readonly what: string
  readonly history: readonly string[]
}

export interface Verdict {
  readonly violations: Violation[]
  /** Sessions that were lost, each with the documented limit that explains it. */
  readonly losses: { readonly user: string; readonly at: number; readonly cause: string }[]
}

/** Judges the whole history. Depends on nothing else, so that it can be tested with a history that is made up. */
export function check(history: History): Verdict {
  const facts = createFacts(history)
  const { losses, violations: lost } = checkLosses(history, facts)
  const violations = [
    ...lost,
    ...checkEndedSessions(history, facts),
    ...checkResponses(history, facts),
    ...checkPresentations(history, facts),
    ...checkStops(history, facts),
    ...checkHealing(history),
    ...history.findings.map(({ at, what, detail }) => ({ check: what, at, what, history: [detail] })),
  ]
  return { violations: violations.sort((one, other) => one.at - other.at), losses }
}

type Facts = ReturnType<typeof createFacts>

interface Span {
  readonly from: number
  readonly until: number
}

/** The disturbances of a history, as the checks query them. */
function createFacts({ faults, processes, failovers, stalls, tokenRequests }: History) {
  const overlaps = (one: { from: number; until: number | null }, from: number, until: number): boolean =>
    one.from <= until && (one.until ?? Number.POSITIVE_INFINITY) >= from

  /** The times between an event of these and the next event of those. */
  function spans(replica: number, begins: readonly string[], ends: readonly string[]): Span[] {
    const own = processes.filter((event) => event.replica === replica)
    return own.flatMap(({ at, what }, index) => {
      if (!begins.includes(what)) return []
      const end = own.slice(index + 1).find((event) => ends.includes(event.what))
      return [{ from: at, until: end?.at ?? Number.POSITIVE_INFINITY }]
    })
  }

  const frozenSpans = (replica: number) => spans(replica, ['frozen'], ['resumed', 'killed', 'exited'])
  const downSpans = (replica: number) => spans(replica, ['killed', 'terminated'], ['started'])
  const disturbing = (replica: number, strikes: Fault['strikes'], from: number, until: number) =>
    faults.filter(
      (fault) =>
        fault.strikes === strikes &&
        (fault.replica === null || fault.replica === replica) &&
        overlaps(fault, from, until),
    )
  /** A process that was frozen, or cut off from Redis, learns of a promotion afterwards. */
  const held = faults.filter(
    ({ kind, strikes }) => kind === 'freeze a replica' || strikes === 'network to Redis',
  )
  const followedBy = (at: number): number => {
    const hindering = held.filter((fault) => overlaps(fault, at, at + FOLLOW_MS))
    return Math.max(at, ...hindering.map(({ until }) => until ?? Number.POSITIVE_INFINITY)) + FOLLOW_MS
  }
  const failoversIn = (from: number, until: number) =>
    failovers
      .map((failover) => ({ ...failover, followedBy: followedBy(failover.at) }))
      .filter((failover) => failover.followedBy >= from && failover.troubleSince <= until)

  return {
    /** The addition to a bound for stalls of the machine between these instants. */
    slack(from: number, until: number): number {
      const met = stalls.filter(({ at, ms }) => at >= from - 100 && at - ms <= until + 100)
      return met.reduce((sum, { ms }) => sum + ms, SLACK_MS)
    },

    /** Faults of this kind that concern this replica. */
    disturbing,
    failoversIn,

    /** Whether Redis was in trouble for this replica, or being failed over, or about to be well again. */
    redisTrouble: (replica: number, from: number, until: number): boolean =>
      disturbing(replica, 'Redis', from - 5_000, until).length > 0 ||
      disturbing(replica, 'network to Redis', from - 5_000, until).length > 0 ||
      failoversIn(from, until).length > 0,

    /** When the access token ends that was issued together with this refresh token. */
    expiresAt(token: string): number {
      const issuedAt = tokenRequests.find(({ issued }) => issued === token)?.arrivedAt ?? 0
      return issuedAt + TOKEN_LIFE_SECONDS * 1_000
    },

    frozenIn: (replica: number, from: number, until: number): Span | undefined =>
      frozenSpans(replica).find((span) => overlaps(span, from, until)),

    isDownIn: (replica: number, from: number, until: number): boolean =>
      downSpans(replica).some((span) => overlaps(span, from, until)),

    /** When this happened to the process of the replica. */
    eventIn: (
      what: 'killed' | 'terminated',
      replica: number,
      from: number,
      until: number,
    ): number | undefined =>
      processes.find(
        (event) => event.what === what && event.replica === replica && event.at >= from && event.at <= until,
      )?.at,
  }
}

// Ended sessions

function checkEndedSessions(history: History, facts: Facts): Violation[] {
  const found = new Map<Session, Violation>()
  for (const { session: user, status, sentAt, replica } of history.calls) {
    const session = user === null ? undefined : history.sessions.get(user)
    if (session?.ended == null || status !== 200 || found.has(session)) continue
    const { at: endedAt, replica: endedBy } = session.ended
    const slack = facts.slack(endedAt, sentAt)
    // A process decides when it reads the request, never before that was sent.
    if (sentAt <= endedAt + SESSION_CACHE_MS + slack) continue
    // Requests that arrived while the process was stopped have their responses afterwards.
    const frozen = facts.frozenIn(replica, endedAt, sentAt)
    if (frozen !== undefined && sentAt <= frozen.until + slack) continue
    // A sign-out that was lost with a master is written again, while its process lives (0006).
    const isLost = facts
      .failoversIn(endedAt - 1_000, sentAt)
      .some(
        ({ troubleSince, followedBy }) =>
          endedAt >= troubleSince - 1_000 &&
          endedAt <= followedBy &&
          (sentAt <= followedBy + FOLLOW_MS + slack ||
            facts.isDownIn(endedBy, endedAt, followedBy + FOLLOW_MS)),
      )
    if (isLost) continue
    found.set(session, {
      check: 'ended sessions are not served',
      at: sentAt,
      what: `an ended session was served by replica ${replica}, ${Math.round(sentAt - endedAt)} ms after its sign-out by replica ${endedBy}`,
      history: historyOf(history, session.user, { from: endedAt - 15_000, until: sentAt + 500 }),
    })
  }
  return [...found.values()]
}

// Responses

function checkResponses(history: History, facts: Facts): Violation[] {
  return history.calls.flatMap((call) => {
    const wrong = faultOfResponse(call, facts, history)
    if (wrong === null) return []
    const { sentAt, respondedAt, replica, what, status, code } = call
    const span = { from: sentAt - 15_000, until: respondedAt + 500 }
    return {
      check: wrong,
      at: sentAt,
      what: `${wrong} (${what} through replica ${replica}: ${status} ${code}, after ${Math.round(respondedAt - sentAt)} ms)`,
      history:
        call.session === null ? around(history, span, replica) : historyOf(history, call.session, span),
    }
  })
}

const EXPECTED: Record<Call['what'], readonly number[]> = {
  login: [303, 503],
  callback: [303, 502, 503, 504],
  flux: [200, 401, 503],
  logout: [204, 503],
}

/** Null if the response itself is correct. Whether the session should have been served is asked elsewhere. */
function faultOfResponse(call: Call, facts: Facts, history: History): string | null {
  const { sentAt, respondedAt, replica, status, code, what, session, dataOf } = call
  if (dataOf !== null && dataOf !== session) return `the response held data of ${dataOf}, not of ${session}`
  if (code === 'upstream forbidden') return 'the token of another user was sent'
  if (EXPECTED[what].includes(status)) return null
  if (status === 0) {
    const isExcused =
      facts.frozenIn(replica, sentAt - 2_000, respondedAt) !== undefined ||
      facts.isDownIn(replica, sentAt - 2_000, respondedAt)
    return isExcused ? null : `no response (${code})`
  }
  // The authorization server has taken everything back: what follows from that is judged as a loss.
  const isRevoked = session !== null && reuseOf(history, session) !== null
  if (status === 403 && isRevoked) return null
  return `a response with status ${status}`
}

// Presentations of refresh tokens

/** Refresh requests that reached the authorization server, by token, in order of their arrival there. */
function presentations(history: History): TokenRequest[][] {
  const reached = history.tokenRequests.filter((request) => request.isRefresh && request.forwardedAt !== null)
  const byToken = new Map<string, TokenRequest[]>()
  for (const request of reached.sort((one, other) => one.forwardedAt! - other.forwardedAt!)) {
    byToken.set(request.token, [...(byToken.get(request.token) ?? []), request])
  }
  return [...byToken.values()]
}

/** The first refresh token of this user that was presented after it had been used. */
function reuseOf(history: History, user: string): { used: TokenRequest; again: TokenRequest } | null {
  for (const list of presentations(history)) {
    const at = list.findIndex((request) => request.outcome === 'granted')
    if (list[at]?.user === user && list[at + 1] !== undefined)
      return { used: list[at]!, again: list[at + 1]! }
  }
  return null
}

function checkPresentations(history: History, facts: Facts): Violation[] {
  return presentations(history).flatMap((list) =>
    list.slice(1).flatMap((after, index) => {
      const before = list[index]!
      if (limitBehind(before, after, facts) !== null) return []
      const user = list.find((request) => request.user !== null)?.user ?? null
      const span = { from: before.arrivedAt - 12_000, until: after.arrivedAt + 3_000 }
      return {
        check: 'no refresh token is presented twice',
        at: after.arrivedAt,
        what: `a refresh token was presented again by replica ${after.replica} although the presentation before by replica ${before.replica} was in no doubt`,
        history: [
          `before: ${describeRequest(before)}`,
          `after:  ${describeRequest(after)}`,
          ...historyOf(history, user, span),
        ],
      }
    }),
  )
}

/** Why the refresh token of `before` may be presented again by `after`: a documented limit, or null. */
function limitBehind(before: TokenRequest, after: TokenRequest, facts: Facts): string | null {
  const limit = documentedLimit(before, after, facts)
  if (limit !== null) return limit
  // Nothing was done to its process, but the machine may have held it up for longer than its lease.
  const [from, until] = [before.arrivedAt, after.arrivedAt]
  return until - from >= LEASE_MS - 2_000 && facts.slack(from, until) > 2_000 ? 'this machine stalled' : null
}

function documentedLimit(before: TokenRequest, after: TokenRequest, facts: Facts): string | null {
  const { replica, arrivedAt, deliveredAt, status } = before
  const againAt = after.arrivedAt
  const overAt = deliveredAt ?? before.closedAt ?? Number.POSITIVE_INFINITY
  const isLeaseOver = againAt - arrivedAt >= LEASE_MS - 2_000
  if (deliveredAt !== null && status! >= 300) return 'its response was an error'
  if ((deliveredAt ?? againAt) - arrivedAt >= NO_RESPONSE_MS - 500) return 'no response came within the bound'

  // Until when its process may have had tokens that were not stored yet.
  let storedBy = Math.min(overAt, againAt) + 1_000 + facts.slack(arrivedAt, againAt)
  for (const strikes of ['Redis', 'network to Redis'] as const) {
    for (const { from, until } of facts.disturbing(replica, strikes, arrivedAt, againAt)) {
      if (from <= storedBy) storedBy = Math.max(storedBy, Math.min(until ?? againAt, againAt) + 5_000)
    }
  }
  const unstored = [replica, arrivedAt - 200, Math.min(storedBy, againAt)] as const

  if (facts.eventIn('killed', ...unstored) !== undefined)
    return 'a replica was killed before it stored tokens'

  const frozen = facts.frozenIn(...unstored)
  if (isLeaseOver && frozen !== undefined && Math.min(frozen.until, againAt) - frozen.from >= 1_000)
    return 'a process was frozen for longer than its lease'

  const stoppedAt = facts.eventIn('terminated', replica, arrivedAt - SHUTDOWN_SECONDS * 1_000, againAt)
  if (stoppedAt !== undefined && deliveredAt === null && overAt - stoppedAt >= STOP_WAITS_MS - 1_000)
    return 'a token request hung until its process had to stop'
  if (stoppedAt !== undefined && deliveredAt !== null && facts.redisTrouble(replica, deliveredAt, storedBy))
    return 'a process had to stop while Redis did not take its tokens'

  if (
    isLeaseOver &&
    facts.disturbing(replica, 'network to Redis', ...(unstored.slice(1) as [number, number])).length > 0
  )
    return 'the holder of new tokens was cut off from Redis'

  for (const { at, troubleSince, followedBy } of facts.failoversIn(arrivedAt - 1_000, againAt)) {
    if (at > againAt + 500) continue
    const storedAt = Math.min(overAt, againAt)
    if (storedAt >= at - 300 && storedAt <= followedBy)
      return 'tokens were stored on a master that another had replaced (0006)'
    if (arrivedAt < at && overAt > at && againAt >= at + PAUSE_MS)
      return 'a lease was lost with its master (0006)'
    const gone = [replica, storedAt, at + 8_000] as const
    const isGone =
      facts.isDownIn(...gone) ||
      facts.frozenIn(...gone) !== undefined ||
      facts.disturbing(replica, 'network to Redis', storedAt, at + 8_000).length > 0
    if (storedAt >= troubleSince - 1_000 && storedAt <= at && isGone)
      return 'new tokens were lost with a master and their process (0006)'
  }

  if (deliveredAt !== null || overAt > againAt) return null
  const struck = facts.disturbing(replica, 'token endpoint', arrivedAt, overAt)
  const isCut = struck.some(
    ({ kind, from, until }) =>
      kind.startsWith('cut ') && overAt >= from - 300 && overAt <= (until ?? overAt) + 300,
  )
  // A token in doubt waits until its access token has expired (0002).
  const isNeeded = againAt >= facts.expiresAt(before.token) - 1_000 - facts.slack(arrivedAt, againAt)
  if (isNeeded && (isCut || before.fault !== null)) return 'a response was lost, on purpose'
  if (
    struck.length > 0 &&
    overAt - arrivedAt >= LEASE_MS - 3_000 &&
    facts.redisTrouble(replica, arrivedAt, overAt)
  )
    return 'a lease could not be renewed while a token request hung'
  return null
}

// Lost sessions

function checkLosses(history: History, facts: Facts): Pick<Verdict, 'losses' | 'violations'> {
  const losses: Verdict['losses'] = []
  const violations: Violation[] = []
  for (const session of history.sessions.values()) {
    const { user, lostAt, signedInAt } = session
    if (lostAt === null) continue
    const cause = causeOfLoss(history, session, lostAt, facts)
    if (cause !== null) losses.push({ user, at: lostAt, cause })
    else {
      const from = Math.max(session.signInBeganAt, lostAt - 25_000)
      violations.push({
        check: 'no session is lost',
        at: lostAt,
        what: `a session that was never ended was refused, ${Math.round(lostAt - signedInAt)} ms after its sign-in`,
        history: historyOf(history, user, { from, until: lostAt + 1_000 }),
      })
    }
  }
  return { losses, violations }
}

/** The documented limit that explains a loss; null where there is none. */
function causeOfLoss(history: History, session: Session, lostAt: number, facts: Facts): string | null {
  const { user, signInBeganAt, signedInAt } = session
  const reuse = reuseOf(history, user)
  if (reuse !== null && reuse.again.arrivedAt <= lostAt) return limitBehind(reuse.used, reuse.again, facts)
  const isOfLastMoment = facts
    .failoversIn(signInBeganAt - 1_000, lostAt)
    .some(
      ({ troubleSince, at, followedBy }) =>
        signedInAt >= troubleSince - 1_000 && signInBeganAt <= followedBy && at <= lostAt + 500,
    )
  return isOfLastMoment ? 'a session began on a master that was replaced (0006)' : null
}

// Stops and healing

function checkStops(history: History, facts: Facts): Violation[] {
  return history.processes.flatMap(({ at, replica, what }) => {
    if (what !== 'terminated') return []
    const exit = history.processes.find(
      (event) => event.what === 'exited' && event.replica === replica && event.at >= at,
    )
    // Tokens that Redis did not take in time are an exit code of 1, as documented.
    const isExcused = exit?.code === 1 && facts.redisTrouble(replica, at, exit.at)
    if (exit === undefined || exit.code === 0 || isExcused) return []
    return {
      check: 'a stop exits with 0',
      at,
      what: `replica ${replica} exited with ${exit.code}, ${Math.round(exit.at - at)} ms after SIGTERM`,
      history: around(history, { from: at - 10_000, until: exit.at + 100 }, replica),
    }
  })
}

function checkHealing(history: History): Violation[] {
  return history.healings.flatMap(({ from, until, notServed }) =>
    notServed.map((user) => ({
      check: 'every session is served after the faults',
      at: until,
      what: `the session of ${user} was not served by every replica after the faults`,
      history: historyOf(history, user, { from: from - 20_000, until }),
    })),
  )
}
