import { randomUUID } from 'node:crypto'
import type { TokenOutcome } from '../oauth/token-response.ts'
import type { LiveSession } from '../session/find.ts'
import { StoreUnavailable } from '../store/store.ts'
import type { Admission } from './breaker.ts'
import { PROBE_MS } from './breaker.ts'
import { type Attempt, createConclude } from './conclude.ts'
import type { RefreshTrigger } from './events.ts'
import { answerMs, leaseMs, presentableInMs } from './refresh-policy.ts'
import type { RefreshOptions, RefreshResult } from './refresh-terms.ts'
import { within } from './within.ts'

export interface Refresh {
  /**
   * One attempt to replace a session's tokens: lease, one token request, store. It belongs to nobody's
   * request and is not cancelled with one: dropping the answer would lose the only live refresh token.
   * A presentation without an answer in time goes on in the background; see `holdLease`.
   */
  refresh(session: LiveSession, trigger: RefreshTrigger): Promise<RefreshResult>
  /**
   * From `at` (monotonic) on nothing is presented any more, and the connections of requests that have no answer
   * are reset.
   */
  closeAt(at: number): void
  /** Resolves when each token request has its answer and every answer is stored. */
  settled(): Promise<void>
}

const FORCED_WINDOW_MS = 60_000
/** A holder whose answer the store did not take tries again within two seconds of its return. */
const STORE_RETURN_GRACE_MS = 5_000
/** An intent that could not be withdrawn by then stays: a doubt too many. */
const WITHDRAWN_WITHIN_MS = 600_000
/** The result of a request that could not be sent in time comes a moment after its timeout, and leaves no doubt. */
const UNSENT_TOLD_MS = 100
/** How often the lease of an unanswered presentation is renewed: sooner than the shortest pause after a failover ends. */
const RENEW_EVERY_MS = 1_500
/** How soon after a renewal that the store did not take. */
const RENEW_AGAIN_MS = 250
/** Callers come back after this while an earlier presentation has no answer. */
const UNANSWERED_RETRY_MS = 2_000

type Go = { kind: 'go'; attempt: Attempt; nothingToLose: boolean }

/** What a presentation needs besides its session. */
interface Permit {
  /** Monotonic, before the store was asked: the lease ends no sooner than its length after this instant. */
  leasedAt: number
  admission: Admission & { kind: 'go' }
  /** Frees the slot. */
  release: () => void
}

export function createRefresh(options: RefreshOptions): Refresh {
  const { store, authorizationServer, breaker, slots, insist, watchChanges, timing, timeoutMs, clock } =
    options
  const { log, events } = options
  const { conclude, settle } = createConclude(options)
  const working = new Set<Promise<unknown>>()
  /** Connections whose presentation has no answer yet. */
  const open = new Set<AbortController>()
  const beganAt = clock.monotonic()
  /** Nothing is presented any more: the process stops, and nobody would be left to store the answer. */
  let closed = false
  let closing: NodeJS.Timeout | undefined

  async function refresh(found: LiveSession, trigger: RefreshTrigger): Promise<RefreshResult> {
    // These tokens still wait to be stored; until then there is nothing to compare with.
    if (found.gen !== found.record.gen) return { kind: 'later', retryInMs: 1_000, why: 'store' }
    // Before the queue for a slot as well: behind requests that hang it would be a long one.
    if (breaker.waitMs() > 0) return downFor(breaker.waitMs())
    const release = await slots.take()
    if (closed) {
      release()
      return downFor(UNANSWERED_RETRY_MS)
    }
    const admission = breaker.admit()
    if (admission.kind === 'wait') {
      release()
      return downFor(admission.retryInMs)
    }
    // An access token that has expired is refreshed whatever was forced before.
    const forced = trigger === 'invalid_token' && clock.wall() < found.tokens.expiresAt
    const session = trigger === 'invalid_token' ? asExpired(found, clock.wall()) : found
    const leasedAt = clock.monotonic()
    let begun: RefreshResult | Go | null = null
    try {
      begun = await begin(session, forced)
      if (begun.kind !== 'go') return begun
      return await present(session, trigger, begun, { leasedAt, admission, release })
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error
      return { kind: 'later', retryInMs: 1_000, why: 'store' }
    } finally {
      if (begun?.kind !== 'go') {
        admission.release()
        release()
      }
    }
  }

  /** Takes the lease, or says why not. */
  async function begin(session: LiveSession, forced: boolean): Promise<RefreshResult | Go> {
    const { key, tokens, record } = session
    const id = randomUUID()
    const begun = await takeLease(session, id, forced ? FORCED_WINDOW_MS : 0)
    switch (begun.kind) {
      case 'replaced':
        return { kind: 'changed' }
      case 'gone':
        return { kind: 'ended', reason: null }
      case 'busy':
      case 'paused':
        return begun
      case 'backing_off':
        return downFor(begun.waitMs)
      case 'forced_before':
        return { kind: 'forced_before' }
      case 'granted': {
        const { doubts, openForMs, ageMs } = begun
        const at = clock.monotonic()
        // By this process's clock or by the store's: either may be wrong, and the other one then prevents a long wait.
        const leftMs = Math.min(
          tokens.expiresAt - clock.wall(),
          ageMs === null ? Number.POSITIVE_INFINITY : tokens.lifeSeconds * 1_000 - ageMs,
        )
        const attempt = { id, doubts, expiresAt: at + leftMs, earlierOpenUntil: at + openForMs }
        if (doubts === 0) return { kind: 'go', attempt, nothingToLose: false }
        const waitMs = Math.max(
          presentableInMs(tokens, timing, doubts, leftMs),
          STORE_RETURN_GRACE_MS - store.msSinceTrouble(key),
          // This process cannot know about trouble before it started. A released lease is harmless.
          record.leaseUntil > 0 ? STORE_RETURN_GRACE_MS - (clock.monotonic() - beganAt) : 0,
        )
        if (waitMs <= 0) return { kind: 'go', attempt, nothingToLose: leftMs <= 0 }
        await settle(key, id, null, waitMs)
        return downFor(waitMs)
      }
    }
  }

  async function takeLease({ key, gen, tokens }: LiveSession, attempt: string, forcedWindowMs: number) {
    const livesMs = Math.max(0, tokens.expiresAt - clock.wall())
    // A request that leaves at all leaves within its timeout.
    const openMs = timeoutMs + answerMs(timeoutMs)
    const request = { gen, attempt, leaseMs: leaseMs(timeoutMs), openMs, livesMs, forcedWindowMs }
    try {
      return await store.beginRefresh(key, request)
    } catch (error) {
      // It may have run: then a lease would keep everybody out that nobody holds, with a doubt that is none.
      if (error instanceof StoreUnavailable) {
        insist('lease', key, WITHDRAWN_WITHIN_MS, () => store.settleRefresh(key, attempt, null, 0))
      }
      throw error
    }
  }

  async function present(
    session: LiveSession,
    trigger: RefreshTrigger,
    { attempt, nothingToLose }: Go,
    { leasedAt, admission, release }: Permit,
  ): Promise<RefreshResult> {
    const startedAt = clock.monotonic()
    const count = (outcome: TokenOutcome['kind']): void =>
      events.refreshed(trigger, outcome, (clock.monotonic() - startedAt) / 1_000)
    const held = holdLease(session, attempt, (signal) =>
      authorizationServer.refresh(session.tokens.refreshToken!, { sendBefore: leasedAt + timeoutMs, signal }),
    )
    const { answer } = held
    const inTime = within(answer, timeoutMs + UNSENT_TOLD_MS).finally(release)
    track(inTime.then((outcome) => count(outcome?.kind ?? 'in_doubt')))
    const hangs = nothingToLose && (await within(answer, PROBE_MS)) === null
    // Other sessions need not wait for this one to learn that the endpoint hangs.
    if (hangs) admission.report(false, null)
    const outcome = await inTime
    if (outcome === null) {
      if (!hangs) admission.report(false, null)
      log.warn(
        { event: 'refresh.unanswered' },
        'the token endpoint has not answered in time: the refresh waits on',
      )
      track(
        answer.then(async (late) => {
          if (late.kind === 'granted') count('granted')
          if (late.kind === 'granted' || late.kind === 'refused') report(admission, late)
          if (!held.lost() || late.kind === 'granted') await concludeLate(session, attempt, late)
        }),
      )
      return downFor(UNANSWERED_RETRY_MS)
    }
    // New tokens are stored all the same if theirs is still the generation to replace.
    if (held.lost() && outcome.kind !== 'granted') return { kind: 'changed' }
    report(admission, outcome)
    const result = await conclude(session, attempt, outcome)
    // It could not be sent while the lease was ours: another attempt may have brought new tokens meanwhile.
    const lapsed = outcome.kind === 'unavailable' && clock.monotonic() - leasedAt >= leaseMs(timeoutMs)
    return lapsed ? { kind: 'changed' } : result
  }

  /**
   * Sends a presentation and keeps its lease for as long as it has no answer, so that no other process presents
   * the same refresh token meanwhile. Its connection is reset when the answer has taken too long, and when the
   * record has moved on: what was not delivered by then never will be.
   * `lost`: the record has moved on, so there is nothing to conclude.
   */
  function holdLease(
    { key, gen }: LiveSession,
    { id, doubts }: Attempt,
    send: (signal: AbortSignal) => Promise<TokenOutcome>,
  ): { answer: Promise<TokenOutcome>; lost: () => boolean } {
    const connection = new AbortController()
    const lease = { gen, attempt: id, doubts: doubts + 1, leaseMs: leaseMs(timeoutMs) }
    const giveUpAt = clock.monotonic() + answerMs(timeoutMs)
    let renewAt = clock.monotonic() + RENEW_EVERY_MS
    let renewing = false
    let overdue = false
    let ended = false
    let lost = false

    const reset = (reason: string): void => connection.abort(new Error(reason))

    function look(): void {
      if (clock.monotonic() >= giveUpAt) giveUp()
      // A process that was stopped first reads what came meanwhile: the store says whether the lease is still ours.
      else if (clock.monotonic() >= renewAt && !renewing && !ended) renew().catch(failed)
    }

    function giveUp(): void {
      // Timers run before sockets are read: a process that was stopped reads a waiting answer before its next look.
      if (overdue) reset('no answer came')
      overdue = true
    }

    async function renew(): Promise<void> {
      renewing = true
      try {
        const renewed = await store.renewLease(key, lease)
        renewAt = clock.monotonic() + RENEW_EVERY_MS
        lost = renewed === 'taken'
        if (lost) reset('the refresh token has been replaced or presented elsewhere')
        // What a session that has ended is still granted is to be revoked, and nobody else presents its token.
        ended = renewed === 'gone'
      } catch (error) {
        // The store may be away for everybody: then nobody else presents the token, and the answer is wanted.
        if (!(error instanceof StoreUnavailable)) throw error
      } finally {
        renewing = false
      }
    }

    function failed(error: unknown): void {
      log.error({ event: 'store.step_failed', err: error }, 'a lease could not be renewed')
    }

    open.add(connection)
    const timer = setInterval(look, RENEW_AGAIN_MS)
    const watch = watchChanges(key, () => {
      renewAt = clock.monotonic()
      look()
    })
    const answer = send(connection.signal).finally(() => {
      clearInterval(timer)
      watch.stop()
      open.delete(connection)
    })
    return { answer, lost: () => lost }
  }

  async function concludeLate(session: LiveSession, attempt: Attempt, outcome: TokenOutcome): Promise<void> {
    try {
      await conclude(session, attempt, outcome)
    } catch (error) {
      if (!(error instanceof StoreUnavailable))
        log.error({ event: 'refresh.late_failed', err: error }, 'a late token answer could not be used')
    }
  }

  function track(work: Promise<unknown>): void {
    working.add(work)
    const done = (): void => void working.delete(work)
    work.then(done, done)
  }

  async function idle(): Promise<void> {
    while (working.size > 0) await Promise.allSettled(working)
  }

  return {
    refresh,
    closeAt(at) {
      clearTimeout(closing)
      closing = setTimeout(
        () => {
          closed = true
          for (const connection of open) connection.abort(new Error('the process stops'))
        },
        Math.max(0, at - clock.monotonic()),
      )
    },
    async settled() {
      await idle()
      clearTimeout(closing)
    },
  }
}

function report(admission: Admission & { kind: 'go' }, outcome: TokenOutcome): void {
  const works = outcome.kind === 'granted' || outcome.kind === 'refused'
  const answered = works || (outcome.kind === 'unavailable' && outcome.ofThisGrant)
  const retryAfter = outcome.kind === 'unavailable' ? outcome.retryAfterSeconds : null
  admission.report(answered, retryAfter === null ? null : retryAfter * 1_000)
}

function downFor(ms: number): RefreshResult {
  return { kind: 'later', retryInMs: ms, why: 'authorization_server' }
}

/** An access token that the resource server refuses is as good as expired, whatever its life. */
function asExpired(session: LiveSession, at: number): LiveSession {
  const { tokens } = session
  return { ...session, tokens: { ...tokens, expiresAt: Math.min(tokens.expiresAt, at) } }
}
