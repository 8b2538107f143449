// `npm run bench:capacity`: memory and latency of a Redis full of sessions, the start time of a replica
// on it, and the extrapolation to ten and a hundred million sessions.
import { loadavg } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { startMasters } from './capacity/masters.mjs'
import { measureCapacity } from './capacity/measure.mjs'
import { capacityTable, growthTable } from './capacity/tables.mjs'
import { ROOT } from './places.mjs'
import { readNumbers, runProgram, say, withServices } from './program.mjs'
import { writeSection } from './report/page.mjs'
import { whenAndWhere } from './report/versions.mjs'

const HELP = `npm run bench:capacity -- [flags]
  --sessions <n>   sessions in the store (1000000; each needs about 3 KB of memory)
  --masters <n>    masters that share them: a Cluster, or one Redis (3)
  --calls <n>      calls of each kind whose latency is taken (5000)
  --starts <n>     replicas that are started one after the other (5)
  --page <file>    the page to write (none; ours is docs/benchmarks.md)`

const USUAL = { sessions: 1_000_000, masters: 3, calls: 5_000, starts: 5 }

await runProgram({ help: HELP, read: readOptions, run })

function readOptions() {
  const text = { type: 'string' }
  const { values } = parseArgs({
    options: {
      sessions: text,
      masters: text,
      calls: text,
      starts: text,
      page: text,
      help: { type: 'boolean', default: false },
    },
  })
  return { ...readNumbers(values, USUAL), help: values.help, page: values.page ?? null }
}

async function run(options) {
  const load = loadavg()[0].toFixed(1)
  await withServices(async (services) => {
    const masters = await startMasters(services, options.masters)
    const figures = await measureCapacity({ services, masters, options, say })
    const measured = capacityTable(figures)
    const growth = growthTable(figures, join(ROOT, 'docs', 'benchmarks.md'))
    console.log(`\n${measured}\n\n${growth}\n`)
    if (options.page === null) return
    const machine = `${whenAndWhere()}\n- load average of the machine before the run: ${load}`
    writeSection(options.page, 'capacity', `${machine}\n\n${measured}`)
    writeSection(options.page, 'growth', growth)
    say(`written: ${options.page}`)
  })
}
