import { drawFaults } from './faults.ts'
import { drawSettings } from './settings.ts'
import { shrink } from './shrink.ts'
import { type SimulationResult, simulate } from './simulate.ts'

/** What a worker process is asked for. */
export type Job =
  /** Seeds from `from` to below `to`; with `untilFailure` no further than the first that fails. */
  | { kind: 'run'; from: number; to: number; untilFailure: boolean }
  /** One seed with a readable trace; `faults`: only those of its faults. */
  | { kind: 'replay'; seed: number; faults: readonly number[] | null }
  /** The same for a seed that fails, with the faults that matter. */
  | { kind: 'shrink'; seed: number }

async function work(job: Job): Promise<SimulationResult[]> {
  switch (job.kind) {
    case 'run': {
      const results: SimulationResult[] = []
      for (let seed = job.from; seed < job.to; seed += 1) {
        const result = await simulate(seed)
        results.push(result)
        if (result.violation !== null && job.untilFailure) break
      }
      return results
    }
    case 'replay': {
      const all = drawFaults(job.seed, drawSettings(job.seed))
      const faults = all.filter(({ id }) => job.faults?.includes(id) ?? true)
      return [await simulate(job.seed, { trace: true, faults })]
    }
    case 'shrink':
      return [await shrink(await simulate(job.seed))]
  }
}

process.on('message', (job: Job) => {
  // Most errors are made for their type alone, and stacks are slow.
  Error.stackTraceLimit = job.kind === 'run' ? 0 : 10
  work(job).then(
    (results) => process.send!(results),
    (error: unknown) => {
      console.error(JSON.stringify(job), error)
      process.exit(1)
    },
  )
})
process.on('disconnect', () => process.exit(0))
