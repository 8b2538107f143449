// `npm run bench:latency`: what a call takes at a normal load, compared with a direct one, and while something disturbs it.
import { parseArgs } from 'node:util'
import { CANDIDATES, installedOf } from './candidates/all.mjs'
import { measureCandidates } from './latency/candidates.mjs'
import { runScenario, SCENARIOS } from './latency/scenarios.mjs'
import { addedTables, scenarioTable } from './latency/tables.mjs'
import { chooseLoad } from './load/load.mjs'
import { PAGE } from './places.mjs'
import { readNumbers, runProgram, say, withServices } from './program.mjs'
import { writeRounds, writeSection } from './report/page.mjs'
import { machineLines } from './report/versions.mjs'

const HELP = `npm run bench:latency -- [flags]
  --rounds <n>     rounds over all candidates (3), each in new processes; every second one in reverse order
  --seconds <s>    length of one load at a fixed rate (2.5)
  --warmup <s>     full load before it (6), and half of that to learn what the core can do
  --shares <a,b>   rates, in percent of what the core can do (10,50,80)
  --during <n>     the rate during a disturbance, in percent (20)
  --calm <s>       load before and after that (3)
  --count <n>      sessions that are due at once for the background (10000)
  --sessions <n>   signed-in browsers that take turns (100)
  --only <a,b>     only these candidates; also refresh, failover, restart
  --load <how>     the full load: wrk or sockets (wrk where it is installed)
  --page <file>    the page to write (docs/benchmarks.md)
  --quick          one round, short loads: to see that it works; writes no page unless --page is given`

const USUAL = { rounds: 3, seconds: 2.5, warmup: 6, during: 20, calm: 3, count: 10_000, sessions: 100 }
const QUICK = { rounds: 1, seconds: 0.5, warmup: 0.5, during: 20, calm: 1, count: 500, sessions: 20 }
/** Other configurations of a server that is measured anyway. */
const NOT_HERE = new Set([
  'ours-again',
  'ours-uncached',
  'ours-logged',
  'ours-traced',
  'bare-fields',
  'bare-fastify',
  'nginx-tuned',
])

await runProgram({ help: HELP, read: readOptions, run })

function readOptions() {
  const text = { type: 'string' }
  const flag = { type: 'boolean', default: false }
  const names = [...Object.keys(USUAL), 'shares', 'only', 'load', 'page']
  const { values } = parseArgs({
    options: { ...Object.fromEntries(names.map((name) => [name, text])), quick: flag, help: flag },
  })
  const usual = values.quick ? QUICK : USUAL
  const shares = (values.shares ?? '10,50,80').split(',').map(Number)
  for (const share of shares) readNumbers({}, { shares: share })
  const known = [
    ...CANDIDATES.map(({ name }) => name).filter((name) => !NOT_HERE.has(name)),
    ...Object.keys(SCENARIOS),
  ]
  const only = values.only?.split(',') ?? known
  for (const name of only)
    if (!known.includes(name)) throw new Error(`--only: ${name} is none of ${known.join(', ')}`)
  const { warmup, calm, ...rest } = readNumbers(values, usual)
  return {
    ...rest,
    warmupSeconds: warmup,
    calmSeconds: calm,
    shares,
    only,
    kind: chooseLoad(values.load ?? null),
    help: values.help,
    page: values.page ?? (values.quick || values.only ? null : PAGE),
  }
}

async function run(options) {
  const candidates = installedOf(options.only, say)
  await withServices((services) =>
    measureAll({ ...services, sessions: options.sessions }, candidates, options),
  )
}

async function measureAll(services, candidates, options) {
  const results = await measureCandidates({ services, candidates, options, say })
  const scenarios = []
  for (const name of Object.keys(SCENARIOS).filter((each) => options.only.includes(each))) {
    say(`measuring: ${name}`)
    const scenario = await runScenario(services, name, options)
    if (scenario === null) say(`${name}: neither haproxy nor nginx is installed: left out`)
    else scenarios.push({ name, ...scenario })
  }
  const about = conditionsOf(candidates, options)
  const parts = []
  if (candidates.length > 0) parts.push(addedTables(candidates, results, options.shares))
  if (scenarios.length > 0) {
    const rates = scenarios.map(({ rate }) => Math.round(rate).toLocaleString('en')).join(', ')
    const heading = `### At ${options.during} % of a core, during a refresh wave, a failover or a restart`
    parts.push(`${heading}\n\n${scenarioTable(scenarios)}\n\nRequests a second, in this order: ${rates}.`)
  }
  console.log(`\n${parts.join('\n\n')}\n`)
  if (options.page === null) return
  writeSection(options.page, 'latency', [about, ...parts].join('\n\n'))
  writeRounds(options.page.replace(/(\.md)?$/, '-latency'), {
    conditions: about.split('\n'),
    candidates: results,
    scenarios,
  })
  say(`written: ${options.page}`)
}

function conditionsOf(candidates, { rounds, seconds, sessions, kind }) {
  const how = `- ${rounds} rounds, each candidate in a new process in each: ${seconds} s at each rate through it, then ${seconds} s direct; ${sessions} browsers taking turns, responses of 1 KB, 64 connections, random gaps`
  return `${machineLines({ kind, candidates })}\n${how}`
}
