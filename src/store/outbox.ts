import type { Clock } from '../clock.ts'
import type { Logger } from '../log.ts'
import {
  type EndRequest,
  type EndResult,
  inLog,
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
export type OutboxStep = 'tokens' | 'lease' | 'end'

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
  /** Resolves when no tokens are pending any more. From now on no other write is tried again. */
  drainPendingTokens(): Promise<void>
  /** The last writes of a process that stops: repair of lost writes, within two seconds. */
  finish(): Promise<void>
}

interface OutboxOptions {
  store: SessionStore
  clock: Clock
  log: Logger
  /** A write was tried again. */
  onRetried: (step: OutboxStep) => void
  /** A write that Redis had lost was restored. */
  onRestored: (step: 'tokens' | 'end') => void
}

type Written = ReplaceTokensResult | EndResult | { kind: 'released' }

/** One write. It waits until the store has it, and again after each incident. */
interface Entry {
  readonly name: string
  readonly step: OutboxStep
  readonly key: RecordKey
  /** The same call again changes nothing. */
  readonly write: () => Promise<Written>
  /** Monotonic: given up then. */
  readonly until: number
  /** What a read shows. */
  readonly tokens: { gen: number; tokens: string } | null
  /** Number of incidents when the call was sent that the store confirmed; null before the first. */
  confirmedAfter: number | null
  /** Monotonic: since when it is confirmed. */
  keptFrom: number
  underWay: Promise<void> | null
  /** Only of one that is pending. */
  settle: { resolve(result: Written | { kind: 'expired' }): void; reject(error: unknown): void } | null
  result: Promise<Written | { kind: 'expired' }> | null
}

const FIRST_PAUSE_MS = 100
/** Well below the pause of refreshes that follows a change of the master. */
const LAST_PAUSE_MS = 500
const AT_ONCE = 64
/** Incidents within this time count as one: each costs the store one command for each entry. */
const ONE_INCIDENT_MS = 1_000
/** A lease that could not be released by then has long expired; its doubt stays in the record. */
const LEASE_RELEASED_WITHIN_MS = 600_000
/** Older writes have reached the Redis replica that is promoted, unless it was cut off for long (docs/limits.md). */
const KEPT_MS = 60_000
/** About 40 MB of sealed tokens; with more than 330 refreshes a second in one process the time is shorter. */
const KEPT_AT_MOST = 20_000
const FINISH_MS = 2_000

/**
 * Keeps the writes of this process in memory, until the store has them and for a minute more: a promoted Redis replica
 * may lack them. Tries again what waits, and overlays it on what is read.
 */
export function createOutbox({ store, clock, log, onRetried, onRestored }: OutboxOptions): OutboxStore {
  const { monotonic } = clock
  /** By name, in the order in which they are tried. */
  const entries = new Map<string, Entry>()
  let incidents = 0
  let countedAt = Number.NEGATIVE_INFINITY
  let counting: NodeJS.Timeout | undefined
  let pumping: Promise<void> | null = null
  let givesUp = false
  let stopped = false

  store.health.onIncident(noteIncident)

  function noteIncident(): void {
    const inMs = countedAt + ONE_INCIDENT_MS - monotonic()
    if (inMs <= 0) countIncident()
    else counting ??= setTimeout(countIncident, inMs)
  }

  function countIncident(): void {
    counting = undefined
    countedAt = monotonic()
    forgetOld()
    incidents += 1
    wake(0)
  }

  const isPending = (entry: Entry): boolean => entry.confirmedAfter === null
  const waits = ({ confirmedAfter }: Entry): boolean => confirmedAfter === null || confirmedAfter < incidents
  const endOf = (key: RecordKey): Entry | null => {
    const entry = entries.get(`end ${key}`)
    return entry === undefined || isPending(entry) ? null : entry
  }

  function forgetOld(): void {
    for (const [name, entry] of entries) {
      const tooMany = entries.size > KEPT_AT_MOST && !isPending(entry)
      if (!tooMany && (waits(entry) || monotonic() - entry.keptFrom < KEPT_MS)) return
      entries.delete(name)
    }
  }

  function forget(entry: Entry): void {
    if (entries.get(entry.name) === entry) entries.delete(entry.name)
  }

  /** Puts an entry at the end, unless a newer one of the same name is there. */
  function put(entry: Entry): boolean {
    const before = entries.get(entry.name)
    if (entry.step === 'tokens' && endOf(entry.key) !== null) return false
    if (before !== undefined && before !== entry) {
      if (before.tokens !== null && before.tokens.gen >= entry.tokens!.gen) return false
      if (!isPending(before) && isPending(entry) && entry.step === 'end') return false
      before.settle?.resolve({ kind: entry.step === 'tokens' ? 'newer' : 'expired' })
    }
    entries.delete(entry.name)
    entries.set(entry.name, entry)
    return true
  }

  function newEntry(draft: Pick<Entry, 'step' | 'key' | 'write' | 'until'> & Partial<Entry>): Entry {
    const more = { confirmedAfter: null, keptFrom: 0, underWay: null, settle: null, result: null }
    return { name: `${draft.step} ${draft.key}`, tokens: null, ...more, ...draft }
  }

  /** Tries a write once. If the store is unavailable it becomes pending. */
  async function submit<Result extends Written>(entry: Entry): Promise<Result | Pending<Result>> {
    const sentAfter = incidents
    try {
      const result = await entry.write()
      conclude(entry, result, sentAfter)
      return result as Result
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error
      return { kind: 'pending', result: tryLater(entry) as Pending<Result>['result'] }
    }
  }

  function tryLater(entry: Entry): Promise<Written | { kind: 'expired' }> {
    if (givesUp && entry.step !== 'tokens') return Promise.resolve({ kind: 'expired' })
    entry.result = new Promise((resolve, reject) => {
      entry.settle = { resolve, reject }
    })
    // Not every caller takes the result.
    entry.result.catch(() => {})
    if (!put(entry)) entry.settle!.resolve({ kind: entry.step === 'tokens' ? 'newer' : 'expired' })
    else if (entry.step === 'tokens')
      log.warn(
        { event: 'refresh.unsaved', waiting: pendingTokens().length },
        'Redis did not take refreshed tokens: trying again',
      )
    wake(FIRST_PAUSE_MS)
    return entry.result
  }

  /** What follows from the reply of the store. */
  function conclude(entry: Entry, result: Written, sentAfter: number): void {
    const isRepair = !isPending(entry)
    const stays =
      result.kind === 'replaced' ||
      result.kind === 'ended' ||
      (isRepair && entry.step === 'end' && result.kind === 'gone')
    if (!stays) forget(entry)
    else {
      entry.confirmedAfter = sentAfter
      if (!isRepair) keep(entry)
    }
    if (isRepair && (result.kind === 'ended' || (result.kind === 'replaced' && result.written)))
      noteLost(entry)
    // The session goes on. This process serves it again, and may have taken it out of the due queue.
    if (isRepair && result.kind === 'precondition_failed') requeue(entry.key)
    if (entry.settle !== null && entry.step === 'tokens')
      log.info({ event: 'refresh.saved_late', result: result.kind }, 'refreshed tokens are no longer pending')
    entry.settle?.resolve(result)
    entry.settle = null
  }

  function keep(entry: Entry): void {
    entry.keptFrom = monotonic()
    if (entry.step === 'end') entries.delete(`tokens ${entry.key}`)
    put(entry)
    forgetOld()
  }

  function noteLost({ step, key }: Entry): void {
    log.warn(
      { event: 'store.lost_write', what: step, recordKey: inLog(key) },
      'Redis had lost a write, which was restored: check replication and failover',
    )
    onRestored(step as 'tokens' | 'end')
    // Its place in the due queue may be lost as well.
    if (step === 'tokens') requeue(key)
    // Where one write is missing, others are likely to be missing too.
    noteIncident()
  }

  function requeue(key: RecordKey): void {
    store.schedule(key, 0).catch((error: unknown) => {
      if (!(error instanceof StoreUnavailable))
        log.error({ event: 'schedule.failed', err: error }, 'a session could not be put into the due queue')
    })
  }

  function wake(inMs: number): void {
    if (pumping === null && !stopped) pumping = pump(inMs)
  }

  async function pump(inMs: number): Promise<void> {
    await pause(inMs)
    let pauseMs = FIRST_PAUSE_MS
    for (let part = nextPart(); part.length > 0 && !stopped; part = nextPart()) {
      const done = await Promise.all(part.map(tryAgain))
      // Part of a Cluster may be away: its entries are the last now.
      if (done.includes(true)) pauseMs = FIRST_PAUSE_MS
      else {
        await pause(pauseMs)
        pauseMs = Math.min(pauseMs * 2, LAST_PAUSE_MS)
      }
    }
    pumping = null
  }

  /** The next entries to be tried; those that the store never had first. */
  function nextPart(): Entry[] {
    const all = [...entries.values()].filter(waits)
    return [...all.filter(isPending), ...all.filter((entry) => !isPending(entry))].slice(0, AT_ONCE)
  }

  /** Returns false if the store is unavailable. */
  async function tryAgain(entry: Entry): Promise<boolean> {
    const isOver = monotonic() >= entry.until || (givesUp && isPending(entry) && entry.step !== 'tokens')
    if (isOver) {
      forget(entry)
      entry.settle?.resolve({ kind: 'expired' })
      return true
    }
    try {
      await flush(entry)
      return true
    } catch (error) {
      if (error instanceof StoreUnavailable) {
        if (entries.get(entry.name) === entry) {
          entries.delete(entry.name)
          entries.set(entry.name, entry)
        }
        return false
      }
      forget(entry)
      if (entry.step === 'tokens') {
        log.error({ event: 'refresh.unsaved_failed', err: error }, 'refreshed tokens could not be stored')
        entry.settle?.reject(error)
      } else {
        log.error({ event: 'store.step_failed', err: error }, 'a write to a session record failed')
        entry.settle?.resolve({ kind: 'expired' })
      }
      return true
    }
  }

  /** Writes an entry that waits. Rejects with `StoreUnavailable`. */
  function flush(entry: Entry): Promise<void> {
    entry.underWay ??= (async () => {
      if (isPending(entry)) onRetried(entry.step)
      const sentAfter = incidents
      conclude(entry, await entry.write(), sentAfter)
    })().finally(() => {
      entry.underWay = null
    })
    return entry.underWay
  }

  function pendingTokens(): Entry[] {
    return [...entries.values()].filter((entry) => entry.step === 'tokens' && isPending(entry))
  }

  /** The newest state that this process knows; `read` reads what Redis has. */
  async function readNewest<State extends SessionState>(
    key: RecordKey,
    read: (key: RecordKey) => Promise<State | null>,
    overlay: (newest: { gen: number; tokens: string }) => Partial<State>,
  ): Promise<State | null> {
    // A server that has lost the end of a session still shows it.
    if (endOf(key) !== null) return null
    const before = entries.get(`tokens ${key}`)
    const state = await read(key)
    const entry = entries.get(`tokens ${key}`) ?? before
    if (state === null || !entry?.tokens || entry.tokens.gen <= state.gen) return state
    if (!waits(entry)) {
      // The server has lost them, and this process has not noticed why.
      entry.confirmedAfter = -1
      wake(0)
    }
    return { ...state, ...overlay(entry.tokens) }
  }

  function releaseEntry(key: RecordKey, release: ReleaseLeaseRequest): Entry {
    return newEntry({
      name: `lease ${key} ${release.attempt}`,
      step: 'lease',
      key,
      until: monotonic() + LEASE_RELEASED_WITHIN_MS,
      async write() {
        await store.releaseLease(key, release)
        return { kind: 'released' }
      },
    })
  }

  function endEntry(key: RecordKey, request: EndRequest, until = Number.POSITIVE_INFINITY): Entry {
    return newEntry({ step: 'end', key, until, write: () => store.end(key, request) })
  }

  return {
    ...store,
    read: (key) => readNewest(key, store.read, (newest) => ({ ...newest, replacedAt: 0 })),
    readState: (key) => readNewest(key, store.readState, ({ gen }) => ({ gen })),

    async beginRefresh(key, request) {
      const entry = entries.get(`tokens ${key}`)
      if (entry !== undefined && waits(entry)) await flush(entry)
      try {
        return await store.beginRefresh(key, request)
      } catch (error) {
        // It may have run, and would leave a lease that nobody uses and a doubt without a presentation.
        if (error instanceof StoreUnavailable)
          void tryLater(releaseEntry(key, { attempt: request.attempt, inDoubt: null, retryInMs: 0 }))
        throw error
      }
    },

    async releaseLease(key, release) {
      await submit(releaseEntry(key, release))
    },

    replaceTokens(key, { gen, attempt, tokens, endsAt }) {
      return submit<ReplaceTokensResult>(
        newEntry({
          step: 'tokens',
          key,
          until: monotonic() + endsAt - clock.wall(),
          tokens: { gen: gen + 1, tokens },
          write: () => store.replaceTokens(key, { gen, attempt, tokens }),
        }),
      )
    },

    async end(key, request = {}) {
      const entry = endEntry(key, request)
      const sentAfter = incidents
      const ended = await store.end(key, request)
      conclude(entry, ended, sentAfter)
      return ended
    },

    endUntilTaken: (key, request, forMs) => submit<EndResult>(endEntry(key, request, monotonic() + forMs)),

    pendingTokens: () => pendingTokens().length,
    async drainPendingTokens() {
      givesUp = true
      for (let left = pendingTokens(); left.length > 0; left = pendingTokens())
        await Promise.allSettled(left.map(({ result }) => result))
    },
    async finish() {
      if (pumping !== null) await Promise.race([pumping, pause(FINISH_MS)])
      clearTimeout(counting)
      stopped = true
    },
  }
}

function pause(ms: number): Promise<void> {
  return ms === 0 ? Promise.resolve() : new Promise((resolve) => setTimeout(resolve, ms))
}
