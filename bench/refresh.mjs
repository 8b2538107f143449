// `npm run bench:refresh`: the cost of refreshing tokens, and of storing idle sessions.
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { moveToLoad } from './machine.mjs'
import { PAGE, requireServer } from './places.mjs'
import { createProcesses } from './processes.mjs'
import { measureAtRest } from './refresh/at-rest.mjs'
import { writeSection } from './report/page.mjs'
import { markdownTable, median } from './report/table.mjs'
import { whenAndWhere } from './report/versions.mjs'
import { startServices } from './services.mjs'

const HELP = `npm run bench:refresh -- [flags]
  --rounds <n>     rounds over the three ways to refresh (5)
  --seconds <s>    length of each (4)
  --count <n>      sessions that are due at once for the background (10000)
  --sessions <n>   sessions at rest (100000)
  --idle <s>       how long the idle replica is watched (20)
  --page <file>    the page to write (docs/benchmarks.md)
  --quick          small numbers, to see that it works; writes no page unless --page is given`

const WORKER = fileURLToPath(new URL('refresh/worker.mjs', import.meta.url))
const say = (line) => process.stderr.write(`${line}\n`)

const WAYS = [
  { way: 'plain', title: 'a bare loop: undici Pool, one POST, JSON.parse; nothing is stored' },
  { way: 'request', title: 'this server, a request finds its token due: read, lease, POST, seal, store' },
  { way: 'schedule', title: 'this server, in the background: the same, from the queue of due sessions' },
]

try {
  const options = readOptions()
  if (options.help) console.log(HELP)
  else await run(options)
} catch (error) {
  say(error instanceof Error ? (error.stack ?? error.message) : String(error))
  process.exitCode = 1
}

function readOptions() {
  const text = { type: 'string' }
  const flag = { type: 'boolean', default: false }
  const { values } = parseArgs({
    options: {
      rounds: text,
      seconds: text,
      count: text,
      sessions: text,
      idle: text,
      page: text,
      quick: flag,
      help: flag,
    },
  })
  const usual = values.quick
    ? { rounds: 1, seconds: 1, count: 500, sessions: 2_000, idle: 4 }
    : { rounds: 5, seconds: 4, count: 10_000, sessions: 100_000, idle: 20 }
  const numbers = Object.entries(usual).map(([name, value]) => [name, Number(values[name] ?? value)])
  for (const [name, value] of numbers) if (!(value > 0)) throw new Error(`--${name} must be a number above 0`)
  return {
    ...Object.fromEntries(numbers),
    help: values.help,
    page: values.page ?? (values.quick ? null : PAGE),
  }
}

async function run(options) {
  requireServer()
  moveToLoad()
  const processes = createProcesses()
  for (const signal of ['SIGINT', 'SIGTERM']) {
    process.once(signal, () => void processes.end().finally(() => process.exit(1)))
  }
  try {
    const services = await startServices(processes)
    await measureAll(services, options).finally(services.close)
  } finally {
    await processes.end()
  }
}

async function measureAll(services, options) {
  const refresh = refreshTable(await measureRefresh(services, options))
  console.log(`\n${refresh}\n`)
  const rest = restTable(
    await measureAtRest(services, { sessions: options.sessions, idleSeconds: options.idle, say }),
  )
  console.log(`\n${rest}\n`)
  if (options.page === null) return
  const { rounds, seconds, count } = options
  const how = `- ${rounds} rounds, ${seconds} s each (in the background: ${count} sessions), 64 token requests in flight`
  writeSection(options.page, 'refresh', `${whenAndWhere()}\n${how}\n\n${refresh}`)
  writeSection(options.page, 'rest', `${whenAndWhere()}\n\n${rest}`)
  say(`written: ${options.page}`)
}

async function measureRefresh(services, { rounds, seconds, count }) {
  const workers = []
  for (const { way, title } of WAYS) {
    // Tokens that are due at once, so the next refresh of the same session need not wait an hour.
    const tokenUrl = `${services.upstreamUrl}${way === 'request' ? '/due' : ''}/oauth/token`
    const settings = { way, redisPort: services.redisPort, tokenUrl, prefix: `${way}:` }
    const worker = await services.processes.start(process.execPath, [WORKER, JSON.stringify(settings)], {
      core: 'server',
      ready: /ready/,
      ipc: true,
    })
    const order = way === 'schedule' ? { count } : { seconds }
    workers.push({ title, results: [], stop: worker.stop, work: (factor) => ask(worker, order, factor) })
  }
  for (const { work } of workers) await work(0.25)
  for (let round = 1; round <= rounds; round += 1) {
    for (const worker of round % 2 === 1 ? workers : [...workers].reverse()) {
      const { granted } = await services.counts()
      const result = await worker.work(1)
      const asked = (await services.counts()).granted - granted
      // Exactly one token request for each refresh.
      if (asked !== result.refreshes)
        throw new Error(`${asked} token requests for ${result.refreshes} refreshes`)
      say(
        `round ${round}: ${Math.round(result.refreshes / result.seconds)}/s, ${result.cpu.toFixed(0)} µs: ${worker.title}`,
      )
      worker.results.push(result)
    }
  }
  for (const { stop } of workers) await stop()
  return workers
}

function ask(worker, order, factor) {
  const [[name, amount]] = Object.entries(order)
  return new Promise((resolve, reject) => {
    const onEnd = () => reject(new Error(`the worker ended:\n${worker.output()}`))
    worker.child.once('exit', onEnd)
    worker.child.once('message', (result) => {
      worker.child.off('exit', onEnd)
      resolve(result)
    })
    worker.child.send({ [name]: name === 'count' ? Math.ceil(amount * factor) : amount * factor })
  })
}

function refreshTable(workers) {
  const rows = workers.map(({ title, results }) => ({
    title,
    perSecond: median(results.map((result) => result.refreshes / result.seconds)),
    cpu: Math.min(...results.map((result) => result.cpu)),
  }))
  const columns = [
    ['', 'left', ({ title }) => title],
    ['refreshes/s', 'right', ({ perSecond }) => Math.round(perSecond).toLocaleString('en')],
    ['CPU µs/refresh', 'right', ({ cpu }) => cpu.toFixed(0)],
    ['× bare', 'right', ({ cpu }) => (cpu / rows[0].cpu).toFixed(1)],
  ]
  return markdownTable(columns, rows)
}

function restTable({ sessions, memoryEach, rates, cpuPercent, peak }) {
  const total = rates.reduce((sum, { rate }) => sum + rate, 0)
  const each = rates.map(({ name, rate }) => `${name} ${rate.toFixed(1)}`).join(', ')
  const rows = [
    ['sessions', sessions.toLocaleString('en')],
    ['memory in Redis for each, queue entry included', `${Math.round(memoryEach)} bytes`],
    [
      'Redis commands a second of one idle replica, those inside scripts too',
      `${total.toFixed(1)} (${each})`,
    ],
    ['CPU of the idle replica', cpuPercent === null ? '–' : `${cpuPercent.toFixed(1)} % of a core`],
    ['resident size of the idle replica', peak === null ? '–' : `${Math.round(peak / 1e6)} MB`],
  ]
  return markdownTable(
    [
      ['at rest', 'left', ([name]) => name],
      ['', 'left', ([, value]) => value],
    ],
    rows,
  )
}
