import { readdirSync, readFileSync } from 'node:fs'
import t from 'tap'
import { PROBLEM_CODES } from '../../src/errors.ts'
import { tableRows } from '../helpers/documentation.ts'

const PAGE = 'docs/troubleshooting.md'

/** The names in the first cells of the table below a heading. A row without a name adds to the row above. */
function named(heading: string): string[] {
  return tableRows(PAGE, heading).flatMap(([name = '']) => (name === '' ? [] : [name.replaceAll('`', '')]))
}

t.test('each row has a symptom, a cause and a fix', async (t) => {
  for (const heading of ['Error codes', 'Lines of the doctor', 'Log events']) {
    for (const [name = '', ...cells] of tableRows(PAGE, heading)) {
      t.equal(cells.filter((cell) => cell !== '').length, 3, `${heading}: ${name}`)
    }
  }
})

t.test('the page has one row for each error code', async (t) => {
  t.strictSame(named('Error codes').sort(), [...PROBLEM_CODES].sort())
})

t.test('the page has the checks of the doctor', async (t) => {
  const folder = new URL('../../src/operator/', import.meta.url)
  const texts = readdirSync(folder).map((name) => readFileSync(new URL(name, folder), 'utf8'))
  const checks = texts.flatMap((text) =>
    [...text.matchAll(/\bconst check = '([^']+)'|\b(?:ok|warning|fault)\(\s*'([^']+)'/g)].map(
      ([, one, other]) => one ?? other!,
    ),
  )
  t.ok(checks.length > 10, 'the sources were read')
  t.strictSame(named('Lines of the doctor').sort(), [...new Set(checks)].sort())
})

t.test('the page has one row for each event of level warn, error or fatal', async (t) => {
  const events = tableRows('docs/logs.md', 'Events').flatMap(([names = '', levels = '']) => {
    const own = [...names.matchAll(/`([^`]+)`/g)].map(([, name]) => name!)
    const each = levels.split(', ')
    // As many levels as events: one for each. Otherwise all events have these levels.
    return own.filter((_, at) => /warn|error|fatal/.test(own.length === each.length ? each[at]! : levels))
  })
  t.ok(events.length > 30, 'docs/logs.md was read')
  t.strictSame(named('Log events').sort(), events.sort())
})
