import type { Clock } from '../../clock.ts'
import type { Logger } from '../../log.ts'
import {
  confirmedEnd,
  displaced,
  type Entries,
  type Entry,
  forget,
  forgetOld,
  isPending,
  keep,
  markLost,
  moveToEnd,
  needsWrite,
  newEntry,
  nextBatch,
  pendingTokens,
  put,
  tokensOf,
  type WriteKind,
  type Written,
} from './outbox-entries.ts'
import type {
  EndRequest,
  EndResult,
  RecordKey,
  ReleaseLeaseRequest,
  ReplaceTokensRequest,
  ReplaceTokensResult,
  SessionState,
} from './record.ts'
import { inLog, type SessionStore, StoreUnavailable } from './store.ts'

/** A write that Redis did not take and that is tried again. `result`: how that ends, `expired` if it was given up. */
export interface Pending<Result> {
  kind: 'pending'
  result: Promise<Result | { kind: 'expired' }>
}

interface TokensToStore extends ReplaceTokensRequest {
  /** Epoch milliseconds: pending tokens are given up at this instant, the absolute limit of the session. */
  endsAt: number
}

/** A store that keeps its writes while the process lives, and shows to each read the newest state that it knows. */
export interface OutboxStore extends Omit<SessionStore, 'replaceTokens'> {
  /** As `SessionStore.replaceTokens`; `pending` instead of a rejection. `read` shows pending tokens. */
  replaceTokens(
    key: RecordKey,
    write: TokensToStore,
  ): Promise<ReplaceTokensResult | Pending<ReplaceTokensResult>>
  /** As `end`, but tried again for `forMs` milliseconds if Redis does not take it; `pending` instead of a rejection. */
  endUntilTaken(key: RecordKey, request: EndRequest, forMs: number): Promise<EndResult | Pending<EndResult>>
  /** How many sessions have pending tokens. */
  pendingTokens(): number
  /** Resolves when no tokens are pending any more. From now on pending releases and ends are given up. */
  drainPendingTokens(): Promise<void>
  /** Waits until what a failover lost is written again, at most two seconds. Afterwards nothing is tried again. */
  finish(): Promise<void>
}

interface OutboxOptions {
  store: SessionStore
  clock: Clock
  log: Logger
  /** A write was tried again. */
  onRetried: (kind: WriteKind) => void
  /** A write that Redis had lost was restored. */
  onRestored: (kind: 'tokens' | 'end') => void
}

const FIRST_PAUSE_MS = 100
/** Well below the pause of refreshes that follows a change of the master. */
const LAST_PAUSE_MS = 500
/** Incidents within this time count as one: each costs the store one command for each entry. */
const ONE_INCIDENT_MS = 1_000
/** A lease that could not be released by then has long expired; its doubt stays in the record. */
const LEASE_RELEASED_WITHIN_MS = 600_000
/** A store that only refuses writes refuses each request's refresh: it holds none of these leases, and they would fill our memory. */
const MOST_UNUSED_LEASES = 1_000
const FINISH_MS = 2_000

/**
 * Keeps the writes of this process in memory, until the store has them and for a minute more: a promoted Redis replica
 * may lack them. Writes again what the store has not confirmed or may have lost, and overlays it on what is read.
 */
export function createOutbox(options: OutboxOptions): OutboxStore {
  const { store, clock } = options
  const { monotonic } = clock
  const entries: Entries = { byName: new Map(), incidents: 0, forgotAt: 0 }
  const { tryOnce, flush } = createSender(entries, options, () => retries.noteIncident())
  const retries = createRetries(entries, flush, options)
  let unusedLeases = 0

  /** The newest state that this process knows; `read` reads what Redis has. */
  async function readNewest<State extends SessionState>(
    key: RecordKey,
    read: (key: RecordKey) => Promise<State | null>,
    overlay: (newest: { gen: number; tokens: string }) => Partial<State>,
  ): Promise<State | null> {
    // A server that has lost the end of a session still shows it.
    if (confirmedEnd(entries, key) !== null) return null
    const before = tokensOf(entries, key)
    const state = await read(key)
    // Although it was forgotten during the read, the read may show an older state.
    const entry = tokensOf(entries, key) ?? before
    if (state === null || !entry?.tokens || entry.tokens.gen <= state.gen) return state
    if (!needsWrite(entries, entry)) {
      // The store has lost them, and this process has seen no incident.
      markLost(entry)
      retries.wake(0)
    }
    return { ...state, ...overlay(entry.tokens) }
  }

  /** Sends a write. If the store is unavailable it becomes pending. */
  async function submit<Result extends Written>(entry: Entry): Promise<Result | Pending<Result>> {
    try {
      return await tryOnce<Result>(entry)
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error
      return { kind: 'pending', result: retries.tryLater(entry) as Pending<Result>['result'] }
    }
  }

  function releaseEntry(key: RecordKey, release: ReleaseLeaseRequest): Entry {
    return newEntry({
      name: `lease ${key} ${release.attempt}`,
      kind: 'lease',
      key,
      until: monotonic() + LEASE_RELEASED_WITHIN_MS,
      async write() {
        await store.releaseLease(key, release)
        return { kind: 'released' }
      },
    })
  }

  /** The refresh may have begun, and would leave a lease that nobody uses and a doubt without a presentation. */
  function releaseUnused(key: RecordKey, attempt: string): void {
    if (unusedLeases >= MOST_UNUSED_LEASES) return
    unusedLeases += 1
    const release = { attempt, inDoubt: null, retryInMs: 0 }
    void retries.tryLater(releaseEntry(key, release)).then(() => {
      unusedLeases -= 1
    })
  }

  function endEntry(key: RecordKey, request: EndRequest, until: number): Entry {
    const { gen, attempt, ifLimitPassed = false } = request
    const isUnconditional = gen === undefined && attempt === undefined && !ifLimitPassed
    return newEntry({ kind: 'end', key, until, isUnconditional, write: () => store.end(key, request) })
  }

  return {
    ...store,
    read: (key) => readNewest(key, store.read, (newest) => ({ ...newest, replacedAt: 0 })),
    readState: (key) => readNewest(key, store.readState, ({ gen }) => ({ gen })),

    async beginRefresh(key, request) {
      const entry = tokensOf(entries, key)
      if (entry !== undefined && needsWrite(entries, entry)) await flush(entry)
      try {
        return await store.beginRefresh(key, request)
      } catch (error) {
        if (error instanceof StoreUnavailable) releaseUnused(key, request.attempt)
        throw error
      }
    },

    async releaseLease(key, release) {
      await submit(releaseEntry(key, release))
    },

    replaceTokens(key, { gen, tokens, endsAt }) {
      return submit<ReplaceTokensResult>(
        newEntry({
          kind: 'tokens',
          key,
          until: monotonic() + endsAt - clock.wall(),
          tokens: { gen: gen + 1, tokens },
          write: () => store.replaceTokens(key, { gen, tokens }),
        }),
      )
    },

    end: (key, request = {}) => tryOnce(endEntry(key, request, Number.POSITIVE_INFINITY)),
    endUntilTaken: (key, request, forMs) => submit<EndResult>(endEntry(key, request, monotonic() + forMs)),
    pendingTokens: () => pendingTokens(entries).length,
    drainPendingTokens: retries.drainPendingTokens,
    finish: retries.finish,
  }
}

/** Sends the writes of an outbox, and draws from each reply of the store what follows for their entries. */
function createSender(
  entries: Entries,
  { store, clock: { monotonic }, log, onRetried, onRestored }: OutboxOptions,
  noteIncident: () => void,
) {
  /** Rejects with `StoreUnavailable`. */
  async function tryOnce<Result extends Written>(entry: Entry): Promise<Result> {
    const sentAfter = entries.incidents
    const result = await entry.write()
    noteReply(entry, result, sentAfter)
    return result as Result
  }

  function noteReply(entry: Entry, result: Written, sentAfter: number): void {
    const isRepair = !isPending(entry)
    // An end that finds nothing may have run before, without a reply. One without a condition holds in any case.
    const mayHaveRun = isRepair || entry.settle !== null || entry.isUnconditional
    const isConfirmed =
      result.kind === 'replaced' ||
      result.kind === 'ended' ||
      (mayHaveRun && entry.kind === 'end' && result.kind === 'gone')
    if (!isConfirmed) forget(entries, entry)
    else {
      entry.confirmedAfter = sentAfter
      if (!isRepair) keep(entries, entry, monotonic())
    }
    if (isRepair && (result.kind === 'ended' || (result.kind === 'replaced' && result.written)))
      noteLost(entry)
    // The session goes on. This process serves it again, and may have taken it out of the due queue.
    if (isRepair && result.kind === 'precondition_failed') requeue(entry.key)
    if (entry.settle !== null && entry.kind === 'tokens')
      log.info({ event: 'refresh.saved_late', result: result.kind }, 'refreshed tokens are no longer pending')
    entry.settle?.resolve(result)
    entry.settle = null
  }

  function noteLost({ kind, key }: Entry): void {
    log.warn(
      { event: 'store.lost_write', what: kind, recordKey: inLog(key) },
      'Redis had lost a write, which was restored: check replication and failover',
    )
    onRestored(kind as 'tokens' | 'end')
    // Its place in the due queue may be lost as well.
    if (kind === 'tokens') requeue(key)
    // Where one write is missing, others are likely to be missing too.
    noteIncident()
  }

  function requeue(key: RecordKey): void {
    store.schedule(key, 0).catch((error: unknown) => {
      if (!(error instanceof StoreUnavailable))
        log.error({ event: 'schedule.failed', err: error }, 'a session could not be put into the due queue')
    })
  }

  /** Sends an entry again; callers at the same time share one call. Rejects with `StoreUnavailable`. */
  function flush(entry: Entry): Promise<void> {
    entry.underWay ??= (async () => {
      if (isPending(entry)) onRetried(entry.kind)
      await tryOnce(entry)
    })().finally(() => {
      entry.underWay = null
    })
    return entry.underWay
  }

  return { tryOnce, flush }
}

/** Tries the writes of an outbox until the store has them, and again after each incident. */
function createRetries(
  entries: Entries,
  flush: (entry: Entry) => Promise<void>,
  { store, clock: { monotonic }, log }: OutboxOptions,
) {
  let countedAt = Number.NEGATIVE_INFINITY
  let counting: NodeJS.Timeout | undefined
  let pumping: Promise<void> | null = null
  let givesUp = false
  let stopped = false

  store.health.onIncident(noteIncident)

  /** Each entry that is confirmed by now needs to be written again. */
  function noteIncident(): void {
    const inMs = countedAt + ONE_INCIDENT_MS - monotonic()
    if (inMs <= 0) countIncident()
    else counting ??= setTimeout(countIncident, inMs)
  }

  function countIncident(): void {
    counting = undefined
    countedAt = monotonic()
    forgetOld(entries, countedAt)
    entries.incidents += 1
    wake(0)
  }

  /** Makes a write pending. */
  function tryLater(entry: Entry): Promise<Written | { kind: 'expired' }> {
    if (givesUp && entry.kind !== 'tokens') return Promise.resolve({ kind: 'expired' })
    entry.result = new Promise((resolve, reject) => {
      entry.settle = { resolve, reject }
    })
    // Not every caller takes the result.
    entry.result.catch(() => {})
    if (!put(entries, entry)) entry.settle!.resolve(displaced(entry))
    else if (entry.kind === 'tokens')
      log.warn(
        { event: 'refresh.unsaved', waiting: pendingTokens(entries).length },
        'Redis did not take refreshed tokens: trying again',
      )
    wake(FIRST_PAUSE_MS)
    return entry.result
  }

  /** Starts the loop that writes what needs it, unless it runs. */
  function wake(inMs: number): void {
    if (pumping === null && !stopped) pumping = pump(inMs)
  }

  async function pump(inMs: number): Promise<void> {
    await pause(inMs)
    let pauseMs = FIRST_PAUSE_MS
    for (let batch = nextBatch(entries); batch.length > 0 && !stopped; batch = nextBatch(entries)) {
      const done = await Promise.all(batch.map(tryAgain))
      // Part of a Cluster may be away: its entries are the last now.
      if (done.includes(true)) pauseMs = FIRST_PAUSE_MS
      else {
        await pause(pauseMs)
        pauseMs = Math.min(pauseMs * 2, LAST_PAUSE_MS)
      }
    }
    pumping = null
  }

  /** Returns false if the store is unavailable. */
  async function tryAgain(entry: Entry): Promise<boolean> {
    const isOver = monotonic() >= entry.until || (givesUp && isPending(entry) && entry.kind !== 'tokens')
    if (isOver) {
      forget(entries, entry)
      entry.settle?.resolve({ kind: 'expired' })
      return true
    }
    try {
      await flush(entry)
      return true
    } catch (error) {
      if (error instanceof StoreUnavailable) {
        moveToEnd(entries, entry)
        return false
      }
      forget(entries, entry)
      if (entry.kind === 'tokens') {
        log.error({ event: 'refresh.unsaved_failed', err: error }, 'refreshed tokens could not be stored')
        entry.settle?.reject(error)
      } else {
        log.error({ event: 'store.step_failed', err: error }, 'a write to a session record failed')
        entry.settle?.resolve({ kind: 'expired' })
      }
      return true
    }
  }

  return {
    tryLater,
    wake,
    noteIncident,
    async drainPendingTokens(): Promise<void> {
      givesUp = true
      for (let left = pendingTokens(entries); left.length > 0; left = pendingTokens(entries))
        await Promise.allSettled(left.map(({ result }) => result))
    },
    async finish(): Promise<void> {
      if (pumping !== null) await Promise.race([pumping, pause(FINISH_MS)])
      clearTimeout(counting)
      stopped = true
    },
  }
}

function pause(ms: number): Promise<void> {
  return ms === 0 ? Promise.resolve() : new Promise((resolve) => setTimeout(resolve, ms))
}
