import type { Clock } from '../clock.ts'
import { type Problem, problem, unavailable } from '../errors.ts'
import type { SessionCookies } from '../http/cookies.ts'
import type { RequestInLog } from '../log.ts'
import { PATHS } from '../paths.ts'
import { type Binding, deviceProblem } from './binding.ts'
import type { SessionCache } from './cache.ts'
import type { Sessions } from './lifecycle.ts'
import type { Access } from './refresh/renewals.ts'
import { neededAt, type RefreshTiming, type Wait } from './refresh/rules.ts'
import type { Tokens } from './refresh/tokens.ts'
import {
  type Found,
  type LiveSession,
  loginRequired,
  NO_COOKIE,
  notLiveProblem,
  touchIntervalMs,
} from './session.ts'
import type { RecordKey, SessionState } from './store/record.ts'

/** The session whose token a request uses. */
export interface Caller {
  readonly key: RecordKey
  /** Generation of its tokens. */
  readonly gen: number
  /** A ready `Bearer …` value. */
  readonly authorization: string
  /** When the access token is due for a refresh, epoch milliseconds. */
  readonly neededAt: number
  /** Of the access token, monotonic milliseconds. */
  readonly expiresAt: number
  /** `SESSION_CACHE_MS` after the newest read that showed the session live was sent, monotonic milliseconds. */
  provenUntil: number
  /** When the session passes a limit by the clock of this process, monotonic milliseconds. */
  limitAt: number
  /** Until `provenUntil`, or a limit or refresh before it. After it the store is asked again. */
  usableUntil: number
  /** Whether the session cookie alone is worth nothing (vault/binding.ts). */
  bound: boolean
  /** The device cookie that was verified last, the header that it came in last, and until when (monotonic ms) it proves the device. */
  device: { header: string | undefined; cookie: string | null; until: number }
  /** The last recorded activity, monotonic milliseconds: up to `touchIntervalMs` behind the browser's last request. */
  activeAt: number
}

/** What a call does with its caller: looks whether it may still leave, and gets a newer token after a refusal. */
export interface CallerSource<C> {
  /**
   * The caller with a newer token than the refused one, by a forced refresh unless another caller made one. Rejects
   * with the problem to send if there is none.
   * `namesInvalidToken`: the refusal gave that error code, which ends a session without a refresh token.
   * `request`: for the log.
   */
  forceRefresh(refused: C, namesInvalidToken: boolean, request: RequestInLog): Promise<C>
  /** Whether the caller's token has expired by the clock of this process. */
  hasExpired(caller: C): boolean
  /**
   * Whether a call that has waited may leave without another look at the store: not once this process has ended its
   * session or replaced its token.
   */
  isProven(caller: C): boolean
  /** Asks the store: whether the session goes on with the token of this caller. */
  prove(caller: C): Promise<boolean>
  /** The caller that its session has now. Rejects with the problem to send. */
  current(caller: C, request: RequestInLog): Promise<C>
}

export interface Callers extends CallerSource<Caller> {
  /** The caller for a `Cookie` header if this process knows it well enough: waits for no store, checks no signature. */
  cached(header: string | undefined): Caller | null
  /** The record that a `Cookie` header names by a good signature, live or not. Throws `login_required` without one. */
  requireCookie(header: string | undefined): RecordKey
  /** The caller for a `Cookie` header, with a usable token. Rejects with the problem to send. */
  find(header: string | undefined, request: CallerRequest): Promise<Caller>
  /** The user of the session is active: moves its idle limit, recorded once in `touchIntervalMs`. */
  noteActivity(caller: Caller): void
}

/** What `find` needs of a request besides its cookies. */
export interface CallerRequest {
  /** For the log. */
  request: RequestInLog
  /** The browser says that it could not get a device cookie (`Secure-Session-Skipped`). */
  skipped: boolean
}

export interface CallersOptions {
  cookies: Pick<SessionCookies, 'read' | 'verify' | 'readDevice'>
  /** null: sessions are not bound to devices. */
  binding: Pick<Binding, 'provenUntil'> | null
  cache: SessionCache<Caller>
  /** How long a read proves a session (`SESSION_CACHE_MS`), milliseconds. */
  trustMs: number
  sessions: Pick<Sessions, 'look' | 'readState' | 'stay' | 'end'>
  tokens: Pick<Tokens, 'obtainAccessToken'>
  timing: RefreshTiming
  idleMs: number
  clock: Clock
  /** Called for each lookup of a session; `revalidated`: a small read has proven what was known. */
  observe: (result: 'hit' | 'revalidated' | 'miss') => void
}

/** The problem to send where a caller has to wait for new tokens. */
export function waitProblem({ why, ms }: Wait): Problem {
  switch (why) {
    case 'paused':
      return unavailable('store_unavailable', ms / 1_000, {
        cause: new Error('Redis changed its master and may lack newer tokens'),
      })
    case 'busy':
    case 'unanswered':
      // The response may come at any moment.
      return unavailable('authorization_server_unavailable', 1)
    case 'unavailable':
      return unavailable('authorization_server_unavailable', ms / 1_000)
    case 'rejected':
      return unavailable('authorization_server_unavailable', ms / 1_000, {
        detail: 'The authorization server refreshes no tokens of this session now. A new sign-in may help.',
        members: { loginUrl: PATHS.login },
      })
    case 'stopping':
      return problem('shutting_down', { headers: { 'retry-after': '1' } })
    case 'forced_before':
      return problem('upstream_refused')
  }
}

export function createCallers(options: CallersOptions): Callers {
  const { cookies, cache, sessions, tokens, clock, observe } = options
  const touchEveryMs = touchIntervalMs(options.idleMs)
  const { readSession, prove } = createProofs(options)

  function cached(header: string | undefined): Caller | null {
    const cookie = cookies.read(header)
    if (cookie === null) return null
    const caller = cache.get(cookie)
    const at = clock.monotonic()
    if (caller === null || at >= caller.usableUntil) return null
    if (caller.bound && !isDeviceOf(caller, header, at)) return null
    observe('hit')
    return caller
  }

  function requireCookie(header: string | undefined): RecordKey {
    const cookie = cookies.read(header)
    if (cookie === null) throw problem('login_required', NO_COOKIE)
    const known = cache.keyOf(cookie)
    if (known !== null) return known
    const key = cookies.verify(cookie)?.recordKey
    if (key === undefined) throw problem('login_required', 'The session cookie is not one of ours.')
    cache.noteCookie(cookie, key)
    return key
  }

  async function find(header: string | undefined, { request, skipped }: CallerRequest): Promise<Caller> {
    const caller = await callerOf(requireCookie(header), request)
    if (caller.bound) requireDevice(caller, header, skipped)
    return caller
  }

  /** Throws unless the device cookie of this header proves the device of a bound session. */
  function requireDevice(caller: Caller, header: string | undefined, skipped: boolean): void {
    if (isDeviceOf(caller, header, clock.monotonic())) return
    const cookie = cookies.readDevice(header)
    // With SESSION_BINDING=off nobody can renew a device cookie: a session that was bound before needs none.
    const until =
      options.binding === null ? Number.POSITIVE_INFINITY : options.binding.provenUntil(caller.key, cookie)
    if (until === null) throw deviceProblem(skipped)
    caller.device = { header, cookie, until: until + clock.monotonic() - clock.wall() }
  }

  /** Whether the device cookie of this header was verified before, and still proves the device: one comparison for most calls. */
  function isDeviceOf({ device }: Caller, header: string | undefined, at: number): boolean {
    if (at >= device.until) return false
    if (header === device.header) return true
    if (cookies.readDevice(header) !== device.cookie) return false
    device.header = header
    return true
  }

  /** The caller of a session by what the store shows now: a small read if its tokens are known, else a full one. */
  async function callerOf(key: RecordKey, request: RequestInLog): Promise<Caller> {
    const known = cache.known(key)
    const isProven = known !== null && clock.wall() < known.neededAt && (await prove(known))
    // Past its limit, the clock of the store decides as well whether it ends.
    if (isProven && clock.monotonic() < known.limitAt) {
      observe('revalidated')
      return known
    }
    const looked = await readSession(key, request)
    if (!('kind' in looked)) return looked
    if (looked.kind !== 'live') throw notLiveProblem(looked)
    // The wait for a token may have been long, and a refresh of this process has changed the record.
    return await current(requireCaller(await tokens.obtainAccessToken(looked.session), options), request)
  }

  async function current(caller: Caller, request: RequestInLog): Promise<Caller> {
    return (await prove(caller)) ? caller : await callerOf(caller.key, request)
  }

  function noteActivity(caller: Caller): void {
    const at = clock.monotonic()
    if (at - caller.activeAt < touchEveryMs) return
    caller.activeAt = at
    // One that the store does not take is lost: the next follows after the same interval.
    sessions.stay(caller.key).catch(() => {})
  }

  async function forceRefresh(
    refused: Caller,
    namesInvalidToken: boolean,
    request: RequestInLog,
  ): Promise<Caller> {
    cache.drop(refused.key)
    const found = await sessions.look(refused.key, request)
    switch (found.kind) {
      case 'live': {
        const { session } = found
        const access = await tokens.obtainAccessToken(session, refused.gen)
        if (access.kind === 'not_refreshable' && namesInvalidToken)
          throw await endInvalidToken(refused, request)
        return await current(requireCaller(access, options), request)
      }
      default:
        throw notLiveProblem(found)
    }
  }

  /** Ends a session whose only token was called invalid. Returns the problem to send. */
  async function endInvalidToken(refused: Caller, request: RequestInLog): Promise<Problem> {
    const { key, gen } = refused
    if (await sessions.end(key, 'refused', { gen, request })) return loginRequired('refused')
    // One of several callers with this token ends the session, and all get the same problem.
    const found = await sessions.look(key, request)
    return found.kind === 'ended' ? loginRequired(found.reason ?? 'refused') : problem('upstream_refused')
  }

  return {
    cached,
    requireCookie,
    find,
    forceRefresh,
    hasExpired: (caller) => clock.monotonic() >= caller.expiresAt,
    isProven({ key, gen }) {
      // By what is known now: the caller of a call that waits does not learn of an end.
      const known = cache.known(key)
      return known?.gen === gen && clock.monotonic() < known.provenUntil
    },
    prove,
    current,
    noteActivity,
  }
}

/** Reads the store for callers. What a read shows says until when the caller in the cache may be used. */
function createProofs(options: CallersOptions) {
  const { cache, trustMs, sessions, timing, idleMs, clock, observe } = options
  const touchEveryMs = touchIntervalMs(idleMs)

  /**
   * A full read: a session whose token needs a refresh, or has ended, or its new caller. Requests share it, so what holds
   * for one of them alone, such as its device, is checked in `find`.
   */
  async function readSession(key: RecordKey, request: RequestInLog): Promise<Found | Caller> {
    observe('miss')
    return await cache.read(key, {
      kind: 'session',
      send: () => sessions.look(key, request),
      take(found, sentAt) {
        if (found.kind !== 'live') {
          cache.put(key, null)
          return found
        }
        const { session } = found
        if (clock.wall() >= neededAt(session.tokens, timing)) return found
        // Another waiter of the same read may have made it.
        const known = cache.known(key)
        const caller = known?.gen === session.record.gen ? known : toCaller(session, options)
        trust(caller, session.record, sentAt)
        return caller
      },
    })
  }

  function prove(caller: Caller): Promise<boolean> {
    const { key } = caller
    return cache.read(key, {
      kind: 'state',
      send: () => sessions.readState(key),
      take(state, sentAt) {
        const goesOn = state !== null && state.gen === caller.gen
        if (goesOn) trust(caller, state, sentAt)
        else if (cache.known(key) === caller) cache.put(key, null)
        return goesOn
      },
    })
  }

  /** The store showed `state` to a read that was sent at `sentAt`. */
  function trust(caller: Caller, state: SessionState, sentAt: number): void {
    const at = clock.monotonic()
    const fromWall = at - clock.wall()
    const activeAt = state.seenAt + fromWall
    caller.provenUntil = sentAt + trustMs
    caller.bound = state.bound
    caller.limitAt = state.idleEndsAt + fromWall
    caller.usableUntil = Math.min(caller.provenUntil, caller.neededAt + fromWall, caller.limitAt)
    // Where the clock of this process is far behind the one that wrote the record, activity is recorded now.
    caller.activeAt = Math.max(caller.activeAt, activeAt > at + touchEveryMs ? at - touchEveryMs : activeAt)
    cache.put(caller.key, caller)
  }

  return { readSession, prove }
}

/** The caller with the token of `access`, not proven yet. Without one it throws the problem to send. */
function requireCaller(access: Access, options: CallersOptions): Caller {
  switch (access.kind) {
    case 'token':
      return toCaller(access.session, options)
    case 'ended':
      throw loginRequired(access.reason)
    case 'not_refreshable':
      throw problem('upstream_refused')
    case 'wait':
      throw waitProblem(access)
  }
}

/** Not proven yet. By the monotonic clock: a step of the wall clock must not prolong the life of a token. */
function toCaller({ key, tokens: held, record }: LiveSession, { timing, clock }: CallersOptions): Caller {
  return {
    key,
    gen: record.gen,
    authorization: `Bearer ${held.accessToken.reveal()}`,
    neededAt: neededAt(held, timing),
    expiresAt: held.expiresAt + clock.monotonic() - clock.wall(),
    provenUntil: Number.NEGATIVE_INFINITY,
    limitAt: Number.NEGATIVE_INFINITY,
    usableUntil: Number.NEGATIVE_INFINITY,
    bound: record.bound,
    device: { header: undefined, cookie: null, until: Number.NEGATIVE_INFINITY },
    activeAt: Number.NEGATIVE_INFINITY,
  }
}
