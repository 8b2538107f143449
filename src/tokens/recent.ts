import { randomUUID } from 'node:crypto'
import type { Logger } from '../log.ts'
import type { RecordKey, SessionStore } from '../store/store.ts'
import { inLog, StoreUnavailable } from '../store/store.ts'

/** What the store has taken, and loses again if its server dies before a replica has it. */
export type Written = { kind: 'tokens'; gen: number; sealed: string } | { kind: 'end'; reason: string }

/**
 * The newest writes of this process, each kept for a minute. After trouble with a server of the store
 * all are written again where it lacks them, once it answers: a promoted replica may be behind.
 */
export interface Recent {
  note(key: RecordKey, written: Written): void
  get(key: RecordKey): Written | null
  /** Writes it again if the store lacks it. Rejects with `StoreUnavailable`. */
  writeAgain(key: RecordKey): Promise<void>
  /** Resolves when a round under way has ended, or after two seconds; then nothing more is written. */
  stop(): Promise<void>
}

const KEPT_MS = 60_000
/** About 40 MB of sealed tokens; with more than 330 refreshes a second in one process the time is shorter. */
const KEPT_AT_MOST = 20_000
const AT_ONCE = 32
/** Well below the pause that the store makes before anybody may refresh on a new master. */
const RETRY_MS = 250
/** Pause between two rounds while trouble lasts. A round costs the store one command for each write kept. */
const ROUND_EVERY_MS = 1_000
const STOP_MS = 2_000

export interface RecentOptions {
  store: Pick<SessionStore, 'restoreTokens' | 'end' | 'onTrouble'>
  monotonic: () => number
  log: Logger
  /** Told of each write that the store had lost. */
  onWrittenAgain: (key: RecordKey, what: Written['kind']) => void
}

interface Entry {
  written: Written
  at: number
  /** Names the writing again, from the first try until an answer is heard. */
  attempt: string | null
  underWay: Promise<void> | null
  /** Troubles that had been when the store was last known to have it. */
  sureAt: number
}

export function createRecent({ store, monotonic, log, onWrittenAgain }: RecentOptions): Recent {
  const kept = new Map<RecordKey, Entry>()
  let troubles = 0
  /** Troubles that the rounds so far were made for. */
  let covered = 0
  let nextRoundAt = 0
  let working: Promise<void> | null = null
  let stopped = false

  store.onTrouble(() => {
    // What is as old as that already has reached every replica that may be promoted.
    forgetOld()
    check()
  })

  function check(): void {
    troubles += 1
    if (kept.size === 0 || working !== null || stopped) return
    working = Promise.resolve().then(rounds)
  }

  async function rounds(): Promise<void> {
    while (covered < troubles && !stopped) {
      while (monotonic() < nextRoundAt && !stopped) await pause(Math.min(nextRoundAt - monotonic(), RETRY_MS))
      const upTo = troubles
      nextRoundAt = monotonic() + ROUND_EVERY_MS
      await round(upTo)
      covered = upTo
      forgetOld()
    }
    working = null
  }

  async function round(upTo: number): Promise<void> {
    // Newest first: the likeliest to be missing.
    let left = [...kept].filter(([, { sureAt }]) => sureAt < upTo).reverse()
    // A node that stays away does not hold up the round that a later trouble asks for.
    while (left.length > 0 && !stopped && (troubles === upTo || monotonic() < nextRoundAt)) {
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
    // Its place was taken by a newer one, which the store has taken since.
    if (kept.get(key) !== entry) return true
    try {
      await writeAgain(key)
    } catch (error) {
      if (error instanceof StoreUnavailable) return false
      log.error({ event: 'store.step_failed', err: error }, 'a lost write could not be made again')
    }
    return true
  }

  async function writeAgain(key: RecordKey): Promise<void> {
    const entry = kept.get(key)
    if (entry === undefined) return
    entry.underWay ??= once(key, entry).finally(() => {
      entry.underWay = null
    })
    await entry.underWay
  }

  async function once(key: RecordKey, entry: Entry): Promise<void> {
    const sureAt = troubles
    const lost = await wasLost(key, entry)
    entry.sureAt = sureAt
    if (!lost) return
    const { kind } = entry.written
    log.warn(
      { event: 'store.lost_write', what: kind, recordKey: inLog(key) },
      'the store had lost a write, now made again',
    )
    onWrittenAgain(key, kind)
    // Where one is missing there will be more.
    check()
  }

  async function wasLost(key: RecordKey, entry: Entry): Promise<boolean> {
    const { written } = entry
    if (written.kind === 'end') return (await store.end(key, null, written.reason)).kind === 'ended'
    // A try whose answer is not heard may have written them.
    entry.attempt ??= randomUUID()
    const { kind } = await store.restoreTokens(key, written.gen, entry.attempt, written.sealed)
    entry.attempt = null
    return kind === 'restored'
  }

  /** What was kept when trouble began may be wanted at its end, however long that takes. */
  function forgetOld(): void {
    for (const [key, { at, sureAt }] of kept) {
      const tooMany = kept.size > KEPT_AT_MOST
      if (!tooMany && monotonic() - at < KEPT_MS) return
      if (tooMany || sureAt === troubles) kept.delete(key)
    }
  }

  return {
    note(key, written) {
      if (kept.get(key)?.written.kind === 'end') return
      kept.delete(key)
      kept.set(key, { written, at: monotonic(), sureAt: troubles, attempt: null, underWay: null })
      forgetOld()
    },
    get: (key) => kept.get(key)?.written ?? null,
    writeAgain,
    async stop() {
      if (working !== null) await Promise.race([working, pause(STOP_MS)])
      stopped = true
    },
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
