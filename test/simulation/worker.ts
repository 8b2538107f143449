import { drawFaults, type FaultKind } from './faults.ts'
import type { LossCause, Violation } from './invariants.ts'
import { drawSettings } from './settings.ts'
import { shrink } from './shrink.ts'
import { type SimulationResult, simulate } from './simulate.ts'

/** What a worker process found for the seeds that it was given. */
export interface Report {
  readonly seeds: number
  readonly hours: number
  readonly events: number
  readonly calls: number
  readonly sessions: number
  readonly presentations: number
  readonly lost: number
  readonly injected: readonly (readonly [FaultKind, number])[]
  readonly lossCauses: readonly (readonly [LossCause, number])[]
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

/** A history to be read. */
export type Replay = Pick<SimulationResult, 'settings' | 'faults' | 'violation' | 'hash' | 'lines' | 'events'>

async function work(job: Job): Promise<Report | Replay> {
  switch (job.kind) {
    case 'run':
      return await run(job)
    case 'replay': {
      const all = drawFaults(job.seed, drawSettings(job.seed))
      const faults = job.faults === null ? all : all.filter(({ id }) => job.faults!.includes(id))
      return readable(await simulate(job.seed, { trace: true, faults }))
    }
    case 'shrink':
      return readable(await shrink(await simulate(job.seed)))
  }
}

function readable({ settings, faults, violation, hash, lines, events }: SimulationResult): Replay {
  return { settings, faults, violation, hash, lines, events }
}

async function run({ from, to, untilFailure }: Job & { kind: 'run' }): Promise<Report> {
  const injected = new Map<FaultKind, number>()
  const lossCauses = new Map<LossCause, number>()
  const failures: { seed: number; violation: Violation }[] = []
  const hashes: string[] = []
  const sums = { hours: 0, events: 0, calls: 0, sessions: 0, presentations: 0, lost: 0 }
  for (let seed = from; seed < to; seed += 1) {
    const result = await simulate(seed)
    hashes.push(result.hash)
    sums.hours += result.simulatedMs / 3_600_000
    sums.events += result.events
    sums.calls += result.calls
    sums.sessions += result.sessions
    sums.presentations += result.presentations
    sums.lost += result.lost
    for (const [kind, count] of result.injected) injected.set(kind, (injected.get(kind) ?? 0) + count)
    for (const [cause, count] of result.lossCauses)
      lossCauses.set(cause, (lossCauses.get(cause) ?? 0) + count)
    if (result.violation !== null) failures.push({ seed, violation: result.violation })
    if (result.violation !== null && untilFailure) break
  }
  return {
    ...sums,
    seeds: hashes.length,
    injected: [...injected],
    lossCauses: [...lossCauses],
    failures,
    hashes,
  }
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
