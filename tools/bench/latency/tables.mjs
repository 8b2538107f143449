// The tables of `npm run bench:latency`.
import { TOO_LATE_MS } from '../load/at-rate.mjs'
import { markdownTable, range, spreadOf } from '../report/table.mjs'

/** One table for each share: the direct call, and what each candidate adds to it. */
export function addedTables(candidates, results, shares) {
  const tables = shares.map((share) => {
    const rows = candidates.map((candidate) =>
      rowOf(
        candidate,
        results.filter((each) => each.candidate === candidate.name && each.share === share),
      ),
    )
    const valid = rows.filter(({ rounds, faults }) => rounds > faults.length)
    const table = valid.length === 0 ? 'No valid round.' : addedTable(valid)
    return `### At ${share} % of what one core can do\n\n${table}\n\n${leftOutLine(rows)}`.trim()
  })
  return tables.join('\n\n')
}

function rowOf({ title }, rounds) {
  const good = rounds.filter(({ through, direct }) => through.fault === null && direct.fault === null)
  const directOf = (key) => spreadOf(good.map(({ direct }) => direct.latency[key]))
  const addedOf = (key) =>
    spreadOf(good.map(({ through, direct }) => difference(through.latency[key], direct.latency[key])))
  return {
    title,
    rate: spreadOf(rounds.map(({ rate }) => rate)),
    direct: { p50: directOf('p50'), p99: directOf('p99') },
    added: { p50: addedOf('p50'), p99: addedOf('p99'), p999: addedOf('p999') },
    rounds: rounds.length,
    faults: rounds
      .map(({ through, direct }) => through.fault ?? direct.fault)
      .filter((fault) => fault !== null),
  }
}

function difference(value, other) {
  return value === null || other === null ? null : value - other
}

function addedTable(rows) {
  return markdownTable(
    [
      ['', 'left', ({ title }) => title],
      ['requests/s', 'right', ({ rate }) => Math.round(rate.middle).toLocaleString('en')],
      ['direct p50 ms', 'right', ({ direct }) => range(direct.p50, 2)],
      ['direct p99 ms', 'right', ({ direct }) => range(direct.p99, 2)],
      ['adds to p50', 'right', ({ added }) => range(added.p50, 2)],
      ['adds to p99', 'right', ({ added }) => range(added.p99, 2)],
      ['adds to p99.9', 'right', ({ added }) => range(added.p999, 2)],
    ],
    rows,
  )
}

function leftOutLine(rows) {
  const invalid = rows
    .filter(({ faults }) => faults.length > 0)
    .map(({ title, rounds, faults }) => `${title}, ${faults.length} of ${rounds} rounds (${faults[0]})`)
  return invalid.length === 0 ? '' : `Invalid and left out: ${invalid.join('; ')}.`
}

/** One table: before, during and after each disturbance. */
export function scenarioTable(scenarios) {
  const rows = scenarios.flatMap(({ title, windows: { before, during, after } }) => [
    { ...before, what: `before ${title}` },
    { ...during, what: `**during** it: ${during.seconds.toFixed(1)} s` },
    { ...after, what: 'after it' },
  ])
  return markdownTable(
    [
      ['', 'left', ({ what }) => what],
      ['requests', 'right', ({ requests }) => requests.toLocaleString('en')],
      ['failed', 'right', ({ failed }) => failures(failed)],
      ['p50 ms', 'right', ({ latency }) => milliseconds(latency.p50)],
      ['p99 ms', 'right', ({ latency }) => milliseconds(latency.p99)],
      ['p99.9 ms', 'right', ({ latency }) => milliseconds(latency.p999)],
      ['longest ms', 'right', ({ latency }) => milliseconds(latency.most)],
      ['load late by ms', 'right', ({ late }) => milliseconds(late.p99) + validity(late)],
    ],
    rows,
  )
}

function milliseconds(value) {
  return value === null ? '–' : value.toFixed(value < 10 ? 2 : 0)
}

const WITHOUT_STATUS = { 0: 'unanswered', 1: 'connection broken' }

function failures(failed) {
  const each = Object.entries(failed).map(
    ([status, count]) => `${count.toLocaleString('en')} (${WITHOUT_STATUS[status] ?? status})`,
  )
  return each.length === 0 ? '0' : each.join(', ')
}

function validity({ p99 }) {
  return p99 !== null && p99 > TOO_LATE_MS ? ' (invalid)' : ''
}
