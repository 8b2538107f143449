import { randomUUID } from 'node:crypto'
import type { Clock } from '../clock.ts'
import type { Keyring } from '../keyring.ts'
import type { Logger } from '../log.ts'
import type { AuthorizationServer } from '../oauth/client.ts'
import type { GrantedTokens, TokenOutcome } from '../oauth/token-response.ts'
import type { Sessions } from '../session/lifecycle.ts'
import { sealTokens, type TokenSet } from '../session/sealed-tokens.ts'
import type { LiveSession } from '../session/session.ts'
import type { OutboxStore } from '../store/outbox.ts'
import { inLog, StoreUnavailable } from '../store/store.ts'
import { type Admission, type Breaker, PROBE_MS } from './breaker.ts'
import { backOffMs, leaseMs, presentableInMs, type RefreshTiming, resetAfterMs } from './refresh-policy.ts'
import type { Slots } from './slots.ts'
import { withTimeout } from './timeout.ts'

export type RefreshTrigger = 'request' | 'schedule' | 'invalid_token'

/** What the metrics count of refreshes and of the due queue. */
export interface RefreshEvents {
  refreshed(trigger: RefreshTrigger, outcome: TokenOutcome['kind'], seconds: number): void
  /** Seconds between the instant at which a background refresh was due and its start. */
  lagged(seconds: number): void
  /** An operator's command ended a session. */
  endedByOperator(): void
}

/** The result of one try to refresh. A store that fails is thrown as `StoreUnavailable`. */
export type RefreshResult =
  /** The session with its new tokens, which are stored. */
  | { kind: 'granted'; session: LiveSession }
  /** Another attempt holds the lease, for `waitMs` unless it is renewed; it took it `ageMs` ago. */
  | { kind: 'busy'; waitMs: number; ageMs: number }
  /** The store may lack newer tokens: nobody refreshes for `waitMs`. */
  | { kind: 'paused'; waitMs: number }
  /** Read the record again: it has changed, or new tokens wait for the store (`late`) and `read` shows them. */
  | { kind: 'changed'; late?: Promise<RefreshResult> }
  /** The session has ended. The store knows why: another process may have ended it. */
  | { kind: 'ended' }
  /**
   * No tokens now: the token endpoint failed, or nothing may be presented before `retryInMs`. `late`: the result of
   * the presentation that still has no response.
   */
  | { kind: 'later'; retryInMs: number; late?: Promise<RefreshResult> }
  /** These tokens are the result of a forced refresh within the last minute, so another one is not made. */
  | { kind: 'forced_before' }

interface RefreshOptions {
  store: OutboxStore
  sessions: Pick<Sessions, 'endRefused'>
  authorizationServer: Pick<AuthorizationServer, 'refresh'>
  keyring: Keyring
  breaker: Breaker
  slots: Slots
  timing: RefreshTiming
  /** How long callers wait for a token response. */
  timeoutMs: number
  clock: Clock
  random: () => number
  log: Logger
  events: Pick<RefreshEvents, 'refreshed'>
  /** Revokes tokens that nobody will use. */
  revoke: (tokens: TokenSet) => void
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
/** After an incident a token in doubt is not presented for this long: a process that holds new ones stores them sooner. */
const INCIDENT_PAUSE_MS = 5_000
/** How long after the timeout the token client may report that it could not send the request in time. */
const UNSENT_TOLERANCE_MS = 100
/** A timer that fires later than this shows that this process was stalled: the missing response proves no failure. */
const STALL_MS = 250
/** How often a presentation without a response renews its lease: below the shortest pause after a failover. */
const RENEW_EVERY_MS = 1_500
/** How often a renewal that the store did not take is tried again. */
const RENEW_AGAIN_MS = 250
/** Callers come back after this while a presentation has no response, or while this process stops. */
const NO_RESPONSE_RETRY_MS = 2_000

/** The right to present a refresh token once. Instants by the monotonic clock. */
interface Lease {
  /** The name of its holder in the record. */
  attempt: string
  /** Doubts before this presentation; see docs/decisions/0002. */
  doubts: number
  /** Read before the store was asked, so the lease ends no sooner than its length after this. */
  leasedAt: number
  /**
   * When the access token expires, by the earlier of two clocks; now if the resource server has refused it. So a
   * forced refresh does not wait for expiry after a doubt.
   */
  tokenExpiresAt: number
  /** Until then an earlier presentation, whose lease was never released, may still get its response. */
  earlierOpenUntil: number
}

/** A refresh that slots and breaker have let through. */
interface Admitted {
  trigger: RefreshTrigger
  admission: Admission & { kind: 'go' }
  releaseSlot: () => void
}

export function createRefresh(options: RefreshOptions): Refresh {
  const { store, sessions, authorizationServer, keyring, breaker, slots } = options
  const { timing, timeoutMs, clock, random, log, events, revoke } = options
  const working = new Set<Promise<unknown>>()
  /** Connections whose presentation has no response yet. */
  const openConnections = new Set<AbortController>()
  const beganAt = clock.monotonic()
  /** The process stops: it could not store a response any more. */
  let closed = false
  let closing: NodeJS.Timeout | undefined

  async function refresh(found: LiveSession, trigger: RefreshTrigger): Promise<RefreshResult> {
    // Checked before the wait for a slot as well: requests that hang keep their slots for the whole timeout.
    if (breaker.waitMs() > 0) return { kind: 'later', retryInMs: breaker.waitMs() }
    const releaseSlot = await slots.take()
    if (closed) {
      releaseSlot()
      return { kind: 'later', retryInMs: NO_RESPONSE_RETRY_MS }
    }
    const admission = breaker.admit()
    if (admission.kind === 'wait') {
      releaseSlot()
      return { kind: 'later', retryInMs: admission.retryInMs }
    }
    const session = trigger === 'invalid_token' ? asExpired(found, clock.wall()) : found
    // An expired access token is refreshed even just after a forced refresh.
    const forced = trigger === 'invalid_token' && clock.wall() < found.tokens.expiresAt
    let presents = false
    try {
      const lease = await takeLease(session, forced)
      if ('kind' in lease) return lease
      if (closed) {
        await store.releaseLease(session.key, { attempt: lease.attempt, inDoubt: null, retryInMs: 0 })
        return { kind: 'later', retryInMs: NO_RESPONSE_RETRY_MS }
      }
      presents = true
      return await present(session, lease, { trigger, admission, releaseSlot })
    } finally {
      if (!presents) {
        admission.release()
        releaseSlot()
      }
    }
  }

  /**
   * Takes the lease, or says why the refresh token may not be presented now. The store counts the doubt with the
   * lease, before the request leaves: a crash leaves it in the record.
   */
  async function takeLease(
    { key, record, tokens }: LiveSession,
    forced: boolean,
  ): Promise<Lease | RefreshResult> {
    const attempt = randomUUID()
    const leasedAt = clock.monotonic()
    const begun = await store.beginRefresh(key, {
      gen: record.gen,
      attempt,
      leaseMs: leaseMs(timeoutMs),
      // A request that leaves at all leaves within its timeout.
      openMs: timeoutMs + resetAfterMs(timeoutMs),
      livesMs: Math.max(0, tokens.expiresAt - clock.wall()),
      forcedWindowMs: forced ? FORCED_WINDOW_MS : 0,
    })
    switch (begun.kind) {
      case 'replaced':
        return { kind: 'changed' }
      case 'gone':
        return { kind: 'ended' }
      case 'busy':
      case 'paused':
      case 'forced_before':
        return begun
      case 'backing_off':
        return { kind: 'later', retryInMs: begun.waitMs }
      case 'granted': {
        const { doubts, openForMs, ageMs } = begun
        const at = clock.monotonic()
        // By this process's clock or by the store's: either may be wrong, and the other one then prevents a long wait.
        const leftMs = Math.min(
          tokens.expiresAt - clock.wall(),
          ageMs === null ? Number.POSITIVE_INFINITY : tokens.lifeSeconds * 1_000 - ageMs,
        )
        const lease = {
          attempt,
          doubts,
          leasedAt,
          tokenExpiresAt: at + leftMs,
          earlierOpenUntil: at + openForMs,
        }
        if (doubts === 0) return lease
        const waitMs = Math.max(
          presentableInMs(tokens, timing, { doubts, leftMs }),
          INCIDENT_PAUSE_MS - store.health.msSinceIncident(key),
          // This process cannot know about incidents before it started. A released lease is harmless.
          record.leaseUntil > 0 ? INCIDENT_PAUSE_MS - (clock.monotonic() - beganAt) : 0,
        )
        if (waitMs <= 0) return lease
        await store.releaseLease(key, { attempt, inDoubt: null, retryInMs: waitMs })
        return { kind: 'later', retryInMs: waitMs }
      }
    }
  }

  /**
   * Sends a presentation and renews its lease while it has no response, so that no other process presents the
   * same refresh token. Resets its connection when the response takes too long, or when the tokens were replaced or
   * presented elsewhere (`isTaken`), so that a request that is still on its way is not delivered.
   */
  function sendHoldingLease(
    { key, record }: LiveSession,
    { attempt, doubts }: Lease,
    send: (signal: AbortSignal) => Promise<TokenOutcome>,
  ): { response: Promise<TokenOutcome>; isTaken: () => boolean } {
    const connection = new AbortController()
    const renewal = { gen: record.gen, attempt, doubts: doubts + 1, leaseMs: leaseMs(timeoutMs) }
    const giveUpAt = clock.monotonic() + resetAfterMs(timeoutMs)
    let renewAt = clock.monotonic() + RENEW_EVERY_MS
    let renewing = false
    let overdue = false
    let gone = false
    let taken = false

    const reset = (reason: string): void => connection.abort(new Error(reason))

    function look(): void {
      if (clock.monotonic() >= giveUpAt) giveUp()
      else if (clock.monotonic() >= renewAt && !renewing && !gone) renew().catch(failed)
    }

    function giveUp(): void {
      // Timers run before sockets are read. Only the second look resets, so a resumed process first reads a response.
      if (overdue) reset('no response came')
      overdue = true
    }

    async function renew(): Promise<void> {
      renewing = true
      try {
        const renewed = await store.renewLease(key, renewal)
        renewAt = clock.monotonic() + RENEW_EVERY_MS
        taken = renewed === 'taken'
        if (taken) reset('the refresh token has been replaced or presented elsewhere')
        // The response is still awaited, to revoke its tokens. No lease is needed: nobody presents this token again.
        gone = renewed === 'gone'
      } catch (error) {
        // In an outage of Redis no process can take the lease, and the response may hold the only live tokens.
        if (!(error instanceof StoreUnavailable)) throw error
      } finally {
        renewing = false
      }
    }

    function failed(error: unknown): void {
      log.error({ event: 'store.step_failed', err: error }, 'a lease could not be renewed')
    }

    openConnections.add(connection)
    const timer = setInterval(look, RENEW_AGAIN_MS)
    const response = send(connection.signal).finally(() => {
      clearInterval(timer)
      openConnections.delete(connection)
    })
    return { response, isTaken: () => taken }
  }

  /** Sends the token request, and brings its outcome to the record when it comes in time. */
  async function present(
    session: LiveSession,
    lease: Lease,
    { trigger, admission, releaseSlot }: Admitted,
  ): Promise<RefreshResult> {
    const startedAt = clock.monotonic()
    const count = (outcome: TokenOutcome['kind']): void =>
      events.refreshed(trigger, outcome, (clock.monotonic() - startedAt) / 1_000)
    const sendBefore = lease.leasedAt + timeoutMs
    const { response, isTaken } = sendHoldingLease(session, lease, (signal) =>
      authorizationServer.refresh(session.tokens.refreshToken!, { sendBefore, signal }),
    )
    const inTime = withTimeout(response, timeoutMs + UNSENT_TOLERANCE_MS).finally(releaseSlot)
    void track(inTime.then((outcome) => count(outcome?.kind ?? 'in_doubt')))
    const nothingToLose = lease.doubts > 0 && lease.tokenExpiresAt <= startedAt
    const silent = nothingToLose && (await withTimeout(response, PROBE_MS)) === null
    const hangs = silent && clock.monotonic() < startedAt + PROBE_MS + STALL_MS
    // Known early, so that callers of other sessions do not wait for a token endpoint that hangs.
    if (hangs) admission.report(false, null)
    const outcome = await inTime
    if (outcome !== null) {
      // New tokens are still offered to the store, which compares generations.
      if (isTaken() && outcome.kind !== 'granted') return { kind: 'changed' }
      const unsentInTime = outcome.kind === 'unavailable' && outcome.timedOut
      if (unsentInTime && (startedAt >= sendBefore || clock.monotonic() >= sendBefore + STALL_MS)) {
        admission.release()
        log.warn(
          { ...FAILURES.unavailable, reason: outcome.reason, retryInMs: 0 },
          'this process was stalled and sent no refresh request: it looks at the session again',
        )
        await track(store.releaseLease(session.key, { attempt: lease.attempt, inDoubt: null, retryInMs: 0 }))
        return { kind: 'changed' }
      }
      report(admission, outcome)
      const result = await track(applyOutcome(session, lease, outcome))
      // The lease may have lapsed before the request left: another process may have refreshed meanwhile.
      const lapsed =
        outcome.kind === 'unavailable' && clock.monotonic() - lease.leasedAt >= leaseMs(timeoutMs)
      return lapsed ? { kind: 'changed' } : result
    }
    if (!hangs) admission.report(false, null)
    log.warn(
      { event: 'refresh.unanswered' },
      'the token endpoint has not responded in time: the refresh goes on in the background',
    )
    const late = response.then(async (outcome): Promise<RefreshResult> => {
      if (outcome.kind === 'granted') count('granted')
      if (outcome.kind === 'granted' || outcome.kind === 'refused') report(admission, outcome)
      if (isTaken() && outcome.kind !== 'granted') return { kind: 'changed' }
      return await applyOutcome(session, lease, outcome)
    })
    void track(late)
    return { kind: 'later', retryInMs: NO_RESPONSE_RETRY_MS, late }
  }

  /** Brings the record to the outcome of a token request. */
  async function applyOutcome(
    { key, record, tokens }: LiveSession,
    { attempt, doubts, tokenExpiresAt, earlierOpenUntil }: Lease,
    outcome: TokenOutcome,
  ): Promise<RefreshResult> {
    const { gen } = record
    switch (outcome.kind) {
      case 'granted':
        return await save({ key, record, tokens: carryOver(outcome.tokens, tokens) }, attempt)
      case 'refused': {
        const openForMs = earlierOpenUntil - clock.monotonic()
        if (openForMs > 0) {
          // The refusal may be due to the earlier presentation, whose response then holds the new tokens.
          log.warn(
            { event: 'refresh.refusal_waits', retryInMs: openForMs, recordKey: inLog(key) },
            'a refresh was refused while an earlier one may still be granted: the session waits for it',
          )
          await store.releaseLease(key, {
            attempt,
            inDoubt: { gen, doubts: doubts + 1 },
            retryInMs: openForMs,
          })
          return { kind: 'later', retryInMs: openForMs }
        }
        // Throws while Redis does not take the end. The store goes on trying, so the session still ends.
        const ended = await sessions.endRefused(key, record, attempt)
        if (ended === 'precondition_failed') return { kind: 'changed' }
        log.info(
          { event: 'refresh.refused', error: outcome.reason, recordKey: inLog(key) },
          'the authorization server refused the refresh token: the session ends',
        )
        return { kind: 'ended' }
      }
      case 'unavailable':
      case 'in_doubt': {
        // After a doubt each attempt without tokens adds another: only one presentation is allowed before expiry.
        const leavesNoDoubt = outcome.kind === 'unavailable' && doubts === 0
        const total = doubts + (leavesNoDoubt ? 0 : 1)
        const leftMs = tokenExpiresAt - clock.monotonic()
        const retryInMs = backOffMs({ tokens, leftMs, outcome, doubts: total, timing, random: random() })
        log.warn(
          { ...FAILURES[outcome.kind], reason: outcome.reason, retryInMs },
          'a refresh brought no tokens: the next attempt follows after retryInMs',
        )
        await store.releaseLease(key, {
          attempt,
          inDoubt: leavesNoDoubt ? null : { gen, doubts: total },
          retryInMs,
        })
        return { kind: 'later', retryInMs }
      }
    }
  }

  /** Stores new tokens. If Redis does not take them, they are pending: the store retries, and `late` is the result. */
  async function save(session: LiveSession, attempt: string): Promise<RefreshResult> {
    const { key, record } = session
    const { gen, endsAt } = record
    const tokens = sealTokens(keyring, key, session.tokens)
    const replaced = await store.replaceTokens(key, { gen, attempt, tokens, endsAt })
    if (replaced.kind !== 'pending') return toResult(replaced.kind)
    return { kind: 'changed', late: replaced.result.then(({ kind }) => toResult(kind)) }

    function toResult(kind: 'replaced' | 'newer' | 'gone' | 'expired'): RefreshResult {
      switch (kind) {
        case 'replaced':
          return {
            kind: 'granted',
            session: { ...session, record: { ...record, tokens, gen: gen + 1, replacedAt: 0 } },
          }
        case 'newer':
          // Not revoked: that may revoke the whole grant (RFC 7009 section 2.1), and the newer tokens with it.
          log.warn(
            { event: 'refresh.overtaken', recordKey: inLog(key) },
            'newer tokens were stored while this refresh was under way',
          )
          return { kind: 'changed' }
        case 'gone':
        case 'expired':
          revoke(session.tokens)
          return { kind: 'ended' }
      }
    }
  }

  function track<T>(work: Promise<T>): Promise<T> {
    working.add(work)
    const done = (): void => void working.delete(work)
    work.then(done, done)
    return work
  }

  return {
    refresh,
    closeAt(at) {
      clearTimeout(closing)
      closing = setTimeout(
        () => {
          closed = true
          for (const connection of openConnections) connection.abort(new Error('the process stops'))
        },
        Math.max(0, at - clock.monotonic()),
      )
    },
    async settled() {
      while (working.size > 0) await Promise.allSettled(working)
      clearTimeout(closing)
    },
  }
}

const FAILURES = {
  unavailable: { event: 'refresh.unavailable' },
  in_doubt: { event: 'refresh.in_doubt' },
}

/** Tells the breaker whether the token endpoint works. */
function report(admission: Admission & { kind: 'go' }, outcome: TokenOutcome): void {
  const works =
    outcome.kind === 'granted' ||
    outcome.kind === 'refused' ||
    (outcome.kind === 'unavailable' && outcome.ofThisGrant)
  const retryAfter = outcome.kind === 'unavailable' ? outcome.retryAfterSeconds : null
  admission.report(works, retryAfter === null ? null : retryAfter * 1_000)
}

/** For doubts and back-off, an access token that the resource server refuses counts as expired. */
function asExpired(session: LiveSession, at: number): LiveSession {
  const { tokens } = session
  return { ...session, tokens: { ...tokens, expiresAt: Math.min(tokens.expiresAt, at) } }
}

/** A refresh response names no user, and one without a refresh token leaves the old one in force (RFC 6749 section 6). */
function carryOver(granted: GrantedTokens, before: TokenSet): TokenSet {
  const { user = null } = before
  return { ...granted, refreshToken: granted.refreshToken ?? before.refreshToken, user }
}
