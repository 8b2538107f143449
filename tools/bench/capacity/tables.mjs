// The measured figures, and their extrapolation to stores larger than one machine.
import { readFileSync } from 'node:fs'
import { markdownTable, median } from '../report/table.mjs'

const LEFT_AND_LEFT = [
  ['', 'left', ([name]) => name],
  ['', 'left', ([, value]) => value],
]

export function capacityTable(figures) {
  const { masters, sessions, bytesEach, queueBytesEach, calls, due } = figures
  return markdownTable(LEFT_AND_LEFT, [
    ['sessions in the store', whole(sessions)],
    ['masters', whole(masters)],
    ['memory of one session, its queue entry included', `${whole(bytesEach)} bytes`],
    ['of which the queue entry', `${whole(queueBytesEach)} bytes`],
    ['`read`', latency(figures.read)],
    ['`replaceTokens`', latency(figures.replace)],
    ['`claimDue`, nothing due', latency(figures.idleClaim)],
    [`\`claimDue\`, ${whole(due)} due (1 %), up to 64 a call`, latency(figures.dueClaim)],
    ['`queueLength`', latency(figures.queueLength)],
    [`store commands of ${whole(calls)} refreshes, 64 at a time`, `${whole(figures.refreshesEach)} a second`],
    ['CPU of Redis for those of one refresh', micro(figures.redisCpuEach)],
    ['a new replica: start to `/readyz` 200', `${whole(median(figures.readyMs))} ms`],
    ['a new replica: start to its first call served', `${whole(median(figures.servedMs))} ms`],
  ])
}

const MASTER_BYTES = 16e9
/** Redis needs the remaining memory for buffers, fragmentation and the copy-on-write of a save. */
const FILLED = 0.7
/** Access tokens of an hour are refreshed five minutes ahead, and up to one minute later. */
const REFRESH_EVERY_SECONDS = 3_600 - 300 + 30
/** Share of a core for refreshes. The remaining share is for calls and peaks. */
const REPLICA_SHARE = 0.5

/** `benchmarks`: the page that holds the cost of one refresh. */
export function growthTable(figures, benchmarks) {
  const refreshCpu = refreshCost(readFileSync(benchmarks, 'utf8'))
  const columns = [10e6, 100e6].map((sessions) => growth(figures, refreshCpu, sessions))
  const row = (name, cell) => [name, ...columns.map(cell)]
  const known = figures.redisCpuEach !== null
  return markdownTable(
    [
      ['', 'left', ([name]) => name],
      ...columns.map(({ sessions }, at) => [
        `${whole(sessions / 1e6)} million sessions`,
        'right',
        (cells) => cells[at + 1],
      ]),
    ],
    [
      row('memory of the records and the queue', ({ bytes }) => `${whole(bytes / 1e9)} GB`),
      row('masters of 16 GB, filled to 70 %', ({ masters }) => whole(masters)),
      row('refreshes a second', ({ perSecond }) => whole(perSecond)),
      row('the same for one master', ({ perSecond, masters }) => whole(perSecond / masters)),
      ...(known
        ? [
            row(
              'one master: CPU for its refreshes',
              ({ masterRefreshShare }) => `${percent(masterRefreshShare)} of a core`,
            ),
            row(
              `all processes: CPU for the refreshes, ${refreshCpu} µs each`,
              ({ refreshCores }) => `${refreshCores.toFixed(1)} cores`,
            ),
            row('processes, each half a core busy with refreshes', ({ processes }) => whole(processes)),
          ]
        : []),
    ],
  )
}

function growth({ bytesEach, redisCpuEach }, refreshCpu, sessions) {
  const bytes = sessions * bytesEach
  const masters = Math.ceil(bytes / (MASTER_BYTES * FILLED))
  const perSecond = sessions / REFRESH_EVERY_SECONDS
  const refreshCores = (perSecond * refreshCpu) / 1e6
  return {
    ...{ sessions, bytes, masters, perSecond, refreshCores },
    masterRefreshShare: ((perSecond / masters) * redisCpuEach) / 1e6,
    processes: Math.ceil(refreshCores / REPLICA_SHARE),
  }
}

/** CPU in microseconds of one background refresh, as recorded by `npm run bench:refresh`. */
function refreshCost(page) {
  const [, cost] = /^\| this server, in the background[^|]*\|[^|]*\| (\d+)\b/m.exec(page) ?? []
  if (cost === undefined)
    throw new Error('docs/benchmarks.md has no cost of a refresh: run npm run bench:refresh')
  return Number(cost)
}

function latency(milliseconds) {
  const sorted = milliseconds.toSorted((a, b) => a - b)
  const at = (part) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))]
  return `p50 ${at(0.5).toFixed(2)} ms, p99 ${at(0.99).toFixed(2)} ms`
}

const whole = (number) => Math.round(number).toLocaleString('en')
const percent = (part) => `${(part * 100).toFixed(1)} %`
const micro = (microseconds) => (microseconds === null ? '–' : `${microseconds.toFixed(1)} µs`)
