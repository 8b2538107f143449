// The figures of all rounds as one Markdown table: medians, and the smallest and largest in brackets.

export const median = (values) => {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}

/** Median and spread of values; null where there is none. */
export function spreadOf(values) {
  const known = values.filter((value) => value !== null)
  return known.length === 0
    ? null
    : { least: Math.min(...known), middle: median(known), most: Math.max(...known) }
}

/** One row for each candidate, of medians over all rounds. `ratio` compares with bare `node:http`, round by round. */
export function rowsOf(candidates, results) {
  return candidates.map(({ name, title }) => {
    const rounds = results.get(name)
    const of = (key) => spreadOf(rounds.map((round) => round[key]))
    return {
      name,
      title,
      perSecond: of('perSecond'),
      cpu: of('cpu'),
      peak: of('peak'),
      redisCommands: of('redisCommands'),
      ratio: of('ratio'),
    }
  })
}

/**
 * Twice the standard error of the median of ratios, in percent; null where there are too few. The median of n normally
 * distributed values has 1.25 times the error of their mean.
 */
function errorPercent(ratios) {
  if (ratios.length < 3) return null
  const mean = ratios.reduce((sum, ratio) => sum + ratio, 0) / ratios.length
  const variance = ratios.reduce((sum, ratio) => sum + (ratio - mean) ** 2, 0) / (ratios.length - 1)
  return (100 * 2 * 1.2533 * Math.sqrt(variance / ratios.length)) / median(ratios)
}

const TOO_FEW = 'Too few rounds to say which difference this run can resolve.'

/** Which difference a run can resolve, by the ratios of two equal candidates. */
export function resolutionLine(results) {
  const [first, second] = ['ours', 'ours-again'].map((name) => results.get(name) ?? [])
  // Each compared with the reference beside it, or at least with each other.
  const costOf = ({ ratio, cpu }) => ratio ?? cpu
  const ratios =
    first.length === second.length ? second.map((each, round) => costOf(each) / costOf(first[round])) : []
  const percent = errorPercent(ratios)
  if (percent === null) return TOO_FEW
  const apart = 100 * Math.abs(median(ratios) - 1)
  return (
    `This run can resolve a difference of ${Math.max(percent, apart).toFixed(0)} %: the same server, measured twice in each ` +
    `of ${ratios.length} rounds, came out ${apart.toFixed(0)} % apart; twice the standard error is ±${percent.toFixed(0)} %.`
  )
}

/** The same where nothing is measured twice: how far off the median of these ratios may be. */
export function errorLine(title, ratios) {
  const percent = errorPercent(ratios)
  if (percent === null) return TOO_FEW
  return `This run can resolve a difference of ${percent.toFixed(0)} %: twice the standard error of the ratio ${title}, in ${ratios.length} rounds.`
}

/** `median (least–most)` */
export const range = (spread, digits) =>
  spread === null
    ? '–'
    : `${spread.middle.toFixed(digits)} (${spread.least.toFixed(digits)}–${spread.most.toFixed(digits)})`

const COLUMNS = [
  ['', 'left', ({ title }) => title],
  ['requests/s', 'right', ({ perSecond }) => Math.round(perSecond.middle).toLocaleString('en')],
  ['CPU µs/request', 'right', ({ cpu }) => range(cpu, 1)],
  ['× bare', 'right', ({ ratio }) => range(ratio, 2)],
  ['Redis commands/request', 'right', ({ redisCommands }) => Math.max(0, redisCommands.middle).toFixed(1)],
  ['peak RSS MB', 'right', ({ peak }) => (peak === null ? '–' : Math.round(peak.middle / 1e6).toString())],
]

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
