// The figures of all rounds as one Markdown table.

export const median = (values) => {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}

/**
 * One row for each candidate. CPU is the minimum of all rounds: other processes on the machine can only add
 * to it. The resident size is the maximum, and all other figures are medians.
 */
export function rowsOf(candidates, results) {
  const rows = candidates.map(({ name, title }) => {
    const rounds = results.get(name)
    const values = (key) => rounds.map((round) => round[key]).filter((value) => value !== null)
    const least = (list) => (list.length === 0 ? null : Math.min(...list))
    return {
      name,
      title,
      perSecond: median(values('perSecond')),
      p50: median(values('p50')),
      p99: median(values('p99')),
      cpu: least(values('cpu')),
      cpuMedian: values('cpu').length === 0 ? null : median(values('cpu')),
      peak: values('peak').length === 0 ? null : Math.max(...values('peak')),
      redisCommands: median(values('redisCommands')),
    }
  })
  const reference = rows.find(({ name }) => name === 'ours')?.cpu ?? null
  return rows.map((row) => ({
    ...row,
    ratio: reference === null || row.cpu === null ? null : row.cpu / reference,
  }))
}

const COLUMNS = [
  ['', 'left', ({ title }) => title],
  ['requests/s', 'right', ({ perSecond }) => Math.round(perSecond).toLocaleString('en')],
  ['p50 ms', 'right', ({ p50 }) => p50.toFixed(1)],
  ['p99 ms', 'right', ({ p99 }) => p99.toFixed(0)],
  [
    'CPU µs/request (median)',
    'right',
    ({ cpu, cpuMedian }) => (cpu === null ? '–' : `${cpu.toFixed(1)} (${cpuMedian.toFixed(1)})`),
  ],
  ['× ours', 'right', ({ ratio }) => (ratio === null ? '–' : ratio.toFixed(2))],
  ['Redis commands/request', 'right', ({ redisCommands }) => Math.max(0, redisCommands).toFixed(1)],
  ['RSS MB', 'right', ({ peak }) => (peak === null ? '–' : Math.round(peak / 1e6).toString())],
]

const FOR_WORKERS = ['', 'requests/s', 'p50 ms', 'CPU µs/request (median)', 'RSS MB']

export function workersTable(rows) {
  return markdownTable(
    COLUMNS.filter(([heading]) => FOR_WORKERS.includes(heading)),
    rows,
  )
}

export function proxyTable(rows) {
  return markdownTable(COLUMNS, rows)
}

/** Columns are `[heading, 'left' or 'right', cell of a row]`. */
export function markdownTable(columns, rows) {
  const lines = [
    columns.map(([heading]) => heading),
    columns.map(([, side]) => (side === 'right' ? '--:' : ':--')),
    ...rows.map((row) => columns.map(([, , cell]) => cell(row))),
  ]
  return lines.map((cells) => `| ${cells.join(' | ')} |`).join('\n')
}
