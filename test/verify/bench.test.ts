import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import t from 'tap'
import { startChild } from '../helpers/child.ts'
import { makeFolder } from '../helpers/watchdog.ts'
import { ROOT, read } from '../repository/files.ts'

// Nothing here is about speed.
t.jobs = 3

const BENCH = join(ROOT, 'tools/bench')
const PAGE = read('docs/benchmarks.md')

/** The cells of the table between the marks of a question on a page. */
function tableOf(page: string, question: string): string[][] {
  const [, section = ''] = page.split(`<!-- ${question}: written by the benchmark -->\n`)
  const lines = section.split(`<!-- /${question} -->`)[0]!.split('\n')
  const rows = lines.filter((line) => line.startsWith('|')).map((line) => line.slice(2, -2).split(' | '))
  return rows.filter(([first = '']) => !first.startsWith(':-'))
}

/** Each title of some rows once, whatever its numbers. */
function titlesOf(rows: string[][]): string[] {
  return [...new Set(rows.map(([title = '']) => title.replaceAll(/[\d,]+/g, 'N')))]
}

/** Each question with a short run. Few sessions: each asks Redis again every second, and slow machines serve few calls. */
const RUNS = {
  growth: '--only small-1,large-3 --sessions 2000 --count 20 --seconds 0.3',
  calls: '--only ours,bare --rounds 1 --seconds 0.4 --warmup 0.1 --browsers 2 --connections 8',
  few: '--only ours,bare --rounds 1 --seconds 0.4 --warmup 0.1 --browsers 2',
  bound: '--rounds 1 --seconds 0.4 --warmup 0.1 --browsers 2 --connections 8',
  peers: '--only ours,bare --rounds 1 --seconds 0.4 --warmup 0.1 --browsers 2',
  files: '--only ours --rounds 1 --seconds 1 --warmup 1',
  users: '--only ours --seconds 2 --warmup 0.1 --browsers 10 --every 1',
  refresh: '--count 100 --seconds 0.5 --warmup 0.5',
  rest: '--sessions 2000 --seconds 1',
  anonymous: '--only session,commas --count 50',
}

for (const [question, flags] of Object.entries(RUNS)) {
  t.test(`${question}: a short run prints and writes rows that docs/benchmarks.md has`, async (t) => {
    const page = join(makeFolder('bench'), 'page.md')
    writeFileSync(page, `# Kept\n\n<!-- ${question}: written by the benchmark -->\n<!-- /${question} -->\n`)
    const args = [question, '--quick', '--page', page, ...flags.split(' ')]
    const child = startChild(t, process.execPath, [join(BENCH, 'bench.mjs'), ...args], {})
    t.equal((await child.ended).code, 0, child.stderr())
    const written = readFileSync(page, 'utf8')
    t.match(written, /^# Kept\n/)
    const [columns, ...rows] = tableOf(written, question)
    t.equal(child.stdout().match(/^\|/gm)?.length, rows.length + 2, 'what is written is printed')
    for (const [title = '', ...cells] of rows) {
      // An idle process may take no CPU that can be measured.
      const isMeasured = title.startsWith('idle: CPU') ? /\d/ : /[1-9]/
      const measured = question === 'growth' ? [...cells.slice(0, 3), cells[4]!] : [cells.join(' ')]
      for (const text of measured) t.match(text, isMeasured, `${title}: ${text}`)
    }
    const [columnsOfPage, ...rowsOfPage] = tableOf(PAGE, question)
    t.strictSame(columns, columnsOfPage)
    const titles = titlesOf(rows)
    const titlesOfPage = titlesOf(rowsOfPage).filter((title) => titles.includes(title))
    t.strictSame(titlesOfPage, titles)
  })
}

t.test('a load with an error, or with responses that the upstream never sent, is rejected', async (t) => {
  const { faultOf } = await import(pathToFileURL(join(BENCH, 'under-load.mjs')).href)
  t.equal(faultOf({ requests: 10, failed: 0 }, 12), null)
  t.match(faultOf({ requests: 10, failed: 1 }, 12), '1 of 10')
  t.match(faultOf({ requests: 10, failed: 0 }, 7), '3 of 10')
  t.match(faultOf({ requests: 0, failed: 0 }, 0), 'no responses')
})
