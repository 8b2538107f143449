import { randomUUID } from 'node:crypto'
import type { Keyring } from '../keyring.ts'
import type { Logger } from '../log.ts'
import type { AuthorizationServer } from '../oauth/authorization-server.ts'
import type { GrantedTokens, TokenOutcome } from '../oauth/outcome.ts'
import type { RecordKey, ReplaceTokens, SessionStore } from '../store/port.ts'
import { StoreUnavailable } from '../store/port.ts'
import type { Breaker } from './breaker.ts'
import type { EndReason, RefreshTrigger, TokenEvents } from './events.ts'
import type { LiveSession } from './live.ts'
import type { Slots } from './slots.ts'
import type { RefreshTiming } from './timing.ts'
import { presentableFrom } from './timing.ts'
import type { TokenSet } from './token-set.ts'
import { sealTokens } from './token-set.ts'
import type { Unsaved } from './unsaved.ts'

export type RefreshResult =
  | { kind: 'granted'; tokens: TokenSet; gen: number }
  /** Another replica holds the lease for so long. */
  | { kind: 'busy'; waitMs: number }
  /** The record has changed since it was read: read it again. */
  | { kind: 'changed' }
  | { kind: 'ended'; reason: EndReason | null }
  | { kind: 'later'; retryInMs: number; why: 'authorization_server' | 'store' }
  /** A forced refresh was made within the last minute. */
  | { kind: 'forced_before' }

export interface RefreshOptions {
  store: SessionStore
  server: AuthorizationServer
  keyring: Keyring
  breaker: Breaker
  slots: Slots
  unsaved: Unsaved
  timing: RefreshTiming
  /** Time to the whole token answer. */
  timeoutMs: number
  now: () => number
  random: () => number
  log: Logger
  events: TokenEvents
  /** Epoch milliseconds of the last failure of the store that this process saw; 0 for none. */
  storeFailedAt: () => number
  onStoreFailure: () => void
  onGranted: (key: RecordKey, tokens: TokenSet, limits: LiveSession['record']) => void
  onEnded: (key: RecordKey, reason: EndReason) => void
  /** Tokens that nobody will use: revoked where there is an endpoint for it. */
  drop: (tokens: TokenSet) => void
}

export type Refresh = (session: LiveSession, trigger: RefreshTrigger) => Promise<RefreshResult>

/** The lease outlives the token call and the first tries to store its answer. */
const LEASE_MARGIN_MS = 5_000
const FORCED_WINDOW_MS = 60_000
/** A holder whose answer the store did not take tries again within two seconds of its return. */
const STORE_RETURN_GRACE_MS = 5_000
const MAX_BACKOFF_EXPIRED_MS = 3_500
const MAX_BACKOFF_VALID_MS = 60_000

export function leaseMs(timeoutMs: number): number {
  return timeoutMs + LEASE_MARGIN_MS
}

/**
 * One attempt to replace a session's tokens: lease, one token request, store. It belongs to nobody's
 * request and is not cancelled with one: dropping the answer would lose the only live refresh token.
 */
export function createRefresh(options: RefreshOptions): Refresh {
  const { store, server, keyring, breaker, slots, unsaved, timing, now, random, log, events } = options

  return async function refresh(session, trigger) {
    const admission = breaker.admit()
    if (admission.kind === 'wait') {
      return { kind: 'later', retryInMs: admission.retryInMs, why: 'authorization_server' }
    }
    const release = await slots.take()
    try {
      const attempt = randomUUID()
      const begun = await begin(session, trigger, attempt)
      if (begun !== 'go') return begun
      const startedAt = performance.now()
      const outcome = await server.refresh(session.tokens.refreshToken!, admission.timeoutMs)
      events.refreshed(trigger, outcome.kind, (performance.now() - startedAt) / 1_000)
      const answered = outcome.kind === 'granted' || outcome.kind === 'refused'
      const retryAfter = outcome.kind === 'unavailable' ? outcome.retryAfterSeconds : null
      admission.report(answered, retryAfter === null ? null : retryAfter * 1_000)
      return await conclude(session, attempt, outcome)
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error
      options.onStoreFailure()
      return { kind: 'later', retryInMs: 1_000, why: 'store' }
    } finally {
      admission.release()
      release()
    }
  }

  /** Takes the lease, or says why not. */
  async function begin(
    session: LiveSession,
    trigger: RefreshTrigger,
    attempt: string,
  ): Promise<RefreshResult | 'go'> {
    const { key, tokens, gen, record } = session
    // These tokens still wait to be stored; until then there is nothing to compare with.
    if (gen !== record.gen) return { kind: 'later', retryInMs: 1_000, why: 'store' }
    const forced = trigger === 'invalid_token'
    const begun = await store.beginRefresh(key, {
      gen,
      attempt,
      leaseMs: leaseMs(options.timeoutMs),
      forcedWindowMs: forced ? FORCED_WINDOW_MS : 0,
    })
    switch (begun.kind) {
      case 'replaced':
        return { kind: 'changed' }
      case 'gone':
        return { kind: 'ended', reason: null }
      case 'busy':
        return { kind: 'busy', waitMs: begun.waitMs }
      case 'backing_off':
        return { kind: 'later', retryInMs: begun.waitMs, why: 'authorization_server' }
      case 'forced_before':
        return { kind: 'forced_before' }
      case 'granted': {
        if (begun.doubts === 0) return 'go'
        // An access token that the resource server refuses is as good as expired.
        const from = forced ? 0 : presentableFrom(tokens, timing, begun.doubts)
        const holderMayReturn = options.storeFailedAt() + STORE_RETURN_GRACE_MS
        const waitMs = Math.max(from, holderMayReturn) - now()
        if (waitMs <= 0) return 'go'
        await store.settleRefresh(key, attempt, true, waitMs)
        return { kind: 'later', retryInMs: waitMs, why: 'authorization_server' }
      }
    }
  }

  async function conclude(
    session: LiveSession,
    attempt: string,
    outcome: TokenOutcome,
  ): Promise<RefreshResult> {
    const { key, gen } = session
    switch (outcome.kind) {
      case 'granted':
        return await save(session, attempt, keepRefreshToken(outcome.tokens, session.tokens))
      case 'refused': {
        // Compare-and-set: a sibling may have replaced the tokens that were refused.
        const ended = await store.end(key, gen)
        if (ended.kind === 'moved') return { kind: 'changed' }
        log.info(
          { event: 'refresh.refused', error: outcome.error },
          'the refresh token was refused: session ended',
        )
        if (ended.kind === 'ended') options.onEnded(key, 'refused')
        return { kind: 'ended', reason: 'refused' }
      }
      case 'unavailable':
      case 'in_doubt': {
        const inDoubt = outcome.kind === 'in_doubt'
        const retryInMs = backoff(session, outcome)
        log.warn(
          { event: `refresh.${outcome.kind}`, reason: outcome.reason, retryInMs },
          'a refresh did not succeed',
        )
        await store.settleRefresh(key, attempt, !inDoubt, retryInMs)
        return { kind: 'later', retryInMs, why: 'authorization_server' }
      }
    }
  }

  async function save(session: LiveSession, attempt: string, tokens: TokenSet): Promise<RefreshResult> {
    const { key, gen, record } = session
    const sealed = sealTokens(keyring, key, tokens)
    const write = (): Promise<ReplaceTokens> => store.replaceTokens(key, gen, attempt, sealed)
    try {
      const replaced = await write()
      switch (replaced.kind) {
        case 'replaced':
          options.onGranted(key, tokens, record)
          return { kind: 'granted', tokens, gen: replaced.gen }
        case 'moved':
          log.warn(
            { event: 'refresh.overtaken' },
            'newer tokens were stored while this refresh was under way',
          )
          return { kind: 'changed' }
        case 'gone':
          options.drop(tokens)
          return { kind: 'ended', reason: null }
      }
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error
      options.onStoreFailure()
      unsaved.hold(key, { tokens, gen: gen + 1, record }, write)
      return { kind: 'granted', tokens, gen: gen + 1 }
    }
  }

  /** How long this session waits; an expired one not long, since only its next try shows that all is well. */
  function backoff({ tokens, record }: LiveSession, outcome: TokenOutcome): number {
    const leftMs = tokens.expiresAt - now()
    const doubts = outcome.kind === 'in_doubt' ? record.doubts + 1 : 0
    const asked = outcome.kind === 'unavailable' ? (outcome.retryAfterSeconds ?? 0) * 1_000 : 0
    const patience =
      leftMs > 0
        ? Math.min(MAX_BACKOFF_VALID_MS, Math.max(1_000, leftMs / 4))
        : MAX_BACKOFF_EXPIRED_MS / 2 ** random()
    const presentable = presentableFrom(tokens, timing, doubts) - now()
    return Math.max(asked, presentable, patience * (0.75 + random() / 4))
  }
}

/** A refresh answer without a refresh token leaves the old one in force (RFC 6749 section 6). */
function keepRefreshToken(granted: GrantedTokens, before: TokenSet): TokenSet {
  return { ...granted, refreshToken: granted.refreshToken ?? before.refreshToken }
}
