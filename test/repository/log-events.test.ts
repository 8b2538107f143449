import t from 'tap'
import { tableRows } from '../helpers/documentation.ts'
import { filesBelow, read } from './files.ts'

t.test('docs/logs.md names each event that the server logs with its level, and no other', async (t) => {
  const files = [...filesBelow('src', '.ts'), ...filesBelow('operator', '.ts')].map(read)
  const told = files.flatMap((text) =>
    [...text.matchAll(/\bevent: ([^,}\n]+)/g)].flatMap(([, names]) =>
      [...names!.matchAll(/'([a-z_.]+)'/g)].map(([, name]) => name!),
    ),
  )
  const described = [...read('docs/logs.md').matchAll(/^\| (`[^|]+) \|/gm)].flatMap(([, names]) =>
    [...names!.matchAll(/`([^`]+)`/g)].map(([, name]) => name!),
  )
  t.ok(told.length > 30, 'the sources were read')
  for (const text of files) t.notMatch(text, /\bevent: `/, 'each name can be searched for')
  t.strictSame(
    [...new Set(described)].filter((name) => name !== 'event').sort(),
    [...new Set(told)].sort(),
    'docs/logs.md, "Events": a row for each event, with its levels',
  )

  const rows = tableRows('docs/logs.md', 'Events')
  for (const text of files) {
    for (const [, level = '', name = ''] of text.matchAll(
      /\blog\.(info|warn|error|fatal)\(\s*\{ event: '([a-z_.]+)'/g,
    )) {
      const row = rows.find(([names]) => names?.includes(`\`${name}\``))
      t.ok(row?.[1]?.includes(level), `docs/logs.md, "Events": the row of ${name} has the level ${level}`)
    }
  }
  const unusual = rows.filter(([, levels = '']) => /warn|error|fatal/.test(levels))
  t.ok(unusual.length > 30, `${unusual.length} rows`)
  for (const [event = '', , ...cells] of unusual)
    t.equal(
      cells.filter((cell) => cell !== '').length,
      2,
      `docs/logs.md, "Events": the row of ${event} says what it means and what to do`,
    )
})
