import { fork } from 'node:child_process'
import { availableParallelism } from 'node:os'
import type { Compiled } from './compile.ts'
import type { Violation } from './invariants.ts'
import { addTally, emptyTally, type SimulationResult, type Tally } from './simulate.ts'
import type { Job } from './worker.ts'

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

/** Few, so that the workers of a short campaign end together. */
const SEEDS_AT_ONCE = 10
const PROGRESS_EVERY_MS = 20_000

/** Runs seeds on several processes. With `untilFailure` the result holds every failure below the highest seed tried. */
export async function runCampaign(options: CampaignOptions): Promise<Campaign> {
  const { compiled, from, seeds, untilFailure, workers = availableParallelism(), onProgress } = options
  const startedAt = performance.now()
  const campaign: Campaign = { seeds: 0, seconds: 0, tally: emptyTally(), failures: [], hash: '' }
  const end = from + seeds
  let next = from
  let combined = 0n
  let progressAt = startedAt

  function add({ seed, hash, tally, violation }: SimulationResult): void {
    campaign.seeds += 1
    addTally(campaign.tally, tally)
    if (violation !== null) campaign.failures.push({ seed, violation })
    combined ^= BigInt.asUintN(64, BigInt(`0x${hash}`) * BigInt(2 * seed + 1))
  }

  async function runWorker(): Promise<void> {
    if (next >= end) return
    const worker = startWorker(compiled)
    try {
      while (next < end && !(untilFailure && campaign.failures.length > 0)) {
        const to = Math.min(next + SEEDS_AT_ONCE, end)
        const job: Job = { kind: 'run', from: next, to, untilFailure }
        next = to
        for (const result of await worker.ask(job)) add(result)
        if (performance.now() - progressAt < PROGRESS_EVERY_MS) continue
        progressAt = performance.now()
        onProgress?.(campaign)
      }
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
export async function readHistory(compiled: Compiled, job: Job): Promise<SimulationResult> {
  const worker = startWorker(compiled)
  try {
    return (await worker.ask(job))[0]!
  } finally {
    worker.stop()
  }
}

function startWorker({ worker }: Compiled) {
  const child = fork(worker, {
    execArgv: ['--max-semi-space-size=32'],
    // With maps.
    serialization: 'advanced',
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
  return {
    ask: (job: Job): Promise<SimulationResult[]> =>
      new Promise((resolve, reject) => {
        child.removeAllListeners()
        child.on('message', resolve as (results: unknown) => void)
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
