import { randomUUID } from 'node:crypto'
import type { Logger } from '../../log.ts'
import { type SessionStore, StoreUnavailable } from '../store/store.ts'

interface QueueRepair {
  start(): void
  /** Resolves when the scan under way has ended; starts no other. */
  stop(): Promise<void>
}

interface QueueRepairOptions {
  store: Pick<SessionStore, 'claimNonce' | 'keys' | 'scheduleMissing'>
  monotonic: () => number
  /** In [0, 1). */
  random: () => number
  log: Logger
}

/** Over all replicas. */
const SCAN_EVERY_MS = 600_000
/**
 * Between two batches of about a thousand records: a million sessions take about two minutes. That costs Redis 2.5
 * seconds, in batches of a few milliseconds (docs/decisions/0005-slow-scan.md).
 */
const REST_MS = 100
/** Version 0.2 used another name: its scan fills another queue. */
const CLAIM = 'scan for sessions that have no entry in the due queue'
/** The first scan of a process finds what was lost while no replica ran. The claim keeps restarts from scanning often. */
const FIRST_WITHIN_MS = 60_000
/** Sessions of one batch become due spread over this time. */
const SPREAD_MS = 10_000

/**
 * Puts sessions back into the due queue that have no entry there and would never be refreshed in the background,
 * because the queue or a part of it was lost. One replica at a time scans the records.
 */
export function createQueueRepair({ store, monotonic, random, log }: QueueRepairOptions): QueueRepair {
  // The same for the life of the process: after a failure the claim is still ours.
  const claimant = randomUUID()
  let timer: NodeJS.Timeout | undefined
  let endPause: () => void = () => {}
  let scanning: Promise<void> | null = null
  let stopped = true

  function scanIn(ms: number): void {
    timer = setTimeout(() => {
      scanning = run()
    }, ms)
  }

  async function run(): Promise<void> {
    const beganAt = monotonic()
    let waitMs = SCAN_EVERY_MS * (1 + random() / 10)
    try {
      if (await store.claimNonce(CLAIM, claimant, SCAN_EVERY_MS)) await scan()
    } catch (error) {
      if (!(error instanceof StoreUnavailable))
        log.error({ event: 'schedule.failed', err: error }, 'the scan for missing sessions failed')
      waitMs /= 10
    }
    scanning = null
    if (!stopped) scanIn(Math.max(0, beganAt + waitMs - monotonic()))
  }

  async function scan(): Promise<void> {
    let missing = 0
    for await (const keys of store.keys()) {
      const entries = keys.map((key) => ({ key, inMs: random() * SPREAD_MS }))
      if (entries.length > 0 && !stopped) missing += await store.scheduleMissing(entries)
      await pause()
      if (stopped) break
    }
    if (missing > 0)
      log.warn({ event: 'schedule.missing', missing }, 'sessions were missing from the due queue')
  }

  async function pause(): Promise<void> {
    if (stopped) return
    await new Promise<void>((resolve) => {
      const resting = setTimeout(resolve, REST_MS)
      endPause = () => {
        clearTimeout(resting)
        resolve()
      }
    })
  }

  return {
    start() {
      stopped = false
      scanIn(random() * FIRST_WITHIN_MS)
    },
    async stop() {
      stopped = true
      clearTimeout(timer)
      endPause()
      await scanning
    },
  }
}
