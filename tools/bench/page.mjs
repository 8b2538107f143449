// What a run prints, and writes between its marks on docs/benchmarks.md.
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describeMachine, findProgram, ROOT, versionOf } from './machine.mjs'

export const PAGE = join(ROOT, 'docs', 'benchmarks.md')

/** Progress goes to stderr, so that stdout has the tables alone. */
export const say = (line) => void process.stderr.write(`${line}\n`)

/** Writes `text` into the section `name` of a page. */
export function writeSection(page, name, text) {
  const before = readFileSync(page, 'utf8')
  const [begin, end] = [`<!-- ${name}: written by the benchmark -->`, `<!-- /${name} -->`]
  const from = before.indexOf(begin)
  const to = before.indexOf(end, from)
  if (from < 0 || to < 0) throw new Error(`${page} has no place for ${name}`)
  writeFileSync(page, `${before.slice(0, from + begin.length)}\n${text}\n${before.slice(to)}`)
}

/** Columns are `[heading, cell of a row]`. All but the first are numbers. */
export function markdownTable(columns, rows) {
  const lines = [
    columns.map(([heading]) => heading),
    columns.map((_, at) => (at === 0 ? ':--' : '--:')),
    ...rows.map((row) => columns.map(([, cell]) => cell(row))),
  ]
  return lines.map((cells) => `| ${cells.join(' | ')} |`).join('\n')
}

export const whole = (value) => Math.round(value).toLocaleString('en')

/** `median (least–most)` */
export function range({ least, middle, most }, digits) {
  const [low, mid, high] = [least, middle, most].map((value) => value.toFixed(digits))
  return `${mid} (${low}–${high})`
}

/** The lines below a table: when and where it was measured, what it can resolve. The lock files pin all packages. */
export function note({ rounds, noise, candidates }) {
  const resolved =
    noise === null ? 'too few to know the noise' : `differences below ${noise.toFixed(0)} % are noise`
  const versions = [
    `Node ${process.versions.node}`,
    versionOf('Redis', 'redis-server', '--version'),
    ...(candidates.some(({ name }) => name === 'apache') ? [versionOf('Apache', 'apache2', '-v')] : []),
    ...(findProgram('wrk') === null ? [] : [versionOf('wrk', 'wrk', '-v')]),
  ]
  const when = `${new Date().toISOString().slice(0, 10)}, ${rounds} round${rounds === 1 ? '' : 's'}; ${resolved}.`
  return `${when} ${describeMachine()}.\n${versions.join(', ')}.`
}
