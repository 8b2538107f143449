import t from 'tap'
import { PROBLEM_CODES } from '../../src/errors.ts'
import { tableRows } from '../helpers/documentation.ts'

t.test('docs/troubleshooting.md has each error code once, with cause and fix', async (t) => {
  const rows = tableRows('docs/troubleshooting.md', 'Error codes')
  const codes = rows.flatMap(([names = '']) => names.replaceAll('`', '').split(', '))
  t.strictSame(codes.sort(), [...PROBLEM_CODES].sort())
  for (const [code = '', ...cells] of rows) t.equal(cells.filter((cell) => cell !== '').length, 2, code)
})

t.test('docs/logs.md says what to do at each event of level warn, error or fatal', async (t) => {
  const rows = tableRows('docs/logs.md', 'Events').filter(([, levels = '']) =>
    /warn|error|fatal/.test(levels),
  )
  t.ok(rows.length > 30, `${rows.length} rows`)
  for (const [event = '', , ...cells] of rows) t.equal(cells.filter((cell) => cell !== '').length, 2, event)
})
