import type { Call, Failover, Fault, History, Session, TokenRequest } from './history.ts'
import type { FaultKind } from './plan.ts'
import {
  FOLLOW_MS,
  LEASE_MS,
  NO_RESPONSE_MS,
  REDIS_TROUBLE_MS,
  RESOURCE_TROUBLE_MS,
  RESPONSE_MS,
  SESSION_CACHE_MS,
  SESSION_IDLE_SECONDS,
  SHUTDOWN_SECONDS,
  SLACK_MS,
} from './settings.ts'

/** Something that must not happen, and what led to it. */
interface Violation {
  /** Equal for the same event, so that the report has it once. */
  readonly id: string
  /** The check that found it. */
  readonly check: string
  readonly at: number
  readonly what: string
  readonly history: readonly string[]
}

/** A session that was lost, and the documented limit that explains it. */
interface Loss {
  readonly user: string
  readonly at: number
  readonly cause: string
  readonly history: readonly string[]
}

export interface Verdict {
  readonly violations: Violation[]
  readonly losses: Loss[]
  /** Number of uses of each limit that lost no session, by name. */
  readonly limits: Map<string, number>
}

/** Judges the whole history. Depends on nothing else, so that it can be tested with a history that is made up. */
export function check(history: History): Verdict {
  const facts = createFacts(history)
  const limits = new Map<string, number>()
  const countLimit = (name: string): void => void limits.set(name, (limits.get(name) ?? 0) + 1)
  const { losses, violations: unexplained } = checkLosses(history, facts)
  const violations = [
    ...unexplained,
    ...checkEndedSessions(history, facts, countLimit),
    ...checkResponses(history, facts),
    ...checkPresentations(history, facts),
    ...checkStops(history, facts),
    ...checkHealing(history),
    ...history.findings.map(({ at, what, detail }, index) => ({
      ...{ id: `finding ${index}`, check: what, at, what, history: [detail] },
    })),
  ]
  return { violations: violations.sort((one, other) => one.at - other.at), losses, limits }
}

type Facts = ReturnType<typeof createFacts>

/** Faults of the network after which a replica cannot use Redis. */
const CUTS: ReadonlySet<string> = new Set<FaultKind>([
  'cut a replica off from Redis',
  'freeze the network to Redis',
  'hold the replies of Redis',
])
/** Faults that reset connections to the token endpoint, requests under way included. */
const RESETS: ReadonlySet<string> = new Set<FaultKind>([
  'cut a replica off from the token endpoint',
  'refuse connections to the token endpoint',
  'the token endpoint is away',
])

interface Span {
  readonly from: number
  readonly until: number
}

/** The disturbances of a history, as the checks query them. */
function createFacts(history: History) {
  const { faults, processes, failovers, stalls } = history
  const spanOf = ({ from, until }: Fault): Span => ({ from, until: until ?? Number.POSITIVE_INFINITY })
  const overlaps = (span: Span, from: number, until: number): boolean =>
    span.from <= until && span.until >= from
  const frozen = new Map<number, Span[]>()
  const down = new Map<number, Span[]>()
  for (const { at, replica, what } of processes) {
    const stops = frozen.get(replica) ?? []
    const gaps = down.get(replica) ?? []
    frozen.set(replica, stops)
    down.set(replica, gaps)
    const close = (spans: Span[]): void => {
      const last = spans.at(-1)
      if (last !== undefined && last.until === Number.POSITIVE_INFINITY)
        spans[spans.length - 1] = { ...last, until: at }
    }
    if (what === 'frozen') stops.push({ from: at, until: Number.POSITIVE_INFINITY })
    if (what === 'resumed' || what === 'killed' || what === 'exited') close(stops)
    if (what === 'killed' || what === 'terminated') gaps.push({ from: at, until: Number.POSITIVE_INFINITY })
    if (what === 'ready') close(gaps)
  }

  /** The addition to a bound for the load of the machine between these instants. */
  function slack(from: number, until: number): number {
    let sum = SLACK_MS
    for (const { at, ms } of stalls) if (at >= from - 100 && at - ms <= until + 100) sum += ms
    return sum
  }

  const redisFaults = (replica: number, from: number, until: number): Fault[] =>
    faults.filter(
      (fault) =>
        fault.area === 'redis' &&
        (fault.replica === null || fault.replica === replica) &&
        overlaps(spanOf(fault), from, until),
    )

  return {
    slack,

    faultsOf: (area: Fault['area'], { from, until }: Span, replica: number | null = null): Fault[] =>
      faults.filter(
        (fault) =>
          fault.area === area &&
          (replica === null || fault.replica === null || fault.replica === replica) &&
          overlaps(spanOf(fault), from, until),
      ),

    /** Faults between this replica and Redis, or of Redis itself. */
    redisFaults,

    /** Faults between this replica alone and Redis. */
    cutOff: (replica: number, from: number, until: number): Fault[] =>
      redisFaults(replica, from, until).filter((fault) => fault.replica === replica && CUTS.has(fault.kind)),

    /** Whether Redis was in trouble for this replica, or being failed over, or about to be well again. */
    redisTrouble: (replica: number, from: number, until: number): boolean =>
      redisFaults(replica, from - 5_000, until).length > 0 ||
      failovers.some((failover) => failover.troubleSince <= until && failover.at + FOLLOW_MS >= from),

    frozenIn: (replica: number, from: number, until: number): Span | null =>
      (frozen.get(replica) ?? []).find((span) => overlaps(span, from, until)) ?? null,

    downIn: (replica: number, from: number, until: number): Span | null =>
      (down.get(replica) ?? []).find((span) => overlaps(span, from, until)) ?? null,

    killedIn: (replica: number, from: number, until: number): number | null =>
      processes.find(
        (event) =>
          event.what === 'killed' && event.replica === replica && event.at >= from && event.at <= until,
      )?.at ?? null,

    terminatedIn: (replica: number, from: number, until: number): number | null =>
      processes.find(
        (event) =>
          event.what === 'terminated' && event.replica === replica && event.at >= from && event.at <= until,
      )?.at ?? null,

    failoversIn: (from: number, until: number): Failover[] =>
      failovers.filter((failover) => failover.at >= from && failover.troubleSince <= until),
  }
}

// Ended sessions

function* endedAndServed(history: History): Generator<{ call: Call; session: Session; ended: number }> {
  for (const call of history.calls) {
    if (call.session === null || (call.what !== 'flux' && call.what !== 'site' && call.what !== 'session'))
      continue
    const session = history.sessions.get(call.session)
    if (session?.ended == null || call.sentAt <= session.ended.at) continue
    const served = call.what === 'session' ? call.authenticated === true : call.status === 200
    if (served) yield { call, session, ended: session.ended.at }
  }
}

function checkEndedSessions(history: History, facts: Facts, countLimit: (name: string) => void): Violation[] {
  const violations: Violation[] = []
  for (const { call, session, ended } of endedAndServed(history)) {
    const { replica, sentAt } = call
    const frozen = facts.frozenIn(replica, ended, sentAt)
    // Requests that arrived while the process was stopped have their responses afterwards.
    if (frozen !== null && sentAt <= frozen.until + facts.slack(ended, sentAt)) {
      countLimit('a call was sent while its replica was stopped')
      continue
    }
    if (sentAt <= ended + SESSION_CACHE_MS + facts.slack(ended, sentAt)) continue
    const failover = facts
      .failoversIn(ended - 1_000, sentAt)
      .find(
        ({ troubleSince, at }) =>
          ended >= troubleSince - 1_000 && ended <= at + FOLLOW_MS && sentAt <= at + 2 * FOLLOW_MS + SLACK_MS,
      )
    if (failover !== undefined) {
      countLimit('a sign-out was lost with a master for a while (0006)')
      continue
    }
    violations.push({
      id: `served ${session.user}`,
      check: 'ended sessions are not served',
      at: sentAt,
      what: `an ended session was served by replica ${replica}, ${ms(sentAt - ended)} after its sign-out`,
      history: historyOf(history, session.user, { from: ended - 15_000, until: sentAt + 500 }),
    })
  }
  return firstOf(violations)
}

// Responses

function checkResponses(history: History, facts: Facts): Violation[] {
  const violations: Violation[] = []
  for (const [index, call] of history.calls.entries()) {
    const wrong = faultOfResponse(call, facts, history)
    if (wrong === null) continue
    const { sentAt, respondedAt, replica, what, status, code } = call
    violations.push({
      id: `call ${index}`,
      check: wrong,
      at: sentAt,
      what: `${wrong} (${what} through replica ${replica}: ${status} ${code}, after ${ms(respondedAt - sentAt)})`,
      history:
        call.session === null
          ? around(history, { from: sentAt - 10_000, until: respondedAt })
          : historyOf(history, call.session, { from: sentAt - 15_000, until: respondedAt + 500 }),
    })
  }
  return violations
}

const EXPECTED: Record<Call['what'], readonly number[]> = {
  login: [303, 503],
  callback: [303, 502, 503, 504],
  flux: [200, 401, 403, 500, 502, 503, 504],
  site: [200, 401, 403, 500, 502, 503, 504],
  session: [200, 503],
  logout: [204, 503],
}

/** Whether these are right depends on the session, which other checks look at. */
const USUAL = new Set([200, 204, 303, 401, 503])

/** Null if the response itself is correct. */
function faultOfResponse(call: Call, facts: Facts, history: History): string | null {
  const { sentAt, respondedAt, replica, status, code, what } = call
  const rightUser = call.dataOf === null || call.dataOf === call.session
  if (USUAL.has(status) && code !== 'unreadable' && rightUser && respondedAt - sentAt < RESPONSE_MS) {
    return EXPECTED[what].includes(status) ? null : 'a response with an unexpected status'
  }
  const whole = { from: sentAt - 2_000, until: respondedAt }
  const interrupted =
    facts.frozenIn(replica, whole.from, whole.until) !== null ||
    facts.downIn(replica, whole.from, whole.until) !== null
  const resourceTrouble =
    facts.faultsOf('resource', { from: sentAt - 3_000, until: respondedAt }, replica).length > 0
  const user = call.session

  if (!rightUser) return `the response held data of ${call.dataOf}, not of ${user}`
  if (code === 'upstream forbidden') return 'the token of another user was sent'
  if (status === 500 && !(resourceTrouble && code !== 'internal_error')) return 'a response with status 500'
  if (status === 0) return interrupted ? null : `no response (${code})`
  if (!EXPECTED[what].includes(status)) return 'a response with an unexpected status'
  if (code === 'unreadable') return 'a response that is not what was asked for'
  if ((status === 502 || status === 504) && what !== 'callback' && !resourceTrouble && !interrupted) {
    if (respondedAt - sentAt < RESPONSE_MS + facts.slack(sentAt, respondedAt) && isStalled(facts, call))
      return null
    return 'the resource server was called unusable, and was well'
  }
  if (status === 403 && !resourceTrouble && !interrupted) {
    // The authorization server has taken everything back: what follows from that is judged as a loss.
    const session = user === null ? undefined : history.sessions.get(user)
    const lost = session !== undefined && (session.lostAt !== null || reuseOf(history, session.user) !== null)
    if (!lost) return 'a living session was refused although the resource server was well'
  }
  const redisTrouble = facts.redisTrouble(replica, sentAt, respondedAt)
  const trouble = (resourceTrouble ? RESOURCE_TROUBLE_MS : 0) + (redisTrouble ? REDIS_TROUBLE_MS : 0)
  const bound = RESPONSE_MS + trouble + facts.slack(sentAt, respondedAt)
  if (respondedAt - sentAt > bound && !interrupted) return `a response that took longer than ${ms(bound)}`
  return null
}

function isStalled(facts: Facts, { sentAt, respondedAt }: Call): boolean {
  return facts.slack(sentAt, respondedAt) > 2 * SLACK_MS
}

// Presentations of refresh tokens

/** Refresh requests that reached the authorization server, by token, in order of their arrival there. */
function presentations(history: History): Map<string, TokenRequest[]> {
  const byToken = new Map<string, TokenRequest[]>()
  for (const request of history.tokenRequests) {
    if (request.kind !== 'refresh' || request.forwardedAt === null) continue
    const list = byToken.get(request.token)
    if (list === undefined) byToken.set(request.token, [request])
    else list.push(request)
  }
  for (const list of byToken.values()) list.sort((one, other) => one.forwardedAt! - other.forwardedAt!)
  return byToken
}

function checkPresentations(history: History, facts: Facts): Violation[] {
  const violations: Violation[] = []
  for (const list of presentations(history).values()) {
    for (let at = 1; at < list.length; at += 1) {
      const [before, after] = [list[at - 1]!, list[at]!]
      if (reasonsFor(before, after, facts).length > 0) continue
      violations.push({
        id: `presented ${after.seq}`,
        check: 'no refresh token is presented twice',
        at: after.arrivedAt,
        what: `a refresh token was presented again by replica ${after.replica} although the presentation before by replica ${before.replica} was in no doubt`,
        history: [
          `before: ${describeRequest(before)}`,
          `after:  ${describeRequest(after)}`,
          ...historyOf(history, after.user, {
            from: before.arrivedAt - 12_000,
            until: after.arrivedAt + 3_000,
          }),
        ],
      })
    }
  }
  return violations
}

const LOST_ON_PURPOSE = 'a response was lost after rotation, on purpose'
/** Modes of the sandbox after which no readable response comes. */
const UNREADABLE = new Set(['hang', 'drop', 'cut', 'stall', 'truncated'])

/**
 * Why the refresh token of `before` may be presented again by `after`: names of documented limits, each proven by
 * times. Empty: it must not.
 */
function reasonsFor(before: TokenRequest, after: TokenRequest, facts: Facts): string[] {
  const { replica, arrivedAt, deliveredAt } = before
  const openUntil = deliveredAt ?? before.closedAt ?? Number.POSITIVE_INFINITY
  const rotated = before.outcome === 'granted'
  const said = before.status !== null && before.status >= 300 && deliveredAt !== null
  const reasons: string[] = []

  // Until when its process may have had tokens that were not stored yet.
  let storedBy =
    (deliveredAt ?? Math.min(openUntil, after.arrivedAt)) + 1_000 + facts.slack(arrivedAt, after.arrivedAt)
  for (const fault of facts.redisFaults(replica, arrivedAt, after.arrivedAt)) {
    const until = fault.until ?? after.arrivedAt
    if (fault.from <= storedBy) storedBy = Math.max(storedBy, Math.min(until, after.arrivedAt) + 5_000)
  }

  const killedAt = facts.killedIn(replica, arrivedAt - 200, Math.min(storedBy, after.arrivedAt))
  if (killedAt !== null && rotated) reasons.push('a replica was killed between rotation and store')
  else if (killedAt !== null) reasons.push('a replica was killed with a token request on the way')

  const frozen = facts.frozenIn(replica, arrivedAt - 200, Math.min(storedBy, after.arrivedAt))
  const stopped = frozen === null ? 0 : Math.min(frozen.until, after.arrivedAt) - frozen.from
  // The lease was taken or renewed shortly before the process stopped.
  if (frozen !== null && stopped >= 1_000 && after.arrivedAt - arrivedAt >= LEASE_MS - 2_000) {
    reasons.push('a process was stopped longer than its lease with a token request on the way')
  }

  const terminatedAt = facts.terminatedIn(replica, arrivedAt - SHUTDOWN_SECONDS * 1_000, after.arrivedAt)
  const ended = terminatedAt !== null && facts.downIn(replica, terminatedAt, after.arrivedAt) !== null
  if (ended && deliveredAt === null) reasons.push('a process had to stop while a token request hung')
  if (ended && deliveredAt !== null && facts.redisTrouble(replica, deliveredAt - 200, storedBy)) {
    reasons.push('a process had to stop while Redis did not take its tokens')
  }

  const cuts = facts.cutOff(replica, arrivedAt - 200, storedBy)
  if (cuts.some(({ from }) => from <= after.arrivedAt) && after.arrivedAt - arrivedAt >= LEASE_MS - 2_000) {
    reasons.push('the holder of new tokens was cut off from Redis')
  }

  for (const failover of facts.failoversIn(arrivedAt - 1_000, after.arrivedAt)) {
    if (failover.at > after.arrivedAt + 500) continue
    const storedAt = deliveredAt ?? openUntil
    if (storedAt >= failover.at - 300 && storedAt <= failover.at + FOLLOW_MS + 500) {
      reasons.push('tokens were stored on a master that another had replaced (0006)')
    }
    if (
      arrivedAt < failover.at &&
      openUntil > failover.at &&
      after.arrivedAt >= failover.at + FOLLOW_MS - 500
    ) {
      reasons.push('a lease was lost with its master (0006)')
    }
    const lastMoment = storedAt >= failover.troubleSince - 1_000 && storedAt <= failover.at
    const alsoGone =
      facts.killedIn(replica, storedAt, failover.at + 8_000) !== null ||
      facts.terminatedIn(replica, storedAt, failover.at + 8_000) !== null ||
      facts.frozenIn(replica, storedAt, failover.at + 8_000) !== null ||
      facts.cutOff(replica, storedAt, failover.at + 8_000).length > 0
    if (lastMoment && alsoGone) reasons.push('new tokens were lost with a master and their process (0006)')
  }
  const takenOnPurpose =
    before.lostBy?.startsWith('lose ') || (before.fault !== null && UNREADABLE.has(before.fault))
  if (reasons.length > 0) return takenOnPurpose && rotated ? [LOST_ON_PURPOSE, ...reasons] : reasons

  // None of the two processes was disturbed: the presentation itself must have been in doubt or refused.
  if (said) return ['its response was an error']
  const endedAt = before.closedAt ?? openUntil
  const wasReset = facts
    .faultsOf('token', { from: endedAt - 300, until: endedAt + 300 }, replica)
    .some(({ kind }) => RESETS.has(kind))
  const spoiled = takenOnPurpose || (before.lostBy !== null && wasReset)
  const lateBy = after.arrivedAt - arrivedAt
  if (after.arrivedAt < openUntil && lateBy < NO_RESPONSE_MS - 500) return []
  if (deliveredAt !== null)
    return lateBy >= NO_RESPONSE_MS - 500 ? ['a response was later than the bound'] : []
  if (lateBy >= NO_RESPONSE_MS - 500) return ['a token request had no response within the bound']
  if (spoiled) return [rotated ? LOST_ON_PURPOSE : 'a token request was lost, on purpose']
  const hung =
    facts.faultsOf('token', { from: arrivedAt, until: endedAt }, replica).length > 0 &&
    endedAt - arrivedAt >= LEASE_MS - 3_000
  if (hung && facts.redisTrouble(replica, arrivedAt, endedAt)) {
    return ['a lease could not be renewed while a token request hung']
  }
  return []
}

/** The first refresh token of this user that was presented after it had been used. */
function reuseOf(history: History, user: string): { used: TokenRequest; again: TokenRequest } | null {
  const own = history.tokenRequests
    .filter((request) => request.user === user && request.kind === 'refresh' && request.forwardedAt !== null)
    .sort((one, other) => one.forwardedAt! - other.forwardedAt!)
  const used = new Map<string, TokenRequest>()
  for (const request of own) {
    const first = used.get(request.token)
    if (first !== undefined) return { used: first, again: request }
    if (request.outcome === 'granted') used.set(request.token, request)
  }
  return null
}

// Lost sessions

function checkLosses(history: History, facts: Facts): { losses: Loss[]; violations: Violation[] } {
  const losses: Loss[] = []
  const violations: Violation[] = []
  for (const session of history.sessions.values()) {
    const { user, lostAt } = session
    if (lostAt === null) continue
    const cause = causeOfLoss(history, session, facts)
    const reuse = reuseOf(history, user)
    const from = Math.max(session.signInBeganAt, lostAt - 25_000)
    const described = [
      ...(reuse === null
        ? []
        : [`used:    ${describeRequest(reuse.used)}`, `again:   ${describeRequest(reuse.again)}`]),
      ...historyOf(history, user, {
        from: Math.min(from, (reuse?.used.arrivedAt ?? from) - 3_000),
        until: lostAt + 1_000,
      }),
    ]
    if (cause !== null) {
      losses.push({ user, at: lostAt, cause, history: described })
      continue
    }
    const back = session.cameBackAt === null ? '' : `; it came back ${ms(session.cameBackAt - lostAt)} later`
    violations.push({
      id: `lost ${user}`,
      check: 'no session is lost',
      at: lostAt,
      what: `a session that was never ended was refused, ${ms(lostAt - session.signedInAt)} after its sign-in${back}`,
      history: described,
    })
  }
  return { losses, violations }
}

/** The documented limit that explains a loss; null where there is none. */
function causeOfLoss(history: History, session: Session, facts: Facts): string | null {
  const { user, lostAt, signInBeganAt, signedInAt } = session
  if (lostAt === null) return null
  const reuse = reuseOf(history, user)
  if (reuse !== null && reuse.again.arrivedAt <= lostAt) {
    return reasonsFor(reuse.used, reuse.again, facts)[0] ?? null
  }
  const atRisk = facts
    .failoversIn(signInBeganAt - 1_000, lostAt)
    .some(
      ({ troubleSince, at }) =>
        signedInAt >= troubleSince - 1_000 && signInBeganAt <= at + FOLLOW_MS && at <= lostAt + 500,
    )
  if (atRisk) return 'a session began in the last moment of a master (0006)'

  const served = history.calls.filter(
    (call) =>
      call.session === user &&
      call.status === 200 &&
      call.authenticated === null &&
      call.respondedAt <= lostAt,
  )
  const lastServed = served.at(-1)
  const idleMs = SESSION_IDLE_SECONDS * 1_000
  // Activity is recorded to within a tenth of the limit, and a touch that is lost costs as much once more.
  const recordedUntil = (lastServed?.sentAt ?? signedInAt) - idleMs / 5
  if (lostAt - (lastServed?.sentAt ?? signedInAt) >= idleMs - idleMs / 5 - 500)
    return 'it was not used within the idle limit'
  if (lastServed !== undefined && lostAt - recordedUntil >= idleMs - idleMs / 10) {
    const users = new Set(
      served.filter(({ sentAt }) => sentAt >= lastServed.sentAt - idleMs / 5).map((call) => call.replica),
    )
    const gone = [...users].some(
      (replica) =>
        facts.downIn(replica, lastServed.sentAt - idleMs / 10, lastServed.sentAt + 10_000) !== null ||
        facts.frozenIn(replica, lastServed.sentAt - idleMs / 10, lastServed.sentAt + 10_000) !== null,
    )
    if (gone) return 'activity was lost with the process that was to record it'
  }
  return null
}

// Stops and healing

function checkStops(history: History, facts: Facts): Violation[] {
  const violations: Violation[] = []
  for (const { at, replica, what } of history.processes) {
    if (what !== 'terminated') continue
    const exit = history.processes.find(
      (event) => event.what === 'exited' && event.replica === replica && event.at >= at,
    )
    if (exit === undefined) continue
    const tookMs = exit.at - at
    const bound = SHUTDOWN_SECONDS * 1_000 + facts.slack(at, exit.at)
    const frozen = facts.frozenIn(replica, at, exit.at) !== null
    // Tokens that Redis did not take in time are an exit code of 1, as documented.
    const excused = exit.code === 1 && facts.redisTrouble(replica, at, exit.at)
    if ((exit.code === 0 || excused) && (tookMs <= bound || frozen)) continue
    violations.push({
      id: `stop ${replica} ${Math.round(at)}`,
      check: 'a stop exits with 0 in time',
      at,
      what: `replica ${replica} exited with ${exit.code}, ${ms(tookMs)} after SIGTERM`,
      history: around(history, { from: at - 10_000, until: exit.at + 100 }, replica),
    })
  }
  return violations
}

function checkHealing(history: History): Violation[] {
  return history.healings.flatMap(({ from, until, notServed }) =>
    notServed.map((user) => ({
      id: `healing ${Math.round(from)} ${user}`,
      check: 'every session is served after the faults',
      at: until,
      what: `the session of ${user} was not served by every replica within ${ms(until - from)} after the faults`,
      history: historyOf(history, user, { from: from - 20_000, until }),
    })),
  )
}

// What led to a violation

/** Everything that concerns a user in this time, in order; at most so many lines. */
function historyOf(history: History, user: string | null, { from, until }: Span): string[] {
  const session = user === null ? undefined : history.sessions.get(user)
  const lines: [number, string][] = []
  const add = (at: number, text: string): void => {
    if (at >= from && at <= until) lines.push([at, text])
  }
  if (session !== undefined) {
    add(session.signedInAt, `${session.user} signed in (record ${session.recordKey})`)
    if (session.ended !== null) add(session.ended.at, `signed out by replica ${session.ended.replica}`)
  }
  let last = ''
  for (const call of history.calls) {
    if (user === null || call.session !== user) continue
    const summary = `${call.what} through replica ${call.replica}: ${call.status} ${call.code}`
    const text = call.authenticated === false ? `${summary} not signed in` : summary
    // Repeated equal responses add nothing.
    if (text !== last) add(call.sentAt, `${text} (${ms(call.respondedAt - call.sentAt)})`)
    last = text
  }
  for (const request of history.tokenRequests) {
    if (user !== null && request.user === user) add(request.arrivedAt, describeRequest(request))
  }
  for (const { at, replica, text } of history.logs) {
    const isOwn = session !== undefined && text.includes(session.recordKey)
    if (isOwn || OF_ALL.test(text)) add(at, `log of replica ${replica}: ${text}`)
  }
  addCommon(history, { from, until }, add)
  return format(lines)
}

function around(history: History, { from, until }: Span, replica: number | null = null): string[] {
  const lines: [number, string][] = []
  const add = (at: number, text: string): void => {
    if (at >= from && at <= until) lines.push([at, text])
  }
  for (const line of history.logs) {
    if (replica !== null && line.replica === replica && !line.text.includes('"event":"request"')) {
      add(line.at, `log: ${line.text}`)
    }
  }
  addCommon(history, { from, until }, add)
  return format(lines)
}

function addCommon(history: History, { from, until }: Span, add: (at: number, text: string) => void): void {
  for (const fault of history.faults) {
    const who = fault.replica === null ? '' : ` replica ${fault.replica}`
    const named = `${fault.kind}${who}${fault.detail === '' ? '' : ` (${fault.detail})`}`
    if (fault.from < from && (fault.until ?? until) >= from)
      add(from, `under way since ${at(fault.from)}: ${named}`)
    add(fault.from, `FAULT ${named}`)
    if (fault.until !== null && fault.until > fault.from + 1) add(fault.until, `healed: ${named}`)
  }
  for (const event of history.processes) add(event.at, `replica ${event.replica} ${event.what}`)
  for (const { at: when, replica, ms: took } of history.delays) {
    add(
      when,
      `${replica === null ? 'Redis' : `replica ${replica}`} responded after ${ms(took)} though nothing was done to it`,
    )
  }
  for (const note of history.notes) add(note.at, note.text)
  for (const failover of history.failovers)
    add(failover.at, `FAILOVER from ${failover.from} to ${failover.to}`)
  for (const stall of history.stalls)
    if (stall.ms > 300) add(stall.at, `this machine stalled for ${ms(stall.ms)}`)
}

/** Events of the log that concern every session of a process. */
const OF_ALL = /"event":"(?:store|breaker|stop)\./
const MAX_LINES = 120

function format(lines: [number, string][]): string[] {
  lines.sort(([one], [other]) => one - other)
  const kept = lines.length <= MAX_LINES ? lines : [...lines.slice(0, 20), ...lines.slice(20 - MAX_LINES)]
  const formatted = kept.map(([when, text]) => `${at(when)}  ${text}`)
  return lines.length <= MAX_LINES
    ? formatted
    : [...formatted.slice(0, 20), `  … ${lines.length - MAX_LINES} lines left out`, ...formatted.slice(20)]
}

function describeRequest(request: TokenRequest): string {
  const {
    replica,
    kind,
    token,
    arrivedAt,
    forwardedAt,
    deliveredAt,
    closedAt,
    status,
    outcome,
    fault,
    lostBy,
  } = request
  const parts = [
    `${kind} of ${token} by replica ${replica} at ${at(arrivedAt)}`,
    forwardedAt === null ? 'never passed on' : `passed on ${at(forwardedAt)}`,
    `outcome ${outcome ?? 'unknown'}`,
    ...(fault === null ? [] : [`met ${fault}`]),
    ...(lostBy === null ? [] : [`lost: ${lostBy}`]),
    deliveredAt !== null
      ? `responded ${status} at ${at(deliveredAt)}`
      : closedAt !== null
        ? `closed at ${at(closedAt)}`
        : 'open',
  ]
  return parts.join(', ')
}

/** Of several violations of one id the first. */
function firstOf(violations: Violation[]): Violation[] {
  const known = new Set<string>()
  return violations.filter(({ id }) => !known.has(id) && known.add(id))
}

/** An instant as the log of the campaign has it. */
export function at(instant: number): string {
  return `${(instant / 1_000).toFixed(3)} s`
}

function ms(duration: number): string {
  return duration < 10_000 ? `${Math.round(duration)} ms` : `${(duration / 1_000).toFixed(1)} s`
}
