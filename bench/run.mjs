// `npm run bench`: the cost of one request through this server, compared with other servers that do the same work.
// Starts all processes on 127.0.0.1, prints a table, and writes docs/benchmarks.md with its chart.
import { spawnSync } from 'node:child_process'
import { existsSync, writeFileSync } from 'node:fs'
import { CANDIDATES, isInstalled, WORKERS } from './candidates/all.mjs'
import { chooseLoad } from './load/load.mjs'
import { moveToLoad } from './machine.mjs'
import { HELP, readOptions } from './options.mjs'
import { BENCH, PEERS, requireServer } from './places.mjs'
import { createProcesses } from './processes.mjs'
import { barChart } from './report/chart.mjs'
import { writeSection } from './report/page.mjs'
import { proxyTable, rowsOf, workersTable } from './report/table.mjs'
import { conditions, whenAndWhere } from './report/versions.mjs'
import { runRounds } from './rounds.mjs'

const say = (line) => process.stderr.write(`${line}\n`)

try {
  const options = readOptions(process.argv.slice(2), [...CANDIDATES.map(({ name }) => name), 'workers'])
  if (options.help) console.log(HELP)
  else await run(options)
} catch (error) {
  say(error instanceof Error ? (error.stack ?? error.message) : String(error))
  process.exitCode = 1
}

async function run(options) {
  requireServer()
  const wanted = CANDIDATES.filter(({ name }) => options.only.includes(name))
  const candidates = wanted.filter(isInstalled)
  for (const { name } of wanted.filter((each) => !isInstalled(each)))
    say(`${name} is not installed: left out`)
  if (candidates.some(({ needsPeers }) => needsPeers)) installPeers()
  const kind = chooseLoad(options.load)
  moveToLoad()

  const processes = createProcesses()
  for (const signal of ['SIGINT', 'SIGTERM']) {
    process.once(signal, () => void processes.end().finally(() => process.exit(1)))
  }
  try {
    const { startServices } = await import('./services.mjs')
    const services = { ...(await startServices(processes)), sessions: options.sessions }
    const measures = async () => {
      if (candidates.length > 0) await measureAll({ services, candidates, options, kind })
      if (options.only.includes('workers')) await measureWorkers({ services, options, kind })
    }
    await measures().finally(services.close)
  } finally {
    await processes.end()
  }
}

async function measureAll({ services, candidates, options, kind }) {
  const started = []
  for (const candidate of candidates) {
    say(`starting ${candidate.name}`)
    started.push({ ...candidate, started: await candidate.start(services) })
  }
  const sections = [conditions({ options, kind, candidates })]
  let chart = null
  for (const size of options.sizes) {
    const results = await runRounds({ services, candidates: started, size, options, kind, say })
    const rows = rowsOf(candidates, results)
    const heading = `### Answers of ${size.kilobytes} KB, ${size.connections} connections; the workers may use every core, and share them with the load`
    sections.push(`${heading}\n\n${proxyTable(rows)}`)
    console.log(`\n${heading}\n\n${proxyTable(rows)}`)
    chart ??= chartOf(rows, size)
  }
  for (const { started: candidate } of started) candidate.stop?.()
  if (options.page === null) return
  writeSection(options.page, 'proxy', sections.join('\n\n'))
  if (chart !== null) writeFileSync(options.page.replace(/(\.md)?$/, '.svg'), chart)
  say(`written: ${options.page}`)
}

async function measureWorkers({ services, options, kind }) {
  const [size] = options.sizes
  const started = []
  for (const candidate of WORKERS) {
    say(`starting ${candidate.name}`)
    started.push({ ...candidate, started: await candidate.start(services) })
  }
  const results = await runRounds({ services, candidates: started, size, options, kind, say })
  const table = workersTable(rowsOf(WORKERS, results))
  console.log(`\n### Workers\n\n${table}`)
  if (options.page === null) return
  const about = `- ${options.rounds} rounds of ${options.seconds} s, answers of ${size.kilobytes} KB, ${size.connections} connections`
  writeSection(options.page, 'workers', `${whenAndWhere()}\n${about}\n\n${table}`)
}

function chartOf(rows, { kilobytes }) {
  if (rows.some(({ cpu }) => cpu === null)) return null
  return barChart({
    title: `CPU time of one request, ${kilobytes} KB answer, microseconds (less is better)`,
    bars: rows.map(({ name, title, cpu, ratio }) => ({
      label: title,
      value: cpu,
      text: ratio === null ? cpu.toFixed(0) : `${cpu.toFixed(0)} (× ${ratio.toFixed(2)})`,
      own: name.startsWith('ours'),
    })),
  })
}

function installPeers() {
  if (existsSync(PEERS)) return
  say('installing the other servers into bench/node_modules')
  const { status } = spawnSync('npm', ['ci', '--prefix', BENCH, '--no-audit', '--no-fund'], {
    stdio: ['ignore', 2, 2],
  })
  if (status !== 0) throw new Error('npm ci --prefix bench failed')
}
