import { parseArgs } from 'node:util'
import { type Campaign, readHistory, runCampaign } from './campaign.ts'
import { type Compiled, compileWorker } from './compile.ts'
import { describe } from './faults.ts'
import { findMutation, MUTATIONS, tryMutations } from './mutations.ts'
import type { SimulationResult } from './simulate.ts'

const USAGE = `npm run simulate -- [options]
  --seeds N          so many seeds (default 1000)
  --from S           the first of them (default 1)
  --until-failure    stop at the first seed that fails
  --seed S           replay one seed with a readable trace; --faults 1,4 keeps these of its faults
  --mutation NAME    run with a fault put into the code
  --mutations        how many seeds it takes to find each of these faults`

const SEEDS = 1_000
/** Failing seeds that are shrunk and shown. */
const SHOWN = 3
const TRACE_LINES = 60

const { values } = parseArgs({
  options: {
    seeds: { type: 'string' },
    from: { type: 'string' },
    'until-failure': { type: 'boolean', default: false },
    seed: { type: 'string' },
    faults: { type: 'string' },
    mutation: { type: 'string' },
    mutations: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})

const seeds = values.seeds === undefined ? null : Number(values.seeds)
if (values.help) console.log(USAGE)
else if (values.mutations) process.exitCode = (await tryMutations(MUTATIONS, seeds ?? undefined)) ? 0 : 1
else {
  const { mutation } = values
  const compiled = await compileWorker(mutation === undefined ? null : findMutation(mutation))
  try {
    process.exitCode =
      values.seed === undefined ? await search(compiled) : await replay(compiled, Number(values.seed))
  } finally {
    compiled.remove()
  }
}

async function replay(compiled: Compiled, seed: number): Promise<number> {
  const faults = values.faults === undefined ? null : values.faults.split(',').map(Number)
  const history = await readHistory(compiled, { kind: 'replay', seed, faults })
  for (const line of history.lines) console.log(line)
  showSchedule(history)
  console.log(`hash ${history.hash}, ${history.tally.events} events`)
  return history.violation === null ? 0 : 1
}

async function search(compiled: Compiled): Promise<number> {
  const campaign = await runCampaign({
    compiled,
    from: Number(values.from ?? 1),
    seeds: seeds ?? SEEDS,
    untilFailure: values['until-failure'],
    onProgress: ({ seeds, failures, tally }) => {
      const failed = failures.map(({ seed }) => seed).join(' ')
      console.log(`${seeds} seeds, ${tally.hours.toFixed(0)} simulated hours, failed: ${failed || 'none'}`)
    },
  })
  await showFailures(compiled, campaign)
  showSummary(campaign)
  return campaign.failures.length === 0 ? 0 : 1
}

async function showFailures(compiled: Compiled, { failures }: Campaign): Promise<void> {
  for (const { seed } of failures.slice(0, SHOWN)) {
    const smallest = await readHistory(compiled, { kind: 'shrink', seed })
    console.log(`\nseed ${seed}, with the faults that matter:`)
    for (const line of smallest.lines.slice(-TRACE_LINES)) console.log(line)
    showSchedule(smallest)
    const ids = smallest.faults.map(({ id }) => id).join(',')
    console.log(`replay: npm run simulate -- --seed ${seed} --faults '${ids}'`)
  }
}

function showSchedule({ settings, faults, violation }: SimulationResult): void {
  console.log(JSON.stringify(settings))
  for (const fault of faults) console.log(`fault ${describe(fault)}`)
  console.log(violation === null ? 'every rule was kept' : `BROKEN ${violation.rule}: ${violation.detail}`)
}

function showSummary(campaign: Campaign): void {
  const { seeds, seconds, hash, failures, tally } = campaign
  const { hours, injected, lossCauses, sessions, lost, ...counts } = tally
  const rows = {
    seeds: `${seeds}, ${(seeds / seconds).toFixed(1)} a second`,
    'simulated hours': hours.toFixed(1),
    ...counts,
    sessions: `${sessions}, lost by a documented cause: ${lost}`,
    faults: list(injected),
    'loss causes': list(lossCauses),
    hash,
  }
  console.log()
  for (const [name, value] of Object.entries(rows)) console.log(`${name.padEnd(16)}${value}`)
  const rules = new Map<string, number[]>()
  for (const { seed, violation } of failures) {
    const seeds = rules.get(violation.rule) ?? []
    rules.set(violation.rule, seeds)
    seeds.push(seed)
  }
  for (const [rule, seeds] of rules)
    console.log(`BROKEN ${rule}: ${seeds.length} seeds: ${seeds.slice(0, 10).join(' ')}`)
  if (failures.length === 0) console.log('every rule was kept')
}

function list(counts: ReadonlyMap<string, number>): string {
  const sorted = [...counts].sort(([, a], [, b]) => b - a)
  return sorted.map(([name, count]) => `${name} ${count}`).join(', ') || 'none'
}
