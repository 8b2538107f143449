import { randomUUID } from 'node:crypto'
import type { Logger } from '../log.ts'
import { type EndResult, inLog, type RecordKey, type SessionStore, StoreUnavailable } from './store.ts'

/** A write that the store has taken, and loses again if its server dies before a Redis replica has it. */
export type Written =
  | { kind: 'tokens'; gen: number; tokens: string }
  /** `again` ends the session under the same conditions: meanwhile it may have been active, or have newer tokens. */
  | { kind: 'end'; again: () => Promise<EndResult> }

/**
 * The newest writes of this process, each kept for a minute. After an incident each is written again if the store
 * lacks it: a promoted Redis replica may be behind.
 */
export interface FailoverRepair {
  /** Keeps a write that the store has taken. */
  note(key: RecordKey, written: Written): void
  /** The newest write of this session, if it is still kept. */
  get(key: RecordKey): Written | null
  /** Writes it again if the store lacks it. Rejects with `StoreUnavailable`. */
  restore(key: RecordKey): Promise<void>
  /** Resolves when a round under way has ended, or after two seconds; nothing is written after that. */
  stop(): Promise<void>
}

const KEPT_MS = 60_000
/** About 40 MB of sealed tokens; with more than 330 refreshes a second in one process the time is shorter. */
const KEPT_AT_MOST = 20_000
const AT_ONCE = 32
/** Well below the pause of refreshes that follows a change of the master. */
const RETRY_MS = 250
/** Pause between two rounds while incidents continue. A round costs the store one command for each write kept. */
const ROUND_EVERY_MS = 1_000
const STOP_MS = 2_000

interface FailoverRepairOptions {
  store: Pick<SessionStore, 'restoreTokens' | 'schedule' | 'health'>
  monotonic: () => number
  log: Logger
  /** The store had lost a write, which was restored. */
  onRestored: (write: Written['kind']) => void
}

interface Entry {
  written: Written
  at: number
  /** Identifies the repair from its first try until a reply, so that the store recognizes a repetition. */
  attempt: string | null
  underWay: Promise<void> | null
  /** Number of incidents after which the store was known to have this write. */
  confirmedUpTo: number
}

export function createFailoverRepair({
  store,
  monotonic,
  log,
  onRestored,
}: FailoverRepairOptions): FailoverRepair {
  const kept = new Map<RecordKey, Entry>()
  let incidents = 0
  /** Number of incidents that the rounds so far cover. */
  let covered = 0
  let nextRoundAt = 0
  let working: Promise<void> | null = null
  let stopped = false

  store.health.onIncident(() => {
    // Older writes have reached the Redis replica that is promoted, unless it was cut off for long (docs/limits.md).
    forgetOld()
    noteIncident()
  })

  function noteIncident(): void {
    incidents += 1
    if (kept.size === 0 || working !== null || stopped) return
    working = Promise.resolve().then(rounds)
  }

  async function rounds(): Promise<void> {
    while (covered < incidents && !stopped) {
      while (monotonic() < nextRoundAt && !stopped) await pause(Math.min(nextRoundAt - monotonic(), RETRY_MS))
      const upTo = incidents
      nextRoundAt = monotonic() + ROUND_EVERY_MS
      await round(upTo)
      covered = upTo
      forgetOld()
    }
    working = null
  }

  async function round(upTo: number): Promise<void> {
    // Newest first: the likeliest to be missing.
    let left = [...kept].filter(([, { confirmedUpTo }]) => confirmedUpTo < upTo).reverse()
    // A node that stays unavailable does not delay the round that a later incident needs.
    while (left.length > 0 && !stopped && (incidents === upTo || monotonic() < nextRoundAt)) {
      const part = left.slice(0, AT_ONCE)
      const done = await Promise.all(part.map(([key, entry]) => tryAgain(key, entry)))
      const failed = part.filter((_, at) => !done[at])
      left = [...left.slice(AT_ONCE), ...failed]
      if (failed.length < part.length) continue
      forgetOld()
      await pause(RETRY_MS)
    }
  }

  async function tryAgain(key: RecordKey, entry: Entry): Promise<boolean> {
    // The store has taken a newer write of this session since.
    if (kept.get(key) !== entry) return true
    try {
      await restore(key)
    } catch (error) {
      if (error instanceof StoreUnavailable) return false
      log.error({ event: 'store.step_failed', err: error }, 'a lost write could not be repaired')
    }
    return true
  }

  async function restore(key: RecordKey): Promise<void> {
    const entry = kept.get(key)
    if (entry === undefined) return
    entry.underWay ??= restoreOnce(key, entry).finally(() => {
      entry.underWay = null
    })
    await entry.underWay
  }

  async function restoreOnce(key: RecordKey, entry: Entry): Promise<void> {
    const confirmedUpTo = incidents
    const wasLost = await writeIfLost(key, entry)
    entry.confirmedUpTo = confirmedUpTo
    if (!wasLost) return
    const { kind } = entry.written
    log.warn(
      { event: 'store.lost_write', what: kind, recordKey: inLog(key) },
      'Redis had lost a write, which was restored: check replication and failover',
    )
    onRestored(kind)
    // Its place in the due queue may be lost as well.
    if (kind === 'tokens') store.schedule(key, 0).catch(logUnlessUnavailable)
    // Where one write is missing, others are likely to be missing too.
    noteIncident()
  }

  function logUnlessUnavailable(error: unknown): void {
    if (!(error instanceof StoreUnavailable))
      log.error({ event: 'schedule.failed', err: error }, 'a session could not be put into the due queue')
  }

  /** Returns whether the store had lost the write. */
  async function writeIfLost(key: RecordKey, entry: Entry): Promise<boolean> {
    const { written } = entry
    if (written.kind === 'end') {
      const { kind } = await written.again()
      if (kind === 'precondition_failed') {
        // The session goes on. This process serves it again, and may have taken it out of the due queue.
        if (kept.get(key) === entry) kept.delete(key)
        store.schedule(key, 0).catch(logUnlessUnavailable)
      }
      return kind === 'ended'
    }
    // A try whose reply was lost may have written them.
    entry.attempt ??= randomUUID()
    const { kind } = await store.restoreTokens(key, {
      gen: written.gen,
      attempt: entry.attempt,
      tokens: written.tokens,
    })
    entry.attempt = null
    return kind === 'restored'
  }

  /** Writes from before an outage are kept until its end, however long that takes. */
  function forgetOld(): void {
    for (const [key, { at, confirmedUpTo }] of kept) {
      const tooMany = kept.size > KEPT_AT_MOST
      if (!tooMany && monotonic() - at < KEPT_MS) return
      if (tooMany || confirmedUpTo === incidents) kept.delete(key)
    }
  }

  return {
    note(key, written) {
      if (written.kind === 'tokens' && kept.get(key)?.written.kind === 'end') return
      kept.delete(key)
      kept.set(key, { written, at: monotonic(), confirmedUpTo: incidents, attempt: null, underWay: null })
      forgetOld()
    },
    get: (key) => kept.get(key)?.written ?? null,
    restore,
    async stop() {
      if (working !== null) await Promise.race([working, pause(STOP_MS)])
      stopped = true
    },
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
