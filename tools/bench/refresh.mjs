// `npm run bench:refresh`: the cost of refreshing tokens, and of storing idle sessions.
import { parseArgs } from 'node:util'
import { PAGE } from './places.mjs'
import { readNumbers, runProgram, say, withServices } from './program.mjs'
import { measureAtRest } from './refresh/at-rest.mjs'
import { order, startWorker } from './refresh/workers.mjs'
import { writeRounds, writeSection } from './report/page.mjs'
import { errorLine, markdownTable, range, spreadOf } from './report/table.mjs'
import { whenAndWhere } from './report/versions.mjs'
import { compareInTurns } from './turns.mjs'

const HELP = `npm run bench:refresh -- [flags]
  --rounds <n>     rounds over the ways to refresh, each in new processes (7)
  --seconds <s>    length of each (4), in turns of a second with the others
  --count <n>      sessions for the background in this time (10000)
  --warmup <s>     the same before it, in the same process (5)
  --sessions <n>   sessions at rest (100000)
  --idle <s>       how long the idle replica is watched (20)
  --page <file>    the page to write (docs/benchmarks.md)
  --quick          small numbers, to see that it works; writes no page unless --page is given`

const WAYS = [
  { way: 'plain', title: 'a bare loop: undici Pool, one POST, JSON.parse; nothing is stored' },
  {
    way: 'libraries',
    title: 'the libraries alone: openid-client, three commands of ioredis, one seal; no server around them',
  },
  { way: 'request', title: 'this server, a request finds its token due: read, lease, POST, seal, store' },
  { way: 'schedule', title: 'this server, in the background: the same, from the queue of due sessions' },
]

await runProgram({ help: HELP, read: readOptions, run })

function readOptions() {
  const text = { type: 'string' }
  const flag = { type: 'boolean', default: false }
  const { values } = parseArgs({
    options: {
      rounds: text,
      seconds: text,
      count: text,
      warmup: text,
      sessions: text,
      idle: text,
      page: text,
      quick: flag,
      help: flag,
    },
  })
  const usual = values.quick
    ? { rounds: 1, seconds: 1, count: 500, warmup: 0.5, sessions: 2_000, idle: 4 }
    : { rounds: 7, seconds: 4, count: 10_000, warmup: 5, sessions: 100_000, idle: 20 }
  return {
    ...readNumbers(values, usual),
    help: values.help,
    page: values.page ?? (values.quick ? null : PAGE),
  }
}

async function run(options) {
  await withServices((services) => measureAll(services, options))
}

async function measureAll(services, options) {
  const results = await measureRefresh(services, options)
  const refresh = refreshTable(results)
  console.log(`\n${refresh}\n`)
  const rest = restTable(
    await measureAtRest(services, { sessions: options.sessions, idleSeconds: options.idle, say }),
  )
  console.log(`\n${rest}\n`)
  if (options.page === null) return
  const { rounds, seconds, count, warmup } = options
  const how = `- ${rounds} rounds, each way in a new process in each: ${warmup} s to warm up, then ${seconds} s (in the background: ${count} sessions), both in turns with the others; 64 token requests in flight`
  writeSection(options.page, 'refresh', `${whenAndWhere()}\n${how}\n\n${refresh}`)
  writeRounds(options.page.replace(/(\.md)?$/, '-refresh'), Object.fromEntries(results))
  writeSection(options.page, 'rest', `${whenAndWhere()}\n\n${rest}`)
  say(`written: ${options.page}`)
}

/** The results of each way, one for each round, see turns.mjs. */
async function measureRefresh(services, { count, ...options }) {
  const results = new Map(WAYS.map(({ way }) => [way, []]))

  async function start({ way }) {
    const worker = await startWorker(services, { way })
    const jobOf = (seconds) =>
      way === 'schedule' ? { count: Math.ceil((count * seconds) / options.seconds) } : { seconds }
    return {
      warmUp: (_, seconds) => order(worker, jobOf(seconds)),
      takeTurn: (_, seconds) => refreshed(services, worker, jobOf(seconds)),
      stop: worker.stop,
    }
  }

  await compareInTurns({
    candidates: WAYS,
    reference: WAYS.find(({ way }) => way === 'plain'),
    kinds: ['refresh'],
    options: { ...options, warmupSeconds: options.warmup },
    start,
    add({ round, candidate: { way, title }, loads, besideLoads }) {
      const { perSecond, cpu } = resultOf(loads)
      say(`round ${round}: ${Math.round(perSecond)}/s, ${cpu.toFixed(0)} µs: ${title}`)
      results.get(way).push({ perSecond, cpu, ratio: cpu / resultOf(besideLoads).cpu })
    },
  })
  return results
}

/** What the jobs of one way cost together. */
function resultOf(jobs) {
  const total = (key) => jobs.reduce((sum, job) => sum + job[key], 0)
  const refreshes = total('refreshes')
  return { perSecond: refreshes / total('seconds'), cpu: total('cpu') / refreshes }
}

/** Throws unless there was exactly one token request for each refresh. */
async function refreshed(services, worker, job) {
  const { granted } = await services.counts()
  const result = await order(worker, job)
  const requests = (await services.counts()).granted - granted
  if (requests !== result.refreshes)
    throw new Error(`${requests} token requests for ${result.refreshes} refreshes`)
  return result
}

function refreshTable(results) {
  const rows = WAYS.map(({ way, title }) => {
    const of = (key) => spreadOf(results.get(way).map((round) => round[key]))
    return { title, perSecond: of('perSecond'), cpu: of('cpu'), ratio: of('ratio') }
  })
  const columns = [
    ['', 'left', ({ title }) => title],
    ['refreshes/s', 'right', ({ perSecond }) => Math.round(perSecond.middle).toLocaleString('en')],
    ['CPU µs/refresh', 'right', ({ cpu }) => range(cpu, 0)],
    ['× bare', 'right', ({ ratio }) => range(ratio, 1)],
  ]
  const resolution = errorLine(
    'in the background',
    results.get('schedule').map(({ ratio }) => ratio),
  )
  return `${markdownTable(columns, rows)}\n\n${resolution}`
}

function restTable({ sessions, memoryEach, packedEach, rates, cpuPercent, peak }) {
  const total = rates.reduce((sum, { rate }) => sum + rate, 0)
  const each = rates.map(({ name, rate }) => `${name} ${rate.toFixed(1)}`).join(', ')
  const rows = [
    ['sessions', sessions.toLocaleString('en')],
    ['memory in Redis for each, queue entry included', `${Math.round(memoryEach)} bytes`],
    ['the same with `hash-max-listpack-value 2048` in Redis', `${Math.round(packedEach)} bytes`],
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
