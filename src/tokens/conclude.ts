import type { GrantedTokens, TokenOutcome } from '../oauth/outcome.ts'
import type { InDoubt, RecordKey, ReplaceTokens } from '../store/port.ts'
import { inLog, StoreUnavailable } from '../store/port.ts'
import { backoffMs } from './backoff.ts'
import type { LiveSession } from './live.ts'
import type { RefreshOptions, RefreshResult } from './refresh-terms.ts'
import type { TokenSet } from './token-set.ts'
import { sealTokens } from './token-set.ts'

const TOLD = {
  unavailable: { event: 'refresh.unavailable' },
  in_doubt: { event: 'refresh.in_doubt' },
}

/** A lease that could not be given back by then has long run out; what stays is a doubt too many. */
const SETTLED_WITHIN_MS = 600_000

export interface Conclude {
  /**
   * Brings the record to what a token request came to. `doubts`: presentations of this refresh token
   * before that one which had no readable answer. Rejects with `StoreUnavailable`; what must not be
   * forgotten is then repeated in the background.
   */
  conclude(
    session: LiveSession,
    attempt: string,
    outcome: TokenOutcome,
    doubts: number,
  ): Promise<RefreshResult>
  /** Gives the lease back; as `SessionStore.settleRefresh`, repeated where the store does not take it. */
  settle(key: RecordKey, attempt: string, inDoubt: InDoubt | null, retryInMs: number): Promise<void>
}

export function createConclude(options: RefreshOptions): Conclude {
  const { store, keyring, unsaved, insist, timing, now, random, log } = options

  async function conclude(
    session: LiveSession,
    attempt: string,
    outcome: TokenOutcome,
    doubts: number,
  ): Promise<RefreshResult> {
    const { key, tokens } = session
    switch (outcome.kind) {
      case 'granted':
        return await save(session, attempt, keepRefreshToken(outcome.tokens, tokens))
      case 'refused':
        return await end(session, outcome.error)
      case 'unavailable':
      case 'in_doubt': {
        // Once while the access token lives, whatever came of it: so a presentation in doubt stays one.
        const doubtless = outcome.kind === 'unavailable' && doubts === 0
        const after = doubts + (doubtless ? 0 : 1)
        const retryInMs = backoffMs({ tokens, outcome, doubts: after, timing, now: now(), random: random() })
        log.warn({ ...TOLD[outcome.kind], reason: outcome.reason, retryInMs }, 'a refresh did not succeed')
        await settle(key, attempt, doubtless ? null : { gen: session.gen, doubts: after }, retryInMs)
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
        insist('lease', key, now() + SETTLED_WITHIN_MS, () =>
          store.settleRefresh(key, attempt, inDoubt, retryInMs),
        )
      }
      throw error
    }
  }

  async function end({ key, gen, record }: LiveSession, error: string): Promise<RefreshResult> {
    // Compare-and-set: a sibling may have replaced the tokens that were refused.
    const step = async (): Promise<RefreshResult> => {
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
      if (failure instanceof StoreUnavailable) insist('end', key, record.endsAt, step)
      throw failure
    }
  }

  async function save(session: LiveSession, attempt: string, tokens: TokenSet): Promise<RefreshResult> {
    const { key, gen, record } = session
    const sealed = sealTokens(keyring, key, tokens, now())
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
      return { kind: 'granted', tokens, gen: gen + 1 }
    }
  }

  return { conclude, settle }
}

/** A refresh answer without a refresh token leaves the old one in force (RFC 6749 section 6). */
function keepRefreshToken(granted: GrantedTokens, before: TokenSet): TokenSet {
  return { ...granted, refreshToken: granted.refreshToken ?? before.refreshToken }
}
