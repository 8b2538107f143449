import { fork } from 'node:child_process'
import { availableParallelism } from 'node:os'
import type { Compiled } from './compile.ts'
import type { Violation } from './invariants.ts'
import { addTally, emptyTally, type SimulationResult, type Tally } from './simulate.ts'
import type { Job, Report } from './worker.ts'

interface CampaignOptions {
  compiled: Compiled
  from: number
  /** Seeds at most. */
  seeds: number
  untilFailure: boolean
  workers?: number
  /** Called regularly with the results so far. */
  onProgress?: (campaign: Campaign) => void
}

/** The combined results of many seeds. */
export interface Campaign {
  seeds: number
  seconds: number
  readonly tally: Tally
  readonly failures: { seed: number; violation: Violation }[]
  /** Of all hashes, in any order. */
  hash: string
}

type RunJob = Job & { kind: 'run' }

/** Few, so that the workers of a short campaign end together. */
const SEEDS_AT_ONCE = 10
const PROGRESS_EVERY_MS = 20_000

/** Runs seeds on several processes. With `untilFailure` the result holds every failure below the highest seed tried. */
export async function runCampaign(options: CampaignOptions): Promise<Campaign> {
  const { compiled, from, seeds, untilFailure } = options
  const workers = options.workers ?? availableParallelism()
  const startedAt = performance.now()
  const campaign: Campaign = { seeds: 0, seconds: 0, tally: emptyTally(), failures: [], hash: '' }
  let next = from
  let combined = 0n
  let progressAt = startedAt

  const isOver = (): boolean => next >= from + seeds || (untilFailure && campaign.failures.length > 0)

  function take(): RunJob | null {
    if (isOver()) return null
    const to = Math.min(next + SEEDS_AT_ONCE, from + seeds)
    const job: RunJob = { kind: 'run', from: next, to, untilFailure }
    next = to
    return job
  }

  function add(job: RunJob, report: Report): void {
    campaign.seeds += report.hashes.length
    addTally(campaign.tally, report.tally)
    campaign.failures.push(...report.failures)
    for (const [at, hash] of report.hashes.entries()) {
      combined ^= BigInt.asUintN(64, BigInt(`0x${hash}`) * BigInt(2 * (job.from + at) + 1))
    }
    if (performance.now() - progressAt < PROGRESS_EVERY_MS) return
    progressAt = performance.now()
    options.onProgress?.(campaign)
  }

  async function runWorker(): Promise<void> {
    let job = take()
    if (job === null) return
    const worker = startWorker<Report>(compiled)
    try {
      for (; job !== null; job = take()) add(job, await worker.ask(job))
    } finally {
      worker.stop()
    }
  }

  await Promise.all(Array.from({ length: workers }, runWorker))
  campaign.seconds = (performance.now() - startedAt) / 1_000
  campaign.hash = combined.toString(16).padStart(16, '0')
  campaign.failures.sort((a, b) => a.seed - b.seed)
  return campaign
}

/** One history to be read, or the smallest failing one of a seed. */
export async function readHistory(compiled: Compiled, job: Exclude<Job, RunJob>): Promise<SimulationResult> {
  const worker = startWorker<SimulationResult>(compiled)
  try {
    return await worker.ask(job)
  } finally {
    worker.stop()
  }
}

function startWorker<Result>(compiled: Compiled) {
  const child = fork(compiled.worker, {
    execArgv: ['--max-semi-space-size=32'],
    // With maps.
    serialization: 'advanced',
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
  return {
    ask: (job: Job): Promise<Result> =>
      new Promise((resolve, reject) => {
        child.removeAllListeners()
        child.on('message', resolve as (result: unknown) => void)
        child.on('exit', (code) => reject(new Error(`a worker ended with ${code}`)))
        child.on('error', reject)
        child.send(job)
      }),
    stop(): void {
      child.removeAllListeners()
      if (child.connected) child.disconnect()
    },
  }
}
