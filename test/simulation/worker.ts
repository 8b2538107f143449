import { drawFaults } from './faults.ts'
import type { Violation } from './invariants.ts'
import { drawSettings } from './settings.ts'
import { shrink } from './shrink.ts'
import { addTally, emptyTally, type SimulationResult, simulate, type Tally } from './simulate.ts'

/** What a worker process found for the seeds that it was given. */
export interface Report {
  readonly tally: Tally
  readonly failures: readonly { seed: number; violation: Violation }[]
  /** Of each seed, in order. */
  readonly hashes: readonly string[]
}

/** What a worker process is asked for. */
export type Job =
  /** Seeds from `from` to below `to`; with `untilFailure` no further than the first that fails. */
  | { kind: 'run'; from: number; to: number; untilFailure: boolean }
  /** One seed with a readable trace; `faults`: only those of its faults. */
  | { kind: 'replay'; seed: number; faults: readonly number[] | null }
  /** The same for a seed that fails, with the faults that matter. */
  | { kind: 'shrink'; seed: number }

async function work(job: Job): Promise<Report | SimulationResult> {
  switch (job.kind) {
    case 'run':
      return await run(job)
    case 'replay': {
      const all = drawFaults(job.seed, drawSettings(job.seed))
      const faults = job.faults === null ? all : all.filter(({ id }) => job.faults!.includes(id))
      return await simulate(job.seed, { trace: true, faults })
    }
    case 'shrink':
      return await shrink(await simulate(job.seed))
  }
}

async function run({ from, to, untilFailure }: Job & { kind: 'run' }): Promise<Report> {
  const tally = emptyTally()
  const failures: { seed: number; violation: Violation }[] = []
  const hashes: string[] = []
  for (let seed = from; seed < to; seed += 1) {
    const { hash, violation, tally: ofSeed } = await simulate(seed)
    hashes.push(hash)
    addTally(tally, ofSeed)
    if (violation !== null) failures.push({ seed, violation })
    if (violation !== null && untilFailure) break
  }
  return { tally, failures, hashes }
}

process.on('message', (job: Job) => {
  // Most errors are made for their type alone, and stacks are slow.
  Error.stackTraceLimit = job.kind === 'run' ? 0 : 10
  work(job).then(
    (report) => process.send!(report),
    (error: unknown) => {
      console.error(JSON.stringify(job), error)
      process.exit(1)
    },
  )
})
process.on('disconnect', () => process.exit(0))
