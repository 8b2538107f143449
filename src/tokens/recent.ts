import type { Logger } from '../log.ts'
import type { RecordKey, SessionStore } from '../store/port.ts'
import { StoreUnavailable } from '../store/port.ts'

/** What the store has taken, and loses again if its server dies before a replica has it. */
export type Written = { kind: 'tokens'; gen: number; sealed: string } | { kind: 'end' }

/**
 * The newest writes of this process, each kept for a minute. After every trouble with the store all
 * are written again where it lacks them, once it answers: a promoted replica may be behind.
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
/** From one round to the next while there is trouble. */
const ROUND_MS = 1_000
const STOP_MS = 2_000

export interface RecentOptions {
  store: Pick<SessionStore, 'restoreTokens' | 'end' | 'onTrouble'>
  now: () => number
  log: Logger
  /** Told of each write that the store had lost. */
  onWrittenAgain: (key: RecordKey, what: Written['kind']) => void
}

export function createRecent({ store, now, log, onWrittenAgain }: RecentOptions): Recent {
  const kept = new Map<RecordKey, Written & { at: number }>()
  let trouble = false
  let working: Promise<void> | null = null
  let stopped = false

  store.onTrouble(check)

  function check(): void {
    trouble = true
    if (kept.size === 0 || working !== null || stopped) return
    forgetOld()
    working = Promise.resolve().then(rounds)
  }

  async function rounds(): Promise<void> {
    while (trouble && !stopped) {
      trouble = false
      await round()
      if (trouble) await pause(ROUND_MS)
    }
    working = null
  }

  async function round(): Promise<void> {
    // Newest first: the likeliest to be missing.
    let left = [...kept.keys()].reverse()
    while (left.length > 0 && !stopped) {
      const part = left.slice(0, AT_ONCE)
      const done = await Promise.all(part.map(tryAgain))
      const failed = part.filter((_, at) => !done[at])
      left = [...left.slice(AT_ONCE), ...failed]
      if (failed.length === part.length) await pause(RETRY_MS)
    }
  }

  async function tryAgain(key: RecordKey): Promise<boolean> {
    try {
      await writeAgain(key)
    } catch (error) {
      if (error instanceof StoreUnavailable) return false
      log.error({ event: 'store.step_failed', err: error }, 'a lost write could not be made again')
    }
    return true
  }

  async function writeAgain(key: RecordKey): Promise<void> {
    const written = kept.get(key)
    if (written === undefined || !(await wasLost(key, written))) return
    log.warn({ event: 'store.lost_write', what: written.kind }, 'the store had lost a write, now made again')
    onWrittenAgain(key, written.kind)
    // Where one is missing there will be more.
    check()
  }

  async function wasLost(key: RecordKey, written: Written): Promise<boolean> {
    if (written.kind === 'end') return (await store.end(key, null)).kind === 'ended'
    return (await store.restoreTokens(key, written.gen, written.sealed)).kind === 'restored'
  }

  /** While there is trouble nothing gets too old: what was kept when it began may be wanted at its end. */
  function forgetOld(): void {
    for (const [key, { at }] of kept) {
      if (kept.size <= KEPT_AT_MOST && (working !== null || now() - at < KEPT_MS)) return
      kept.delete(key)
    }
  }

  return {
    note(key, written) {
      if (kept.get(key)?.kind === 'end') return
      kept.delete(key)
      kept.set(key, { ...written, at: now() })
      forgetOld()
    },
    get: (key) => kept.get(key) ?? null,
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
