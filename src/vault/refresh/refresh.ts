import { randomUUID } from 'node:crypto'
import type { Clock } from '../../clock.ts'
import type { Logger } from '../../log.ts'
import type { AuthorizationClient } from '../../oauth/client.ts'
import type { TokenOutcome } from '../../oauth/token-response.ts'
import { afterReading, withTimeout } from '../../timeout.ts'
import type { FailureWords, Sessions } from '../lifecycle.ts'
import type { LiveSession } from '../session.ts'
import type { Answered, RecordKey } from '../store/record.ts'
import { inLog, type SessionStore, StoreUnavailable } from '../store/store.ts'
import type { Gate, Pass } from './gate.ts'
import { type Presentation, present } from './presentation.ts'
import {
  type Judgement,
  judge,
  leaseMs,
  mayPresent,
  type NotGranted,
  resetAfterMs,
  type UnknownAnswer,
} from './rules.ts'

export type RefreshTrigger = 'request' | 'schedule' | 'invalid_token'

/** What the metrics count of refreshes and of the due queue. */
export interface RefreshEvents {
  refreshed(trigger: RefreshTrigger, outcome: TokenOutcome['kind'], seconds: number): void
  /** Seconds between the instant at which a background refresh was due and its start. */
  lagged(seconds: number): void
}

/** The result of one attempt. A store that fails is thrown as `StoreUnavailable`. */
export type RefreshResult =
  /** The session with its new tokens, which are stored. */
  { kind: 'granted'; session: LiveSession } | NotGranted

interface RefreshOptions {
  store: Pick<SessionStore, 'beginRefresh' | 'renewLease' | 'releaseLease' | 'schedule' | 'health'>
  sessions: Pick<Sessions, 'replaceTokens' | 'endRefused'>
  authorizationClient: Pick<AuthorizationClient, 'refresh'>
  gate: Gate
  /**
   * `timeoutMs`: how long callers wait for a token response. `reuseMs`: for so long the authorization server grants a used
   * refresh token again. `random`: in [0, 1).
   */
  pace: { timeoutMs: number; reuseMs: number; random: () => number }
  clock: Clock
  log: Logger
  events: Pick<RefreshEvents, 'refreshed'>
}

export interface Refresh {
  /**
   * Tries once to replace a session's tokens: lease, one token request, write. A request of a browser that is
   * cancelled does not cancel it: dropping the response would lose the only live refresh token. A presentation
   * without a response in time goes on in the background, with its lease renewed.
   */
  refresh(session: LiveSession, trigger: RefreshTrigger): Promise<RefreshResult>
  /** From `at` (monotonic) on nothing is presented any more, and requests without a response are reset. */
  closeAt(at: number): void
  /** Resolves when each token request has its response, and every response is in the hands of the store. */
  settled(): Promise<void>
}

const FORCED_WINDOW_MS = 60_000
/** So long after its timeout the token client may still report that it could not send: then there is no doubt. */
const UNSENT_TOLERANCE_MS = 100
/** A result so long after the last instant to send shows a stalled process: an unsent request then proves no failure. */
const STALL_MS = 250

/** What one process knows. Monotonic instants. */
interface Self {
  readonly startedAt: number
  stopping: boolean
  readonly failing: Failing
  /** When new tokens of any session were granted. */
  grantedAt: number
  /** When the log warned of an answer, by what it said. */
  readonly warnedAt: Map<string, number>
}

/** The right to present a refresh token once. */
interface Lease {
  kind: 'present'
  session: LiveSession
  /** The name of its holder in the record. */
  attempt: string
  /** Monotonic. Read before the store was asked, so the lease ends no sooner than its length after this. */
  leasedAt: number
  doubts: number
  answered: Answered
  msSinceAnswer: number | null
  leftMs: number
  earlierOpenMs: number
}

/** A lease and the presentation under it. Monotonic instants. */
interface PresentedLease extends Lease {
  trigger: RefreshTrigger
  pass: Pass
  sentAt: number
  /** Nothing leaves later than this: the lease could lapse under way. */
  sendBefore: number
  presentation: Presentation
}

export function createRefresh(options: RefreshOptions): Refresh {
  const { gate, clock, log, pace } = options
  const working = new Set<Promise<unknown>>()
  const open = new Set<Presentation>()
  const self: Self = {
    startedAt: clock.monotonic(),
    stopping: false,
    failing: createFailing(clock.monotonic),
    grantedAt: Number.NEGATIVE_INFINITY,
    warnedAt: new Map(),
  }
  let stopClosing = (): void => {}

  async function refresh(session: LiveSession, trigger: RefreshTrigger): Promise<RefreshResult> {
    const result = await attempt(session, trigger)
    // Also where the stop has cut off the presentation that brought this wait.
    return self.stopping && result.kind === 'wait' ? { ...result, why: 'stopping' } : result
  }

  async function attempt(session: LiveSession, trigger: RefreshTrigger): Promise<RefreshResult> {
    const pass = await gate.enter()
    if (pass.kind === 'wait') return pass
    try {
      if (self.stopping) return { kind: 'wait', ms: 0, why: 'stopping' }
      const lease = await takeLease(options, self, { session, trigger })
      if (lease.kind !== 'present') return lease
      const presented = send(options, lease, { trigger, pass })
      const { presentation } = presented
      open.add(presentation)
      const done = presentation.outcome.finally(() => open.delete(presentation))
      const outcome = await withTimeout(done, pace.timeoutMs + UNSENT_TOLERANCE_MS)
      if (outcome === null) void track(done.then((late) => conclude(options, self, presented, late, true)))
      return await conclude(options, self, presented, outcome, false)
    } finally {
      pass.leave()
    }
  }

  function track<T>(work: Promise<T>): Promise<T> {
    working.add(work)
    work
      .catch((error: unknown) => {
        if (error instanceof StoreUnavailable) return
        log.error({ event: 'refresh.failed', err: error }, 'a refresh failed unexpectedly: please report it')
      })
      .finally(() => working.delete(work))
    return work
  }

  return {
    refresh: (session, trigger) => track(refresh(session, trigger)),
    closeAt(at) {
      stopClosing()
      stopClosing = afterReading(Math.max(0, at - clock.monotonic()), () => {
        self.stopping = true
        for (const presentation of open) presentation.reset('the process stops')
      })
    },
    async settled() {
      while (working.size > 0) await Promise.allSettled(working)
      stopClosing()
    },
  }
}

/**
 * Takes the lease, or says why the refresh token may not be presented now. The store counts the doubt with the
 * lease, before the request leaves: a crash leaves it in the record.
 */
async function takeLease(
  { store, gate, clock, pace: { timeoutMs, reuseMs } }: RefreshOptions,
  self: Self,
  { session, trigger }: Pick<PresentedLease, 'session' | 'trigger'>,
): Promise<Lease | NotGranted> {
  const { key, record, tokens } = session
  const forced = trigger === 'invalid_token'
  // For doubts and back-off, an access token that the resource server refuses counts as expired.
  const leftMs = (): number => (forced ? 0 : tokens.expiresAt - clock.wall())
  const attempt = randomUUID()
  const leasedAt = clock.monotonic()
  const begun = await store.beginRefresh(key, {
    gen: record.gen,
    attempt,
    leaseMs: leaseMs(timeoutMs),
    // A request that leaves at all leaves within its timeout.
    openMs: timeoutMs + resetAfterMs(timeoutMs),
    livesMs: Math.max(0, leftMs()),
    // An expired access token is refreshed even just after a forced refresh.
    forcedWindowMs: forced && clock.wall() < tokens.expiresAt ? FORCED_WINDOW_MS : 0,
  })
  const may = mayPresent(begun, {
    tokens,
    leftMs: leftMs(),
    timeoutMs,
    reuseMs,
    endpointIsLate: gate.isLate(),
    msSinceIncident: store.health.msSinceIncident(key),
    msSinceStart: record.leaseUntil > 0 ? clock.monotonic() - self.startedAt : Number.POSITIVE_INFINITY,
    stopping: self.stopping,
  })
  if (may.kind === 'present') {
    // The due queue would come to it only long after the time in which a used token is granted again.
    if (forced && reuseMs > 0) await store.schedule(key, leaseMs(timeoutMs))
    return { ...may, session, attempt, leasedAt }
  }
  if (begun.kind === 'granted' && may.kind === 'wait')
    await store.releaseLease(key, { attempt, inDoubt: null, retryInMs: may.ms })
  return may
}

function send(
  { store, authorizationClient, gate, clock, log, pace: { timeoutMs } }: RefreshOptions,
  lease: Lease,
  caller: Pick<PresentedLease, 'trigger' | 'pass'>,
): PresentedLease {
  const { session, attempt, doubts, leasedAt } = lease
  const { key, record, tokens } = session
  const sendBefore = leasedAt + timeoutMs
  const renewRequest = { gen: record.gen, attempt, doubts: doubts + 1, leaseMs: leaseMs(timeoutMs) }
  const sentAt = clock.monotonic()
  const { pass } = caller
  pass.sent()
  const presentation = present({
    send: (signal) =>
      authorizationClient.refresh(tokens.refreshToken!, { sendBefore, signal }, tokens.accessToken),
    renewLease: () => store.renewLease(key, renewRequest),
    mayBeQueued: () => gate.mayBeQueued(sentAt),
    timeoutMs,
    monotonic: clock.monotonic,
    log,
  })
  // Its failure is handled where its outcome is.
  void presentation.outcome.then(
    (outcome) => pass.over(isAnswer(outcome)),
    () => pass.over(false),
  )
  return { ...lease, ...caller, sentAt, sendBefore, presentation }
}

/** Whether the token endpoint has sent a response that can be read. */
function isAnswer(outcome: TokenOutcome): boolean {
  return outcome.kind === 'granted' || outcome.answer !== undefined
}

/**
 * Brings gate, metrics, log and record to the outcome of a presentation; null for none within the timeout. `late`: the
 * outcome that came after that. No caller waits for it.
 */
async function conclude(
  options: RefreshOptions,
  self: Self,
  presented: PresentedLease,
  outcome: TokenOutcome | null,
  late: boolean,
): Promise<RefreshResult> {
  const { gate, clock, log, pace, events } = options
  const { session, trigger, pass, sentAt, sendBefore } = presented
  const at = clock.monotonic()
  const judgement = judge(outcome, {
    doubts: presented.doubts,
    answered: presented.answered,
    msSinceAnswer: presented.msSinceAnswer,
    leftMs: presented.leftMs - (at - sentAt),
    earlierOpenMs: presented.earlierOpenMs - (at - sentAt),
    overtaken: presented.presentation.isOvertaken(),
    stalled: sentAt >= sendBefore || at >= sendBefore + STALL_MS,
    endpointIsLate: gate.isLate(),
    msSinceGranted: at - self.grantedAt,
    reuseMs: pace.reuseMs,
    random: pace.random(),
  })
  const { callers, works, event, unknown = null } = judgement
  if (outcome?.kind === 'granted') self.grantedAt = at
  // Counted once, as in doubt, unless a late response still brings tokens.
  if (!late || outcome?.kind === 'granted')
    events.refreshed(trigger, outcome?.kind ?? 'in_doubt', (at - sentAt) / 1_000)
  const retryAfter = outcome?.kind === 'unavailable' ? outcome.retryAfterSeconds : null
  if (works !== null) pass.report(works, retryAfter === null ? null : retryAfter * 1_000)
  const said = failureWordsOf(outcome)
  if (event !== null) {
    self.failing.note(session.key)
    const retryInMs = callers.kind === 'wait' ? Math.round(callers.ms) : 0
    log.warn({ event, ...said, retryInMs, recordKey: inLog(session.key) }, TEXTS[event])
  }
  if (unknown !== null)
    warnOf(unknown, { log, self, at, description: said.description, recordKey: inLog(session.key) })
  const recovered = outcome?.kind === 'granted' ? self.failing.take(session.key) : null
  if (recovered !== null)
    log.info({ event: 'refresh.recovered', ...recovered, recordKey: inLog(session.key) }, RECOVERED)
  return await apply(options, presented, judgement, said)
}

/** Why an outcome brings no tokens, and the token endpoint's own words. */
function failureWordsOf(outcome: TokenOutcome | null): FailureWords {
  if (outcome === null || outcome.kind === 'granted') return {}
  return { reason: outcome.reason, description: outcome.answer?.description ?? undefined }
}

const RECOVERED = 'a refresh brought tokens after attempts that failed: nobody was signed out'

/** Warns once an hour of each answer, and once of each that is proven. */
function warnOf(
  { answer, refusedGrant }: UnknownAnswer,
  {
    log,
    self: { warnedAt },
    at,
    ...line
  }: { log: Logger; self: Self; at: number; description: string | undefined; recordKey: string },
): void {
  const name = `${answer} ${refusedGrant !== null}`
  if (at - (warnedAt.get(name) ?? Number.NEGATIVE_INFINITY) < WARN_EVERY_MS) return
  // The codes are text of the token endpoint, so there may be any number.
  if (warnedAt.size >= MOST_ANSWERS) warnedAt.clear()
  warnedAt.set(name, at)
  const [status, code] = answer.split(':')
  const setting = refusedGrant === null ? undefined : `OAUTH_REFUSED_GRANT=${refusedGrant}`
  log.warn(
    { event: 'refresh.unknown_answer', status: Number(status), error: code, setting, ...line },
    setting === undefined
      ? 'the token endpoint rejects a refresh in words that are not known: the session backs off alone, and its user is offered a new sign-in'
      : 'the token endpoint keeps rejecting a refresh in the same words: if they mean a dead refresh token there, add the value of setting',
  )
}

/** Writes what follows to the record. */
async function apply(
  { store, sessions }: RefreshOptions,
  { session, attempt }: PresentedLease,
  { write, callers }: Judgement,
  said: FailureWords,
): Promise<RefreshResult> {
  const { key, record } = session
  switch (write.kind) {
    case 'nothing':
      return callers
    case 'tokens':
      return await sessions.replaceTokens(session, write.tokens)
    case 'release': {
      const inDoubt = write.doubts === null ? null : { gen: record.gen, doubts: write.doubts }
      await store.releaseLease(key, {
        attempt,
        inDoubt,
        retryInMs: write.retryInMs,
        answered: write.answered,
      })
      return callers
    }
    case 'end': {
      // Throws while Redis does not take the end. The store goes on trying, so the session still ends.
      const ended = await sessions.endRefused(session, { attempt, ...said })
      return ended === 'precondition_failed' ? callers : { kind: 'ended' }
    }
  }
}

const WARN_EVERY_MS = 3_600_000
const MOST_ANSWERS = 100

const NO_TOKENS = 'a refresh brought no tokens: another attempt follows by itself'

const TEXTS = {
  'refresh.unavailable': NO_TOKENS,
  'refresh.in_doubt': NO_TOKENS,
  'refresh.unanswered': 'the token endpoint has not responded in time: the refresh goes on in the background',
  'refresh.refusal_waits':
    'a refresh was refused while an earlier one may still be granted: the session waits for it',
}

/** Sessions whose refreshes fail, in this process. */
interface Failing {
  /** A presentation of this session brought no tokens. */
  note(key: RecordKey): void
  /** Forgets the session. Milliseconds since its first failure and the attempts, this one included; null without one. */
  take(key: RecordKey): { ms: number; attempts: number } | null
}

/** Sessions that end while they fail are never taken. */
const MAX_SESSIONS = 10_000

/** Remembers since when the refreshes of sessions fail, so that the log can say when one recovers. */
function createFailing(monotonic: () => number): Failing {
  const failures = new Map<RecordKey, { since: number; attempts: number }>()
  return {
    note(key) {
      const known = failures.get(key)
      if (known !== undefined) {
        known.attempts += 1
        return
      }
      if (failures.size >= MAX_SESSIONS) failures.delete(failures.keys().next().value!)
      failures.set(key, { since: monotonic(), attempts: 1 })
    },
    take(key) {
      const known = failures.get(key)
      if (known === undefined) return null
      failures.delete(key)
      return { ms: Math.round(monotonic() - known.since), attempts: known.attempts + 1 }
    },
  }
}
