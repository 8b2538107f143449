import type { Clock } from '../clock.ts'
import { type Problem, problem, unavailable } from '../errors.ts'
import type { RequestInLog } from '../log.ts'
import type { SessionCache } from '../session/cache.ts'
import type { SessionCookies } from '../session/cookies.ts'
import type { Sessions } from '../session/lifecycle.ts'
import {
  type Found,
  type LiveSession,
  loginRequired,
  NO_COOKIE,
  notLiveProblem,
  touchIntervalMs,
} from '../session/session.ts'
import { type RecordKey, type SessionStore, StoreUnavailable } from '../store/store.ts'
import type { Access } from '../tokens/obtain.ts'
import { neededAt, type RefreshTiming } from '../tokens/refresh-policy.ts'
import type { Tokens } from '../tokens/tokens.ts'

/** The session whose token a request uses. */
export interface Caller {
  readonly key: RecordKey
  /** Generation of its tokens. */
  readonly gen: number
  /** A ready `Bearer …` value. */
  readonly authorization: string
  /** Monotonic milliseconds; after it the store is asked again. */
  readonly usableUntil: number
  /** Of the access token, monotonic milliseconds. */
  readonly expiresAt: number
  /** The last recorded activity, monotonic milliseconds: up to `touchIntervalMs` behind the browser's last request. */
  activeAt: number
}

/** Gets a newer token for a caller whose token the resource server refused. */
export interface Refresher<C> {
  /**
   * The caller with a newer token than the refused one, by a forced refresh unless another caller made one. Rejects
   * with the problem to send if there is none.
   * `namesInvalidToken`: the refusal gave that error code, which ends a session without a refresh token.
   * `request`: for the log.
   */
  forceRefresh(refused: C, namesInvalidToken: boolean, request: RequestInLog): Promise<C>
  /** Whether the caller's token has expired by the clock of this process. */
  hasExpired(caller: C): boolean
}

export interface Callers extends Refresher<Caller> {
  /** The caller for a `Cookie` header if this process has it cached: no store, no signature check. */
  cached(header: string | undefined): Caller | null
  /**
   * The caller for a `Cookie` header, with a usable token. Rejects with the problem to send. `onSession`
   * runs once a session is there, so that what it throws comes after 401 and before 503. `request`: for the log.
   */
  find(header: string | undefined, onSession: () => void, request: RequestInLog): Promise<Caller>
}

export interface CallersOptions {
  cookies: SessionCookies
  cache: SessionCache<Caller>
  store: Pick<SessionStore, 'health'>
  sessions: Pick<Sessions, 'find' | 'touch' | 'end'>
  tokens: Pick<Tokens, 'obtainAccessToken'>
  timing: RefreshTiming
  idleMs: number
  clock: Clock
  /** Called for each lookup with a session cookie; `bypass`: change messages do not arrive. */
  observe: (result: 'hit' | 'miss' | 'bypass') => void
}

/** A cached caller is used at most this long before its session is read again. */
const MAX_ENTRY_AGE_MS = 60_000

export function createCallers({
  cookies,
  cache,
  store,
  sessions,
  tokens,
  timing,
  idleMs,
  clock,
  observe,
}: CallersOptions): Callers {
  const touchEveryMs = touchIntervalMs(idleMs)

  function cached(header: string | undefined): Caller | null {
    const cookie = cookies.read(header)
    if (cookie === null) return null
    const caller = cache.get(cookie)
    const at = clock.monotonic()
    if (caller === null || at >= caller.usableUntil) {
      observe(store.health.isLive() ? 'miss' : 'bypass')
      return null
    }
    observe('hit')
    noteActivity(caller, at)
    return caller
  }

  async function find(
    header: string | undefined,
    onSession: () => void,
    request: RequestInLog,
  ): Promise<Caller> {
    const cookie = cookies.read(header)
    if (cookie === null) throw problem('login_required', NO_COOKIE)
    const verified = cookies.verify(cookie)
    if (verified === null) throw problem('login_required', 'The session cookie is not one of ours.')
    const read = cache.beginRead(verified.recordKey)
    let found: Found
    try {
      found = await sessions.find(verified.recordKey, request)
    } catch (error) {
      if (error instanceof StoreUnavailable) onSession()
      throw error
    }
    if (found.kind !== 'live') {
      cache.drop(verified.recordKey)
      throw notLiveProblem(found)
    }
    onSession()
    const caller = await requireCaller(found.session, await tokens.obtainAccessToken(found.session))
    // A refresh has changed the record meanwhile, and its change message may be missing.
    if (caller.gen === found.session.record.gen) cache.put(cookie, caller, read)
    else cache.drop(caller.key)
    return caller
  }

  /** The caller with the token of `access`. Without one it throws the problem to send. */
  async function requireCaller(session: LiveSession, access: Access): Promise<Caller> {
    switch (access.kind) {
      case 'token': {
        const at = clock.monotonic()
        const caller = toCaller(access.session, at)
        noteActivity(caller, at)
        return caller
      }
      case 'ended':
        throw loginRequired(access.reason)
      case 'unavailable':
        throw unavailable('authorization_server_unavailable', access.retryAfterSeconds)
      case 'token_refused':
      case 'not_refreshable':
        cache.drop(session.key)
        throw problem('upstream_refused')
    }
  }

  /** `at` is now by the monotonic clock: a step of the wall clock must not prolong a cached entry. */
  function toCaller({ key, tokens: held, record }: LiveSession, at: number): Caller {
    const fromWall = at - clock.wall()
    const activeAt = record.seenAt + fromWall
    return {
      key,
      gen: record.gen,
      authorization: `Bearer ${held.accessToken.reveal()}`,
      usableUntil: Math.min(
        neededAt(held, timing) + fromWall,
        record.idleEndsAt + fromWall,
        at + MAX_ENTRY_AGE_MS,
      ),
      expiresAt: held.expiresAt + fromWall,
      // The clock of this process is far behind the one that wrote the record: record activity now.
      activeAt: activeAt > at + touchEveryMs ? at - touchEveryMs : activeAt,
    }
  }

  function noteActivity(caller: Caller, at: number): void {
    if (at - caller.activeAt < touchEveryMs) return
    caller.activeAt = at
    sessions.touch(caller.key)
  }

  async function forceRefresh(
    refused: Caller,
    namesInvalidToken: boolean,
    request: RequestInLog,
  ): Promise<Caller> {
    cache.drop(refused.key)
    const found = await sessions.find(refused.key, request)
    switch (found.kind) {
      case 'live': {
        const { session } = found
        const access = await tokens.obtainAccessToken(session, refused.gen)
        if (access.kind === 'not_refreshable' && namesInvalidToken)
          throw await endInvalidToken(refused, request)
        return await requireCaller(session, access)
      }
      case 'ended':
        throw loginRequired(found.reason)
      case 'unreadable':
        throw problem('upstream_refused')
    }
  }

  /** Ends a session whose only token was called invalid. Returns the problem to send. */
  async function endInvalidToken(refused: Caller, request: RequestInLog): Promise<Problem> {
    const { key, gen } = refused
    if (await sessions.end(key, 'refused', { gen, request })) return loginRequired('refused')
    // One of several callers with this token ends the session, and all get the same problem.
    const found = await sessions.find(key, request)
    return found.kind === 'ended' ? loginRequired(found.reason ?? 'refused') : problem('upstream_refused')
  }

  return { cached, find, forceRefresh, hasExpired: (caller) => clock.monotonic() >= caller.expiresAt }
}
