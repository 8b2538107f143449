import type { Problem } from '../errors.ts'
import { problem, unavailable } from '../errors.ts'
import type { SessionCookies } from '../session/cookies.ts'
import type { SessionCache } from '../store/cache.ts'
import { idleEndsAt, touchInterval } from '../store/limits.ts'
import type { SessionStore } from '../store/port.ts'
import type { Access } from '../tokens/access.ts'
import type { EndReason } from '../tokens/events.ts'
import type { LiveSession } from '../tokens/live.ts'
import type { RefreshTiming } from '../tokens/timing.ts'
import { refreshesFirstAt } from '../tokens/timing.ts'
import type { Tokens } from '../tokens/tokens.ts'
import type { Grace, Known } from './grace.ts'

/** A signed-in browser, ready to call: the access token as it goes into the header, and until when. */
export interface Caller extends Known {
  readonly gen: number
  readonly authorization: string
  /** Epoch milliseconds; after it the store is asked again. */
  readonly usableUntil: number
}

/** Where callers come from, and what follows when the resource server refuses their token. */
export interface Source<C extends { readonly authorization: string }> {
  /**
   * A caller with a newer token than the one that the resource server refused; throws as the source does
   * where it has none. `named`: it was refused as an invalid token, which ends a session that has no refresh token.
   */
  renew(refused: C, named: boolean): Promise<C>
  /** The newest token that can be had was refused; `named`: as an invalid token. What to answer. */
  giveUp(refused: C, named: boolean): Promise<Problem>
}

export interface Callers extends Source<Caller> {
  /** The caller if it is known in this process: no store, no signature check. */
  hit(header: string | undefined): Caller | null
  /**
   * Looks the session up. Throws `login_required`; a store that fails is told by `proceed`, which
   * refreshes where that is due and gives the caller.
   */
  identify(header: string | undefined): Promise<() => Promise<Caller>>
}

export interface CallersOptions {
  cookies: SessionCookies
  cache: SessionCache<Caller>
  store: SessionStore
  tokens: Tokens
  grace: Grace<Caller>
  timing: RefreshTiming
  idleMs: number
  /** How long an outage of the store is borne. */
  graceMs: number
  now: () => number
  /** Told of each look-up with a session cookie; `bypass`: change messages do not arrive. */
  observe: (result: 'hit' | 'miss' | 'bypass') => void
}

const MAX_ENTRY_AGE_MS = 60_000

export function createCallers({
  cookies,
  cache,
  store,
  tokens,
  grace,
  timing,
  idleMs,
  graceMs,
  now,
  observe,
}: CallersOptions): Callers {
  const touchEvery = touchInterval(idleMs)

  function hit(header: string | undefined): Caller | null {
    const cookie = cookies.read(header)
    if (cookie === null) return null
    const caller = cache.get(cookie)
    if (caller === null || now() >= caller.usableUntil) {
      observe(store.messagesArrive() ? 'miss' : 'bypass')
      return null
    }
    observe('hit')
    noteActivity(caller)
    return caller
  }

  async function identify(header: string | undefined): Promise<() => Promise<Caller>> {
    const cookie = cookies.read(header)
    if (cookie === null) throw problem('login_required', 'There is no session cookie.')
    const verified = cookies.verify(cookie)
    if (verified === null) throw problem('login_required', 'The session cookie is not one of ours.')
    // Known to be away: nobody waits to be told so again.
    const known = store.unreached() ? grace.find(cookie) : null
    if (known !== null) return async () => known
    if (!store.unreached()) await grace.settle(verified.recordKey)
    const guard = cache.reading(verified.recordKey)
    const found = await tokens.find(verified.recordKey)
    switch (found.kind) {
      case 'live':
        return async () => {
          const caller = await ready(found.session, await tokens.obtainAccessToken(found.session))
          // A refresh on the way here has changed the record, which its own message says only if it arrives.
          if (caller.gen === found.session.gen) cache.put(cookie, caller, guard)
          else cache.drop(caller.key)
          return caller
        }
      case 'ended':
        cache.drop(verified.recordKey)
        throw loginRequired(found.reason)
      case 'unreadable':
        cache.drop(verified.recordKey)
        throw problem('login_required', 'The session cannot be read here any more.')
      case 'store_unavailable': {
        const still = found.cause.unreached ? grace.find(cookie) : null
        return () => (still === null ? Promise.reject(found.cause) : Promise.resolve(still))
      }
    }
  }

  async function ready(session: LiveSession, access: Access): Promise<Caller> {
    switch (access.kind) {
      case 'token': {
        const caller = toCaller(access.session)
        noteActivity(caller)
        return caller
      }
      case 'login_required':
        throw loginRequired(access.reason)
      case 'unavailable':
        throw unavailable(
          access.what === 'store' ? 'store_unavailable' : 'authorization_server_unavailable',
          access.retryAfterSeconds,
        )
      case 'token_refused':
        cache.drop(session.key)
        throw problem('upstream_refused')
    }
  }

  function toCaller({ key, gen, tokens: held, record }: LiveSession): Caller {
    return {
      key,
      gen,
      authorization: `Bearer ${held.accessToken.reveal()}`,
      usableUntil: Math.min(
        refreshesFirstAt(held, timing),
        idleEndsAt(record, idleMs),
        now() + MAX_ENTRY_AGE_MS,
      ),
      graceUntil: Math.min(held.expiresAt, record.endsAt, now() + MAX_ENTRY_AGE_MS + graceMs),
      seenAt: record.seenAt,
    }
  }

  /** Not waited for: a lost note is made up for by the next one, long before the idle limit. */
  function noteActivity(caller: Caller): void {
    const at = now()
    if (at - caller.seenAt < touchEvery) return
    caller.seenAt = at
    store.touch(caller.key, at, idleMs).then(
      (there) => {
        if (!there) cache.drop(caller.key)
      },
      () => {},
    )
  }

  async function renew(refused: Caller, named: boolean): Promise<Caller> {
    cache.drop(refused.key)
    const found = await tokens.find(refused.key)
    switch (found.kind) {
      case 'live': {
        const access = await tokens.obtainAccessToken(found.session, refused.gen)
        const last = access.kind === 'token_refused' && found.session.tokens.refreshToken === null
        if (last) throw await giveUp(refused, named)
        return await ready(found.session, access)
      }
      case 'ended':
        throw loginRequired(found.reason)
      case 'unreadable':
        throw problem('upstream_refused')
      case 'store_unavailable':
        throw found.cause
    }
  }

  async function giveUp(refused: Caller, named: boolean): Promise<Problem> {
    if (!named) return problem('upstream_refused')
    if (await tokens.end(refused.key, 'refused', refused.gen)) return loginRequired('refused')
    // Of several callers with this token one ends the session, and all are told the same.
    const found = await tokens.find(refused.key)
    return found.kind === 'ended' ? loginRequired(found.reason ?? 'refused') : problem('upstream_refused')
  }

  return { hit, identify, renew, giveUp }
}

const WHY: Record<EndReason, string> = {
  logout: 'The session was ended by signing out.',
  idle: 'The session ended after a time without use.',
  absolute: 'The session has reached its longest duration.',
  refused: 'The session ended: the authorization server or the resource server no longer accepts its tokens.',
  replaced: 'The session ended when a new one was started.',
  operator: 'The session was ended by an operator.',
}

function loginRequired(reason: EndReason | null): Problem {
  return problem('login_required', reason === null ? 'The session has ended.' : WHY[reason])
}
