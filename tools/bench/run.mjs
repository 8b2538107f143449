// `npm run bench`: the cost of one request through this server, compared with other servers that do the same work.
// Starts all processes on 127.0.0.1, prints a table, and writes docs/benchmarks.md with its chart.
import { writeFileSync } from 'node:fs'
import { CANDIDATES, installedOf } from './candidates/all.mjs'
import { chooseLoad } from './load/load.mjs'
import { HELP, readOptions } from './options.mjs'
import { runProgram, say, withServices } from './program.mjs'
import { barChart } from './report/chart.mjs'
import { writeRounds, writeSection } from './report/page.mjs'
import { proxyTable, resolutionLine, rowsOf } from './report/table.mjs'
import { conditions } from './report/versions.mjs'
import { runRounds } from './rounds.mjs'

const CHOICES = CANDIDATES.map(({ name }) => name)
await runProgram({ help: HELP, read: () => readOptions(process.argv.slice(2), CHOICES), run })

async function run(options) {
  const candidates = installedOf(options.only, say)
  const kind = chooseLoad(options.load)
  await withServices(async (started) => {
    const services = { ...started, sessions: options.sessions }
    if (candidates.length > 0) await measureAll({ services, candidates, options, kind })
  })
}

async function measureAll({ services, candidates, options, kind }) {
  const results = await runRounds({ services, candidates, sizes: options.sizes, options, kind, say })
  const sections = [conditions({ options, kind, candidates })]
  let chart = null
  for (const [at, size] of options.sizes.entries()) {
    const rows = rowsOf(candidates, results[at])
    const heading = `### Responses of ${size.kilobytes} KB, ${size.connections} connections`
    const text = `${heading}\n\n${proxyTable(rows)}\n\n${resolutionLine(results[at])}`
    sections.push(text)
    console.log(`\n${text}`)
    chart ??= chartOf(rows, size)
  }
  if (options.page === null) return
  writeSection(options.page, 'proxy', sections.join('\n\n'))
  const rounds = options.sizes.map((size, at) => ({ ...size, candidates: Object.fromEntries(results[at]) }))
  writeRounds(options.page, { conditions: sections[0].split('\n'), sizes: rounds })
  if (chart !== null) writeFileSync(options.page.replace(/(\.md)?$/, '.svg'), chart)
  say(`written: ${options.page}`)
}

function chartOf(rows, { kilobytes }) {
  if (rows.some(({ cpu }) => cpu === null)) return null
  return barChart({
    title: `CPU time of one request, ${kilobytes} KB response, microseconds (less is better)`,
    bars: rows.map(({ name, title, cpu, ratio }) => ({
      label: title,
      value: cpu.middle,
      text:
        ratio === null ? cpu.middle.toFixed(0) : `${cpu.middle.toFixed(0)} (× ${ratio.middle.toFixed(2)})`,
      own: name.startsWith('ours'),
    })),
  })
}
