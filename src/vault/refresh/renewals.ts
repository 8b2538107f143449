import type { Clock } from '../../clock.ts'
import { withTimeout } from '../../timeout.ts'
import type { Sessions } from '../lifecycle.ts'
import type { EndReason, LiveSession } from '../session.ts'
import type { RecordKey } from '../store/record.ts'
import { StoreUnavailable } from '../store/store.ts'
import type { Refresh, RefreshResult, RefreshTrigger } from './refresh.ts'
import { neededAt, patienceMs, type RefreshTiming, type Wait } from './rules.ts'

/** What a request gets. A store that fails is thrown as `StoreUnavailable`. */
export type Access =
  /** A session with an access token that may be sent. */
  | { kind: 'token'; session: LiveSession }
  | { kind: 'ended'; reason: EndReason | null }
  /** The resource server refused this token, and the session has no refresh token. */
  | { kind: 'not_refreshable' }
  | Wait

/**
 * An access token to send, after a refresh if one is needed. `refusedGen`: the resource server refused the token
 * of this generation, so only a newer one will do. Rejects with `StoreUnavailable`.
 */
export type ObtainAccessToken = (session: LiveSession, refusedGen?: number) => Promise<Access>

/** Joins the attempt of this process that is under way, whatever began it, or begins one. */
export type JoinAttempt = (session: LiveSession, trigger: RefreshTrigger) => SharedAttempt

/** One refresh (refresh.ts), until its callers have a result. A presentation without a response outlives it. */
interface SharedAttempt {
  /** Monotonic. */
  readonly startedAt: number
  /** Of the caller that began it. */
  readonly trigger: RefreshTrigger
  /** Resolves early if the session ends: the response no longer matters. Rejects with `StoreUnavailable`. */
  readonly result: Promise<RefreshResult>
}

/** Attempts for one session, one after the other, until there are new tokens or no reason to go on. Monotonic instants. */
interface Renewal {
  readonly startedAt: number
  /** The newest session that is known. */
  session: LiveSession
  /** Only tokens of a later generation will do. */
  laterThan: number
  /** The resource server refused the tokens of this generation; 0 for none. */
  refusedGen: number
  /**
   * Callers wait until then if the store has paused refreshes. Only its first pause counts: failovers must not delay them
   * forever.
   */
  patientUntil: number
  /** Between two attempts: why there are no new tokens yet. */
  wait: Wait | null
  result: Promise<Access> | null
}

interface RenewalsOptions {
  refresh: Pick<Refresh, 'refresh'>
  sessions: Pick<Sessions, 'look' | 'readState'>
  /** Whether the token endpoint counts as down. */
  isDown: () => boolean
  timing: RefreshTiming
  timeoutMs: number
  clock: Clock
}

interface Renewals {
  joinAttempt: JoinAttempt
  obtainAccessToken: ObtainAccessToken
}

/** With a valid token a caller waits for an attempt only while that is younger than this. */
const PATIENCE_WITH_VALID_TOKEN_MS = 1_000
/** Without one, while the token endpoint counts as down: slightly longer than a probe of the gate. */
const PATIENCE_IN_OUTAGE_MS = 2_600
/** While another process refreshes, or may hold newer tokens, the record is read this often. */
const LOOK_EVERY_MS = 250
/** What all attempts together may ask: after an outage thousands of sessions wait for their turn at the token endpoint. */
const LOOKS_A_SECOND = 1_000
/** Pause before the next attempt where the record should have changed, but has not. */
const REREAD_MS = 50

const NOT_IN_TIME: Wait = { kind: 'wait', ms: 1_000, why: 'unanswered' }
const NEW_RENEWAL = {
  laterThan: 0,
  refusedGen: 0,
  patientUntil: Number.NEGATIVE_INFINITY,
  wait: null,
  result: null,
}

/** One attempt and one renewal for each session and process at a time. Each caller waits for them as long as its patience lasts. */
export function createRenewals(options: RenewalsOptions): Renewals {
  const { refresh, sessions, isDown, timing, timeoutMs, clock } = options
  const attempts = new Map<RecordKey, SharedAttempt>()
  const renewals = new Map<RecordKey, Renewal>()

  async function obtainAccessToken(session: LiveSession, refusedGen?: number): Promise<Access> {
    const { tokens, record } = session
    const needsNewer =
      refusedGen === undefined
        ? clock.wall() >= neededAt(tokens, timing)
        : record.gen <= refusedGen || clock.wall() >= tokens.expiresAt
    const isUsable = (): boolean => refusedGen === undefined && clock.wall() < tokens.expiresAt
    const usable = { kind: 'token', session } as const
    if (!needsNewer) return usable
    if (tokens.refreshToken === null) {
      if (isUsable()) return usable
      // The session's absolute limit is the expiry of its access token.
      return clock.wall() >= tokens.expiresAt
        ? { kind: 'ended', reason: 'absolute' }
        : { kind: 'not_refreshable' }
    }
    if (isUsable()) {
      const { startedAt, result } = joinAttempt(session, 'request')
      const soon = withTimeout(result, startedAt + PATIENCE_WITH_VALID_TOKEN_MS - clock.monotonic())
      const refreshed = await soon.catch(nullIfUnavailable)
      if (refreshed?.kind === 'granted') return { kind: 'token', session: refreshed.session }
      if (refreshed?.kind !== 'ended' && isUsable()) return usable
    }
    return await joinRenewal(session, refusedGen)
  }

  /** Joins the renewal of a session, or begins it. */
  async function joinRenewal(session: LiveSession, refusedGen = 0): Promise<Access> {
    const { key, record } = session
    const startedAt = clock.monotonic()
    const renewal = renewals.get(key) ?? { ...NEW_RENEWAL, startedAt, session }
    renewals.set(key, renewal)
    renewal.laterThan = Math.max(renewal.laterThan, record.gen, refusedGen)
    renewal.refusedGen = Math.max(renewal.refusedGen, refusedGen)
    renewal.result ??= renew(options, joinAttempt, renewal).finally(() => renewals.delete(key))
    const outageMs = renewal.startedAt + PATIENCE_IN_OUTAGE_MS - startedAt
    const ms = isDown() ? Math.min(patienceMs(timeoutMs), outageMs) : patienceMs(timeoutMs)
    // A pause of the store, known only by then, may outlast a token request.
    const access =
      (await withTimeout(renewal.result, ms)) ??
      (await withTimeout(renewal.result, renewal.patientUntil - clock.monotonic()))
    if (access !== null) return access
    // While this process was stalled, another one may have refreshed.
    const found = await sessions.look(key)
    if (found.kind === 'live' && found.session.record.gen > renewal.laterThan)
      return { kind: 'token', session: found.session }
    return renewal.wait ?? NOT_IN_TIME
  }

  function joinAttempt(session: LiveSession, trigger: RefreshTrigger): SharedAttempt {
    const { key } = session
    const known = attempts.get(key)
    if (known !== undefined) return known
    const work = refresh.refresh(session, trigger).finally(() => attempts.delete(key))
    const lookEveryMs = (): number => Math.max(LOOK_EVERY_MS, (attempts.size * 1_000) / LOOKS_A_SECOND)
    const result = unlessEnded(work, lookEveryMs, () => sessions.readState(key))
    // Callers handle the rejection. Without a caller it must not end the process.
    result.catch(() => {})
    const attempt = { startedAt: clock.monotonic(), trigger, result }
    attempts.set(key, attempt)
    return attempt
  }

  return { joinAttempt, obtainAccessToken }
}

/** Makes attempts and reads the record between them. */
async function renew(
  { sessions, clock, timeoutMs }: RenewalsOptions,
  joinAttempt: JoinAttempt,
  renewal: Renewal,
): Promise<Access> {
  for (;;) {
    const { key, record, tokens } = renewal.session
    const trigger = record.gen <= renewal.refusedGen ? 'invalid_token' : 'request'
    const attempt = joinAttempt(renewal.session, trigger)
    const result = await attempt.result
    let inTime = true
    if (result.kind === 'granted') renewal.session = result.session
    else {
      const at = clock.monotonic()
      if (result.kind === 'wait' && result.why === 'paused' && !Number.isFinite(renewal.patientUntil))
        renewal.patientUntil = at + patienceMs(result.ms)
      inTime = at < Math.max(renewal.startedAt + patienceMs(timeoutMs), renewal.patientUntil)
      const wait = finalWait(result, clock.wall() < tokens.expiresAt)
      // Another caller began this attempt, unforced: force the next one. A read of the record before that would let other
      // callers begin an unforced one again.
      if (wait !== null && trigger === 'invalid_token' && attempt.trigger !== trigger) continue
      if (wait !== null) return wait
      renewal.wait = result.kind === 'wait' ? result : null
      if (result.kind === 'wait' && inTime) await pause(Math.min(result.ms + 10, LOOK_EVERY_MS))
      const looked = sessions.look(key)
      const found = await (result.kind === 'ended' ? looked.catch(nullIfUnavailable) : looked)
      if (found?.kind !== 'live')
        return { kind: 'ended', reason: found?.kind === 'ended' ? found.reason : null }
      if (inTime && result.kind === 'changed' && found.session.record.gen === record.gen)
        await pause(REREAD_MS)
      renewal.session = found.session
      renewal.wait = null
    }
    const { session } = renewal
    // However short its life: it was issued since the callers came, so another refresh would bring nothing better.
    if (session.record.gen > renewal.laterThan) return { kind: 'token', session }
    if (!inTime) return result.kind === 'wait' ? result : NOT_IN_TIME
  }
}

/** The wait that callers get after an attempt; null: its reason may be over soon, so the record is read again. */
function finalWait(result: Exclude<RefreshResult, { kind: 'granted' }>, isValid: boolean): Wait | null {
  if (result.kind !== 'wait') return null
  switch (result.why) {
    case 'busy':
    case 'paused':
      return null
    case 'forced_before':
      // Only the refusal of a token that is valid by our own clock is final. An expired one is refreshed.
      return isValid ? result : null
    case 'unanswered':
    case 'unavailable':
    case 'rejected':
    case 'stopping':
      return result
  }
}

/** As `work`, but `ended` as soon as a small read shows no session. */
async function unlessEnded(
  work: Promise<RefreshResult>,
  everyMs: () => number,
  readState: () => Promise<unknown>,
): Promise<RefreshResult> {
  let timer: NodeJS.Timeout | undefined
  const ended = new Promise<RefreshResult>((resolve) => {
    const look = async (): Promise<void> => {
      if ((await readState()) === null) resolve({ kind: 'ended' })
    }
    const lookLater = (): void => {
      timer = setTimeout(() => {
        lookLater()
        look().catch(() => {})
      }, everyMs())
    }
    lookLater()
  })
  return await Promise.race([work, ended]).finally(() => clearTimeout(timer))
}

function nullIfUnavailable(error: unknown): null {
  if (error instanceof StoreUnavailable) return null
  throw error
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
