import type { GrantedTokens, TokenOutcome } from '../oauth/token-response.ts'
import type { LiveSession } from '../session/find.ts'
import type { TokenSet } from '../session/sealed-tokens.ts'
import { sealTokens } from '../session/sealed-tokens.ts'
import type { InDoubt, RecordKey, ReplaceTokens } from '../store/store.ts'
import { inLog, StoreUnavailable } from '../store/store.ts'
import { backoffMs } from './backoff.ts'
import { leaseMs } from './refresh-policy.ts'
import type { RefreshOptions, RefreshResult } from './refresh-terms.ts'

const TOLD = {
  unavailable: { event: 'refresh.unavailable' },
  in_doubt: { event: 'refresh.in_doubt' },
}

/** A lease that could not be given back by then has long run out; what stays is a doubt too many. */
const SETTLED_WITHIN_MS = 600_000

/** One presentation of a refresh token. */
export interface Attempt {
  /** Names it in the record. */
  id: string
  /** Presentations of this refresh token before this one that had no readable answer. */
  doubts: number
  /** When the access token expires, by the monotonic clock. */
  expiresAt: number
  /** Until then an earlier presentation may be answered that was never settled; by the monotonic clock. */
  earlierOpenUntil: number
}

export interface Conclude {
  /**
   * Brings the record to what a token request came to. Rejects with `StoreUnavailable`; what must not be
   * forgotten is then repeated in the background.
   */
  conclude(session: LiveSession, attempt: Attempt, outcome: TokenOutcome): Promise<RefreshResult>
  /** Gives the lease back; as `SessionStore.settleRefresh`, repeated where the store does not take it. */
  settle(key: RecordKey, attempt: string, inDoubt: InDoubt | null, retryInMs: number): Promise<void>
}

export function createConclude(options: RefreshOptions): Conclude {
  const { store, keyring, unsaved, insist, timing, timeoutMs, clock, random, log } = options

  async function conclude(
    session: LiveSession,
    attempt: Attempt,
    outcome: TokenOutcome,
  ): Promise<RefreshResult> {
    const { key, tokens } = session
    const { id, doubts } = attempt
    switch (outcome.kind) {
      case 'granted':
        return await save(session, id, keepRefreshToken(outcome.tokens, tokens))
      case 'refused': {
        const openMs = attempt.earlierOpenUntil - clock.monotonic()
        if (openMs <= 0) return await end(session, attempt, outcome.reason)
        // The earlier presentation may be the one that used the refresh token up, and its answer hold the new one.
        log.warn(
          { event: 'refresh.refusal_waits', retryInMs: openMs, recordKey: inLog(key) },
          'a refresh was refused while an earlier one may still be granted',
        )
        await settle(key, id, { gen: session.gen, doubts: doubts + 1 }, openMs)
        return { kind: 'later', retryInMs: openMs, why: 'authorization_server' }
      }
      case 'unavailable':
      case 'in_doubt': {
        // Once while the access token lives, whatever came of it: so a presentation in doubt stays one.
        const doubtless = outcome.kind === 'unavailable' && doubts === 0
        const after = doubts + (doubtless ? 0 : 1)
        const leftMs = attempt.expiresAt - clock.monotonic()
        const retryInMs = backoffMs({ tokens, leftMs, outcome, doubts: after, timing, random: random() })
        log.warn({ ...TOLD[outcome.kind], reason: outcome.reason, retryInMs }, 'a refresh did not succeed')
        await settle(key, id, doubtless ? null : { gen: session.gen, doubts: after }, retryInMs)
        return { kind: 'later', retryInMs, why: 'authorization_server' }
      }
    }
  }

  async function settle(
    key: RecordKey,
    attempt: string,
    inDoubt: InDoubt | null,
    retryInMs: number,
  ): Promise<void> {
    try {
      await store.settleRefresh(key, attempt, inDoubt, retryInMs)
    } catch (error) {
      if (error instanceof StoreUnavailable) {
        insist('lease', key, SETTLED_WITHIN_MS, () => store.settleRefresh(key, attempt, inDoubt, retryInMs))
      }
      throw error
    }
  }

  async function end(session: LiveSession, attempt: Attempt, error: string): Promise<RefreshResult> {
    const { key, gen, record } = session
    const lease = { gen, attempt: attempt.id, doubts: attempt.doubts + 1, leaseMs: leaseMs(timeoutMs) }
    const step = async (): Promise<RefreshResult> => {
      // Another attempt that has taken the lease meanwhile may be granted what was refused here.
      const renewed = await store.renewLease(key, lease)
      if (renewed === 'taken') return { kind: 'changed' }
      if (renewed === 'gone') return { kind: 'ended', reason: null }
      const ended = await store.end(key, gen, 'refused')
      if (ended.kind === 'moved') return { kind: 'changed' }
      log.info(
        { event: 'refresh.refused', error, recordKey: inLog(key) },
        'the refresh token was refused: the session ends',
      )
      if (ended.kind === 'ended') options.onEnded(key, 'refused')
      return { kind: 'ended', reason: 'refused' }
    }
    try {
      return await step()
    } catch (failure) {
      if (failure instanceof StoreUnavailable) insist('end', key, record.endsAt - clock.wall(), step)
      throw failure
    }
  }

  async function save(session: LiveSession, attempt: string, tokens: TokenSet): Promise<RefreshResult> {
    const { key, gen, record } = session
    const sealed = sealTokens(keyring, key, tokens, clock.wall())
    const write = async (): Promise<ReplaceTokens> => {
      const replaced = await store.replaceTokens(key, gen, attempt, sealed)
      if (replaced.kind === 'replaced') options.onStored(key, replaced.gen, sealed)
      return replaced
    }
    try {
      const replaced = await write()
      switch (replaced.kind) {
        case 'replaced':
          options.onGranted(key, tokens, record)
          return { kind: 'granted', tokens, gen: replaced.gen }
        case 'moved':
          log.warn(
            { event: 'refresh.overtaken', recordKey: inLog(key) },
            'newer tokens were stored while this refresh was under way',
          )
          return { kind: 'changed' }
        case 'gone':
          options.drop(tokens)
          return { kind: 'ended', reason: null }
      }
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error
      unsaved.hold(key, { tokens, gen: gen + 1, record }, write)
      // Whoever needs them looks again: only a record that can be read shows that the session still lives.
      return { kind: 'changed' }
    }
  }

  return { conclude, settle }
}

/** A refresh answer without a refresh token leaves the old one in force (RFC 6749 section 6). */
function keepRefreshToken(granted: GrantedTokens, before: TokenSet): TokenSet {
  return { ...granted, refreshToken: granted.refreshToken ?? before.refreshToken }
}
