import { randomUUID } from 'node:crypto'
import type { TokenOutcome } from '../oauth/outcome.ts'
import { StoreUnavailable } from '../store/port.ts'
import type { Admission } from './breaker.ts'
import { PROBE_MS } from './breaker.ts'
import { createConclude } from './conclude.ts'
import type { RefreshTrigger } from './events.ts'
import type { LiveSession } from './live.ts'
import type { RefreshOptions, RefreshResult } from './refresh-terms.ts'
import { leaseMs, listenMs, presentableFrom } from './timing.ts'
import { within } from './within.ts'

export interface Refresh {
  /**
   * One attempt to replace a session's tokens: lease, one token request, store. It belongs to nobody's
   * request and is not cancelled with one: dropping the answer would lose the only live refresh token.
   */
  refresh(session: LiveSession, trigger: RefreshTrigger): Promise<RefreshResult>
  /**
   * Resolves when each token request has its answer, and every answer is stored, those that nobody waits
   * for included. Answers that outlast their timeout are listened for until `listenUntil`, epoch milliseconds.
   */
  settled(listenUntil: number): Promise<void>
}

const FORCED_WINDOW_MS = 60_000
/** A holder whose answer the store did not take tries again within two seconds of its return. */
const STORE_RETURN_GRACE_MS = 5_000

/** An intent that could not be withdrawn by then stays: a doubt too many. */
const WITHDRAWN_WITHIN_MS = 600_000

/** A request that could not be sent by its timeout is told so a moment later: then there is no doubt. */
const UNSENT_TOLD_MS = 100

const STILL_WAITING: TokenOutcome = { kind: 'in_doubt', reason: 'no answer so far', timedOut: true }

type Begun = RefreshResult | { kind: 'go'; doubts: number; nothingToLose: boolean }

export function createRefresh(options: RefreshOptions): Refresh {
  const { store, authorizationServer, breaker, slots, insist, timing, timeoutMs, now, log, events } = options
  const { conclude, settle } = createConclude(options)
  const unanswered = new Set<Promise<unknown>>()
  const late = new Set<Promise<unknown>>()
  const beganAt = now()

  async function refresh(found: LiveSession, trigger: RefreshTrigger): Promise<RefreshResult> {
    const session = trigger === 'invalid_token' ? asExpired(found, now()) : found
    // These tokens still wait to be stored; until then there is nothing to compare with.
    if (session.gen !== session.record.gen) return { kind: 'later', retryInMs: 1_000, why: 'store' }
    // Before the queue for a slot as well: behind requests that hang it would be a long one.
    if (breaker.waitMs() > 0) return downFor(breaker.waitMs())
    const release = await slots.take()
    const admission = breaker.admit()
    if (admission.kind === 'wait') {
      release()
      return downFor(admission.retryInMs)
    }
    const attempt = randomUUID()
    let begun: Begun | null = null
    try {
      begun = await begin(session, trigger, attempt)
      if (begun.kind !== 'go') return begun
      return await present(session, trigger, attempt, { ...begun, admission, release })
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
  async function begin(session: LiveSession, trigger: RefreshTrigger, attempt: string): Promise<Begun> {
    const { key, tokens } = session
    const begun = await takeLease(session, attempt, trigger === 'invalid_token' ? FORCED_WINDOW_MS : 0)
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
        const { doubts } = begun
        const expired = now() >= tokens.expiresAt
        if (doubts === 0) return { kind: 'go', doubts, nothingToLose: false }
        const from = expired ? 0 : presentableFrom(tokens, timing, doubts)
        // What was before this process began it has not seen; a lease that was given back is no matter.
        const unseen = session.record.leaseUntil > 0 ? beganAt : 0
        const holderBackBy = Math.max(now() - store.msSinceTrouble(key), unseen) + STORE_RETURN_GRACE_MS
        const waitMs = Math.max(from, holderBackBy) - now()
        if (waitMs <= 0) return { kind: 'go', doubts, nothingToLose: expired }
        await settle(key, attempt, null, waitMs)
        return downFor(waitMs)
      }
    }
  }

  async function takeLease({ key, gen, tokens }: LiveSession, attempt: string, forcedWindowMs: number) {
    const livesMs = Math.max(0, tokens.expiresAt - now())
    const request = { gen, attempt, leaseMs: leaseMs(timeoutMs), livesMs, forcedWindowMs }
    try {
      return await store.beginRefresh(key, request)
    } catch (error) {
      // It may have run: then nobody would hold a lease that keeps everybody out, with a doubt that is none.
      if (error instanceof StoreUnavailable) {
        insist('lease', key, now() + WITHDRAWN_WITHIN_MS, () => store.settleRefresh(key, attempt, null, 0))
      }
      throw error
    }
  }

  interface Permit {
    doubts: number
    nothingToLose: boolean
    admission: Admission & { kind: 'go' }
    release: () => void
  }

  async function present(
    session: LiveSession,
    trigger: RefreshTrigger,
    attempt: string,
    { doubts, nothingToLose, admission, release }: Permit,
  ): Promise<RefreshResult> {
    const startedAt = now()
    const count = (outcome: TokenOutcome['kind']): void =>
      events.refreshed(trigger, outcome, (now() - startedAt) / 1_000)
    const answer = authorizationServer.refresh(session.tokens.refreshToken!, timeoutMs, listenMs(timeoutMs))
    const inTime = within(answer, timeoutMs + UNSENT_TOLD_MS).finally(release)
    track(inTime.then((outcome) => count(outcome?.kind ?? 'in_doubt')))
    // The lease is held until its time is over, also where the access token is gone: a server that is slow after
    // an outage rotates at the first presentation, and would take a second one for theft.
    const hangs = nothingToLose && (await within(answer, PROBE_MS)) === null
    // Other sessions need not wait for this one to learn that the endpoint hangs.
    if (hangs) admission.report(false, null)
    const outcome = await inTime
    if (outcome === null) {
      if (!hangs) admission.report(false, null)
      const heard = answer.then((outcome) => {
        if (outcome.kind === 'granted' && now() - startedAt > timeoutMs + UNSENT_TOLD_MS) count('granted')
        late.delete(heard)
        track(takeLate(session, attempt, outcome, admission))
      })
      late.add(heard)
      return await conclude(session, attempt, STILL_WAITING, doubts)
    }
    report(admission, outcome)
    return await conclude(session, attempt, outcome, doubts)
  }

  async function takeLate(
    session: LiveSession,
    attempt: string,
    outcome: TokenOutcome,
    admission: Admission & { kind: 'go' },
  ): Promise<void> {
    // A refusal may come of the try that was made meanwhile, which decides.
    if (outcome.kind === 'refused') report(admission, outcome)
    if (outcome.kind !== 'granted') return
    report(admission, outcome)
    try {
      await conclude(session, attempt, outcome, 0)
    } catch (error) {
      if (!(error instanceof StoreUnavailable))
        log.error({ event: 'refresh.late_failed', err: error }, 'a late token answer could not be used')
    }
  }

  function track(work: Promise<unknown>): void {
    unanswered.add(work)
    const done = (): void => void unanswered.delete(work)
    work.then(done, done)
  }

  return {
    refresh,
    async settled(listenUntil) {
      for (;;) {
        while (unanswered.size > 0) await Promise.allSettled(unanswered)
        const leftMs = listenUntil - now()
        if (late.size === 0 || leftMs <= 0) return
        await within(Promise.race(late), leftMs)
      }
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
