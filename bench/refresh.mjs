// `npm run bench:refresh`: the cost of refreshing tokens, and of storing idle sessions.
import { parseArgs } from 'node:util'
import { PAGE } from './places.mjs'
import { readNumbers, runProgram, say, withServices } from './program.mjs'
import { measureAtRest } from './refresh/at-rest.mjs'
import { order, startWorker } from './refresh/workers.mjs'
import { writeRounds, writeSection } from './report/page.mjs'
import { errorLine, markdownTable, range, spreadOf } from './report/table.mjs'
import { whenAndWhere } from './report/versions.mjs'
import { turnsOf } from './rounds.mjs'

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
  const how = `- ${rounds} rounds, each way in a new process in each: ${warmup} s to warm up, then ${seconds} s (in the background: ${count} sessions) in ${turnsOf(seconds)} turns with the others; 64 token requests in flight`
  writeSection(options.page, 'refresh', `${whenAndWhere()}\n${how}\n\n${refresh}`)
  writeRounds(options.page.replace(/(\.md)?$/, '-refresh'), Object.fromEntries(results))
  writeSection(options.page, 'rest', `${whenAndWhere()}\n\n${rest}`)
  say(`written: ${options.page}`)
}

/** The results of each way, one for each round: new processes, a warm-up, then turns as in rounds.mjs. */
async function measureRefresh(services, { rounds, seconds, count, warmup }) {
  const results = new Map(WAYS.map(({ way }) => [way, []]))
  const turns = turnsOf(seconds)
  const jobOf = (way, length) =>
    way === 'schedule' ? { count: Math.ceil((count * length) / seconds) } : { seconds: length }
  for (let round = 1; round <= rounds; round += 1) {
    const running = []
    for (const { way, title } of round % 2 === 1 ? WAYS : [...WAYS].reverse())
      running.push({ way, title, worker: await startWorker(services, { way }), jobs: [] })
    for (const { way, worker } of running) await order(worker, jobOf(way, warmup))
    for (let turn = 1; turn <= turns; turn += 1)
      for (const { way, worker, jobs } of running)
        jobs.push(await refreshed(services, worker, jobOf(way, seconds / turns)))
    for (const { way, title, worker, jobs } of running) {
      const total = (key) => jobs.reduce((sum, job) => sum + job[key], 0)
      const refreshes = total('refreshes')
      const result = { perSecond: refreshes / total('seconds'), cpu: total('cpu') / refreshes }
      say(`round ${round}: ${Math.round(result.perSecond)}/s, ${result.cpu.toFixed(0)} µs: ${title}`)
      results.get(way).push(result)
      await worker.stop()
    }
  }
  return results
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
  const ratiosOf = (way) => results.get(way).map(({ cpu }, round) => cpu / results.get('plain')[round].cpu)
  const rows = WAYS.map(({ way, title }) => ({
    title,
    perSecond: spreadOf(results.get(way).map(({ perSecond }) => perSecond)),
    cpu: spreadOf(results.get(way).map(({ cpu }) => cpu)),
    ratio: spreadOf(ratiosOf(way)),
  }))
  const columns = [
    ['', 'left', ({ title }) => title],
    ['refreshes/s', 'right', ({ perSecond }) => Math.round(perSecond.middle).toLocaleString('en')],
    ['CPU µs/refresh', 'right', ({ cpu }) => range(cpu, 0)],
    ['× bare', 'right', ({ ratio }) => range(ratio, 1)],
  ]
  const resolution = errorLine('in the background', ratiosOf('schedule'))
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
