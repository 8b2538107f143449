import type { Keyring } from '../keyring.ts'
import type { Logger } from '../log.ts'
import type { OpenedTokens } from '../session/sealed-tokens.ts'
import { sealTokens } from '../session/sealed-tokens.ts'
import type { RecordKey, SessionStore } from '../store/store.ts'
import { StoreUnavailable } from '../store/store.ts'

export interface Resealer {
  /**
   * Seals tokens that were read under an older secret again under the newest, in the background. What
   * was sealed since this process began is left as it is: see docs/decisions/0004-resealing.md.
   */
  look(key: RecordKey, sealed: string, opened: OpenedTokens): void
  /** Resolves when none is under way. */
  settled(): Promise<void>
}

export interface ResealerOptions {
  store: Pick<SessionStore, 'reseal'>
  keyring: Keyring
  now: () => number
  log: Logger
}

/** What does not fit in is done when it is read next. */
const AT_ONCE = 16

export function createResealer({ store, keyring, now, log }: ResealerOptions): Resealer {
  const beganAt = now()
  const working = new Map<RecordKey, Promise<void>>()

  async function reseal(key: RecordKey, sealed: string, { tokens }: OpenedTokens): Promise<void> {
    try {
      // Never before the beginning, should the clock be set back: the rule rests on it.
      await store.reseal(key, sealed, sealTokens(keyring, key, tokens, Math.max(beganAt, now())))
    } catch (error) {
      if (error instanceof StoreUnavailable) return
      log.error({ event: 'session.reseal_failed', err: error }, 'tokens could not be sealed again')
    } finally {
      working.delete(key)
    }
  }

  return {
    look(key, sealed, opened) {
      if (!opened.stale || opened.sealedAt >= beganAt) return
      if (working.has(key) || working.size >= AT_ONCE) return
      working.set(key, reseal(key, sealed, opened))
    },
    async settled() {
      await Promise.all(working.values())
    },
  }
}
