import type { Clock } from '../clock.ts'
import type { Logger } from '../log.ts'
import { createFailoverRepair } from './failover-repair.ts'
import {
  type EndRequest,
  type EndResult,
  type RecordKey,
  type ReleaseLeaseRequest,
  type ReplaceTokensRequest,
  type ReplaceTokensResult,
  type SessionState,
  type SessionStore,
  StoreUnavailable,
} from './store.ts'

/** A write that Redis did not take and that is tried again. `result`: how that ends, `expired` if it was given up. */
export interface Pending<Result> {
  kind: 'pending'
  result: Promise<Result | { kind: 'expired' }>
}

/** Kinds of writes that are tried again. */
export type RetriedWrite = 'tokens' | 'lease' | 'end'

interface TokensToStore extends ReplaceTokensRequest {
  /** Epoch milliseconds: pending tokens are given up at this instant, the absolute limit of the session. */
  endsAt: number
}

/**
 * A store that keeps its writes while the process lives, within the limits below. It keeps in memory what Redis did not
 * take and tries again, writes again what a failover has lost, and returns from every read the newest state that this
 * process knows.
 */
export interface ReliableStore extends Omit<SessionStore, 'replaceTokens' | 'restoreTokens'> {
  /** As `SessionStore.replaceTokens`; `pending` instead of a rejection. `read` shows pending tokens. */
  replaceTokens(
    key: RecordKey,
    write: TokensToStore,
  ): Promise<ReplaceTokensResult | Pending<ReplaceTokensResult>>
  /**
   * As `SessionStore.end`. A second call after one without a reply still returns `ended` with the tokens, even if the
   * first one has run.
   */
  end(key: RecordKey, request?: EndRequest): Promise<EndResult>
  /** As `end`, but tried again for `forMs` milliseconds if Redis does not take it; `pending` instead of a rejection. */
  endUntilTaken(key: RecordKey, request: EndRequest, forMs: number): Promise<EndResult | Pending<EndResult>>
  /** How many sessions have pending tokens. */
  pendingTokens(): number
  /** Resolves when no tokens are pending any more. From now on no other write is tried again. */
  drainPendingTokens(): Promise<void>
  /** The last writes of a process that stops: repair of lost writes, within two seconds. */
  finish(): Promise<void>
}

interface ReliableStoreOptions {
  store: SessionStore
  clock: Clock
  log: Logger
  /** A write was tried again. */
  onRetried: (write: RetriedWrite) => void
  /** A write that Redis had lost was restored. */
  onRestored: (write: 'tokens' | 'end') => void
  /** This process has recorded activity of a session: earlier reads show an older state. */
  onTouched: (key: RecordKey) => void
  /** This process has ended a session or replaced its tokens, or may have: the reply can be lost. */
  onChanged: (key: RecordKey) => void
}

/** `gen`: of these tokens. */
interface PendingTokens {
  gen: number
  tokens: string
}

const FIRST_RETRY_MS = 100
/** With the command timeout, less than two seconds lie between two tries. */
const LAST_RETRY_MS = 1_000
/** A lease that could not be released by then has long expired; its doubt stays in the record. */
const LEASE_RELEASED_WITHIN_MS = 600_000
/** A few megabytes. Beyond that the oldest are forgotten, and a repeated sign-out may leave its tokens unrevoked. */
const MAX_ENDS_WITHOUT_REPLY = 1_000
/** A user who signs out again does so within minutes. */
const END_WITHOUT_REPLY_KEPT_MS = 600_000

export function createReliableStore(options: ReliableStoreOptions): ReliableStore {
  const { clock, log, onRetried, onRestored, onChanged } = options
  const store = reportWrites(options)
  /** Tokens that Redis has not taken yet, with their generation. */
  const pending = new Map<RecordKey, PendingTokens>()
  const saving = new Set<Promise<unknown>>()
  /** Releases and ends that are being tried again, by write and key. */
  const retrying = new Set<string>()
  /** Sealed tokens of sessions whose end had no reply; `at` is monotonic. */
  const endsWithoutReply = new Map<RecordKey, { tokens: string; at: number }>()
  let givesUp = false

  const repair = createFailoverRepair({ store, monotonic: clock.monotonic, log, onRestored })

  async function retry<Result>(
    write: RetriedWrite,
    forMs: number,
    run: () => Promise<Result>,
  ): Promise<Result | { kind: 'expired' }> {
    const until = clock.monotonic() + forMs
    for (let pauseMs = FIRST_RETRY_MS; ; pauseMs = Math.min(pauseMs * 2, LAST_RETRY_MS)) {
      await new Promise((resolve) => setTimeout(resolve, pauseMs))
      if (clock.monotonic() >= until || (givesUp && write !== 'tokens')) return { kind: 'expired' }
      onRetried(write)
      try {
        return await run()
      } catch (error) {
        if (!(error instanceof StoreUnavailable)) throw error
      }
    }
  }

  /** As `retry`, but at most one of this kind for a record at a time: a second one is dropped. */
  async function retryUnlessRetrying<Result>(
    write: RetriedWrite,
    key: RecordKey,
    { forMs, run }: { forMs: number; run: () => Promise<Result> },
  ): Promise<Result | { kind: 'expired' }> {
    const name = `${write} ${key}`
    if (retrying.has(name) || givesUp) return { kind: 'expired' }
    retrying.add(name)
    try {
      return await retry(write, forMs, run)
    } catch (error) {
      log.error({ event: 'store.step_failed', err: error }, 'a write to a session record failed')
      return { kind: 'expired' }
    } finally {
      retrying.delete(name)
    }
  }

  function releaseLater(key: RecordKey, release: ReleaseLeaseRequest): void {
    const run = (): Promise<void> => store.releaseLease(key, release)
    void retryUnlessRetrying('lease', key, { forMs: LEASE_RELEASED_WITHIN_MS, run })
  }

  async function savePendingTokens(
    key: RecordKey,
    { gen, tokens, endsAt }: TokensToStore,
    write: () => Promise<ReplaceTokensResult>,
  ): Promise<ReplaceTokensResult | { kind: 'expired' }> {
    const entry = { gen: gen + 1, tokens }
    pending.set(key, entry)
    log.warn(
      { event: 'refresh.unsaved', waiting: pending.size },
      'Redis did not take refreshed tokens: trying again',
    )
    try {
      const result = await retry('tokens', endsAt - clock.wall(), write)
      log.info({ event: 'refresh.saved_late', result: result.kind }, 'refreshed tokens are no longer pending')
      return result
    } catch (error) {
      log.error({ event: 'refresh.unsaved_failed', err: error }, 'refreshed tokens could not be stored')
      throw error
    } finally {
      // Newer tokens may be pending by now.
      if (pending.get(key) === entry) pending.delete(key)
    }
  }

  async function endAndNote(key: RecordKey, request: EndRequest): Promise<EndResult> {
    const ended = await store.end(key, request)
    if (ended.kind === 'ended') noteEnd(key, () => store.end(key, request))
    return ended
  }

  function noteEnd(key: RecordKey, again: () => Promise<EndResult>): void {
    repair.note(key, { kind: 'end', again })
  }

  function noteEndWithoutReply(key: RecordKey, tokens: string): void {
    const now = clock.monotonic()
    endsWithoutReply.delete(key)
    for (const [oldest, { at }] of endsWithoutReply) {
      if (endsWithoutReply.size < MAX_ENDS_WITHOUT_REPLY && now - at < END_WITHOUT_REPLY_KEPT_MS) break
      endsWithoutReply.delete(oldest)
    }
    endsWithoutReply.set(key, { tokens, at: now })
  }

  /** Read before the record is deleted, since the reply to that may be lost. */
  async function readTokens(key: RecordKey): Promise<string | null> {
    try {
      return (await store.read(key))?.tokens ?? null
    } catch (error) {
      // Nothing has ended, but this process no longer serves the session from memory.
      onChanged(key)
      throw error
    }
  }

  /** The newest state that this process knows; `read` reads what Redis has. */
  async function readNewest<State extends SessionState>(
    key: RecordKey,
    read: (key: RecordKey) => Promise<State | null>,
    overlay: (pending: PendingTokens) => Partial<State>,
  ): Promise<State | null> {
    // A server that has lost the end of a session still shows it.
    if (repair.get(key)?.kind === 'end') return null
    const newest = pending.get(key)
    let state = await read(key)
    const written = repair.get(key)
    if (state !== null && written?.kind === 'tokens' && written.gen > state.gen) {
      await repair.restore(key)
      state = await read(key)
    }
    if (state === null || newest === undefined || newest.gen <= state.gen) return state
    return { ...state, ...overlay(newest) }
  }

  return {
    ...store,
    read: (key) => readNewest(key, store.read, (newest) => ({ ...newest, replacedAt: 0 })),
    readState: (key) => readNewest(key, store.readState, ({ gen }) => ({ gen })),

    async beginRefresh(key, request) {
      // Redis does not know the generation of pending tokens yet.
      if (pending.has(key)) throw new StoreUnavailable(new Error('refreshed tokens wait to be stored'))
      try {
        return await store.beginRefresh(key, request)
      } catch (error) {
        // It may have run, and would leave a lease that nobody uses and a doubt without a presentation.
        if (error instanceof StoreUnavailable)
          releaseLater(key, { attempt: request.attempt, inDoubt: null, retryInMs: 0 })
        throw error
      }
    },

    async releaseLease(key, release) {
      try {
        await store.releaseLease(key, release)
      } catch (error) {
        if (!(error instanceof StoreUnavailable)) throw error
        releaseLater(key, release)
      }
    },

    async replaceTokens(key, write) {
      const run = async (): Promise<ReplaceTokensResult> => {
        const replaced = await store.replaceTokens(key, {
          gen: write.gen,
          attempt: write.attempt,
          tokens: write.tokens,
        })
        if (replaced.kind === 'replaced')
          repair.note(key, { kind: 'tokens', gen: replaced.gen, tokens: write.tokens })
        return replaced
      }
      try {
        return await run()
      } catch (error) {
        if (!(error instanceof StoreUnavailable)) throw error
        const result = savePendingTokens(key, write, run)
        saving.add(result)
        const done = (): void => void saving.delete(result)
        result.then(done, done)
        return { kind: 'pending', result }
      }
    },

    async end(key, request = {}) {
      const tokens = endsWithoutReply.get(key)?.tokens ?? (await readTokens(key))
      try {
        const ended = await endAndNote(key, request)
        const tokensBefore = endsWithoutReply.get(key)?.tokens
        endsWithoutReply.delete(key)
        if (ended.kind !== 'gone' || tokensBefore === undefined) return ended
        // An earlier call deleted it and its reply was lost: the caller must still revoke the tokens and count the end.
        noteEnd(key, () => store.end(key, request))
        return { kind: 'ended', tokens: tokensBefore }
      } catch (error) {
        if (tokens !== null) noteEndWithoutReply(key, tokens)
        throw error
      }
    },

    async endUntilTaken(key, request, forMs) {
      const run = (): Promise<EndResult> => endAndNote(key, request)
      try {
        return await run()
      } catch (error) {
        if (!(error instanceof StoreUnavailable)) throw error
        return { kind: 'pending', result: retryUnlessRetrying('end', key, { forMs, run }) }
      }
    },

    async endPassed(key, gen, reason) {
      // The store has the generation before the pending one, which `read` has shown.
      const storedGen = pending.get(key)?.gen === gen ? gen - 1 : gen
      const ended = await store.endPassed(key, storedGen, reason)
      if (ended.kind === 'ended') noteEnd(key, () => store.endPassed(key, storedGen, reason))
      return ended
    },

    pendingTokens: () => pending.size,
    async drainPendingTokens() {
      givesUp = true
      while (saving.size > 0) await Promise.allSettled(saving)
    },
    finish: repair.stop,
  }
}

/**
 * The store with its writes reported, those of a repair too. A touch that failed is not: what was read before is as
 * new. Any other write may have run although it failed.
 */
function reportWrites({ store, onTouched, onChanged }: ReliableStoreOptions): SessionStore {
  const reported =
    <Args extends unknown[], Result extends { kind: string }>(
      write: (key: RecordKey, ...args: Args) => Promise<Result>,
    ) =>
    async (key: RecordKey, ...args: Args): Promise<Result> => {
      try {
        const result = await write(key, ...args)
        // A look that finds a limit passed by a wrong clock would otherwise overtake itself, for ever.
        if (result.kind !== 'precondition_failed') onChanged(key)
        return result
      } catch (error) {
        onChanged(key)
        throw error
      }
    }
  return {
    ...store,
    async touch(key) {
      const exists = await store.touch(key)
      onTouched(key)
      return exists
    },
    end: reported(store.end),
    endPassed: reported(store.endPassed),
    replaceTokens: reported(store.replaceTokens),
    restoreTokens: reported(store.restoreTokens),
  }
}
