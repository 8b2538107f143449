import { randomUUID } from 'node:crypto'
import type { Logger } from '../log.ts'
import { type DueQueue, type NonceStore, type RecordStore, StoreUnavailable } from '../store/store.ts'

interface QueueRepair {
  start(): void
  /** To be called when the store's clock has stepped back: sessions may be due too late, so all are made due soon. */
  makeAllDueSoon(): void
  /** Resolves when the scan under way has ended; starts no other. */
  stop(): Promise<void>
}

/** Interval of the scan over all replicas, and the pause between two batches of about a thousand records. */
interface ScanPace {
  everyMs: number
  pauseMs: number
}

/**
 * A million sessions take about two minutes. That costs Redis 2.5 seconds, in batches of a few milliseconds
 * (docs/decisions/0005-slow-scan.md).
 */
export const SCAN_PACE: ScanPace = { everyMs: 600_000, pauseMs: 100 }

interface QueueRepairOptions extends ScanPace {
  store: Pick<NonceStore & RecordStore & DueQueue, 'claimNonce' | 'keys' | 'scheduleMissing'>
  monotonic: () => number
  /** In [0, 1). */
  random: () => number
  log: Logger
}

const CLAIM = 'scan for sessions that are missing from the due queue'
const CLAIM_AFTER_STEP = 'scan for sessions that are late in the due queue'
/** Within this time every replica has seen the same step of the store's clock. */
const STEP_SEEN_MS = 30_000
/** Within this time every shard of the queue shows the same step. */
const SAME_STEP_MS = 6_000
const CLAIM_SLACK_MS = 1_000
/** Sessions of one batch become due spread over this time. */
const SPREAD_MS = 10_000
const SPREAD_AFTER_STEP_MS = 1_000

/**
 * Puts sessions back into the due queue that have no entry there and would never be refreshed in the background,
 * because the queue or a part of it was lost. One replica at a time scans the records.
 */
export function createQueueRepair(options: QueueRepairOptions): QueueRepair {
  const { store, everyMs, pauseMs, monotonic, random, log } = options
  // The same for the life of the process: after a failure the claim is still ours.
  const claimant = randomUUID()
  let timer: NodeJS.Timeout | undefined
  let endPause: () => void = () => {}
  let scanning: Promise<void> | null = null
  let scanningAfterStep: Promise<void> | null = null
  let stepSeenAt = Number.NEGATIVE_INFINITY
  let repeatTimer: NodeJS.Timeout | undefined
  let stopped = true

  function scanIn(ms: number): void {
    timer = setTimeout(() => {
      scanning = regularScan()
    }, ms)
  }

  async function regularScan(): Promise<void> {
    const beganAt = monotonic()
    let waitMs = everyMs * (1 + random() / 10)
    try {
      if (await store.claimNonce(CLAIM, claimant, everyMs)) await scan(false)
    } catch (error) {
      if (!(error instanceof StoreUnavailable))
        log.error({ event: 'schedule.failed', err: error }, 'the scan for missing sessions failed')
      waitMs /= 10
    }
    scanning = null
    if (!stopped) scanIn(Math.max(0, beganAt + waitMs - monotonic()))
  }

  async function scanAfterStep(): Promise<void> {
    try {
      if (await store.claimNonce(CLAIM_AFTER_STEP, claimant, STEP_SEEN_MS)) await scan(true)
    } catch (error) {
      // The next shard that shows the step starts another scan.
      stepSeenAt = Number.NEGATIVE_INFINITY
      if (!(error instanceof StoreUnavailable))
        log.error({ event: 'schedule.failed', err: error }, 'the due queue could not be moved forward')
    }
  }

  async function scan(afterStep: boolean): Promise<void> {
    const spreadMs = afterStep ? SPREAD_AFTER_STEP_MS : SPREAD_MS
    let missing = 0
    for await (const keys of store.keys()) {
      const entries = keys.map((key) => ({ key, inMs: random() * spreadMs }))
      if (entries.length > 0 && !stopped) missing += await store.scheduleMissing(entries, afterStep)
      await pause()
      if (stopped) break
    }
    if (missing > 0)
      log.warn({ event: 'schedule.missing', missing }, 'sessions were missing from the due queue')
  }

  async function pause(): Promise<void> {
    if (stopped) return
    await new Promise<void>((resolve) => {
      const resting = setTimeout(resolve, pauseMs)
      endPause = () => {
        clearTimeout(resting)
        resolve()
      }
    })
  }

  function repeat(): void {
    repeatTimer = undefined
    makeAllDueSoon()
  }

  function makeAllDueSoon(): void {
    if (stopped) return
    const seenMs = monotonic() - stepSeenAt
    if (seenMs < STEP_SEEN_MS || scanningAfterStep !== null) {
      // Every shard shows the same step. A later report may be of a second step, which the scan has missed.
      if (seenMs > SAME_STEP_MS)
        repeatTimer ??= setTimeout(repeat, Math.max(0, STEP_SEEN_MS - seenMs) + CLAIM_SLACK_MS)
      return
    }
    stepSeenAt = monotonic()
    log.warn({ event: 'store.clock_stepped_back' }, "Redis' clock has stepped back: check its time source")
    scanningAfterStep = scanAfterStep().finally(() => {
      scanningAfterStep = null
    })
  }

  return {
    start() {
      stopped = false
      scanIn(random() * everyMs)
    },
    makeAllDueSoon,
    async stop() {
      stopped = true
      clearTimeout(timer)
      clearTimeout(repeatTimer)
      endPause()
      await scanning
      await scanningAfterStep
    },
  }
}
