import type { Clock } from '../clock.ts'
import type { Logger } from '../log.ts'
import type { TokenSet } from '../session/sealed-tokens.ts'
import type { RecordKey, ReplaceTokens, SessionRecord } from '../store/store.ts'
import { StoreUnavailable } from '../store/store.ts'

export interface Waiting {
  tokens: TokenSet
  gen: number
  /** As read before the refresh; its limits still hold. */
  record: SessionRecord
}

export interface Unsaved {
  /**
   * Keeps tokens that the store did not take and tries again, at least every two seconds, until it
   * takes them, the session is gone or its absolute limit has passed.
   */
  hold(key: RecordKey, waiting: Waiting, save: () => Promise<ReplaceTokens>): void
  get(key: RecordKey): Waiting | null
  size(): number
  /** Resolves when nothing waits any more. */
  settled(): Promise<void>
}

const FIRST_RETRY_MS = 100
/** With the time that a command may take, less than two seconds lie between two tries. */
const MAX_RETRY_MS = 1_000

export interface UnsavedOptions {
  clock: Clock
  log: Logger
  onRetry: () => void
  /** How it ended for tokens that were held. */
  onSettled: (key: RecordKey, waiting: Waiting, result: ReplaceTokens['kind'] | 'expired') => void
}

export function createUnsaved({ clock, log, onRetry, onSettled }: UnsavedOptions): Unsaved {
  const held = new Map<RecordKey, Waiting>()
  const running = new Set<Promise<void>>()

  async function retry(key: RecordKey, waiting: Waiting, save: () => Promise<ReplaceTokens>): Promise<void> {
    const endsAt = clock.monotonic() + waiting.record.endsAt - clock.wall()
    let pause = FIRST_RETRY_MS
    let result: ReplaceTokens['kind'] | 'expired' | null = null
    while (result === null) {
      await new Promise((resolve) => setTimeout(resolve, pause))
      pause = Math.min(pause * 2, MAX_RETRY_MS)
      if (clock.monotonic() >= endsAt) result = 'expired'
      else {
        onRetry()
        try {
          result = (await save()).kind
        } catch (error) {
          if (!(error instanceof StoreUnavailable)) throw error
        }
      }
    }
    release(key, waiting)
    log.info({ event: 'refresh.saved_late', result }, 'tokens that the store had not taken are settled')
    onSettled(key, waiting, result)
  }

  /** Newer tokens may be held meanwhile. */
  function release(key: RecordKey, waiting: Waiting): void {
    if (held.get(key) === waiting) held.delete(key)
  }

  return {
    hold(key, waiting, save) {
      held.set(key, waiting)
      log.warn({ event: 'refresh.unsaved', waiting: held.size }, 'the store did not take refreshed tokens')
      const run = retry(key, waiting, save).catch((error: unknown) => {
        release(key, waiting)
        log.error({ event: 'refresh.unsaved_failed', err: error }, 'refreshed tokens could not be stored')
      })
      running.add(run)
      void run.then(() => running.delete(run))
    },
    get: (key) => held.get(key) ?? null,
    size: () => held.size,
    async settled() {
      await Promise.all(running)
    },
  }
}
