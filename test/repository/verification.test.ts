import t from 'tap'
import { FUZZERS } from '../../tools/fuzz/all.ts'
import { filesBelow, read } from './files.ts'

const page = read('docs/verification.md')
const mechanisms = read('docs/mechanisms.md')

t.test('every test that the page on verification names exists in the file that it names', async (t) => {
  const named = [...page.matchAll(/\]\(\.\.\/(test\/[^)]+\.ts)\) "([^"]+)"/g)]
  t.ok(named.length > 20, `${named.length} tests`)
  for (const [, file = '', name = ''] of named) t.ok(read(file).includes(name), `${file}: ${name}`)
})

t.test('each mechanism has its file and a test that exists, and there are at most eighteen', async (t) => {
  const rows = mechanisms.split('\n').filter((line) => line.startsWith('| ') && line.includes('../src/'))
  t.ok(rows.length > 10 && rows.length <= 18, `${rows.length} rows`)
  for (const row of rows) {
    const [, file = '', name = ''] = /\]\(\.\.\/(test\/[^)]+\.ts)\) "([^"]+)"/.exec(row) ?? []
    t.ok(file !== '' && read(file).includes(name), row.slice(0, 60))
  }
})

t.test('every rule that the page marks S or C exists in the simulation or in the chaos runner', async (t) => {
  const texts = {
    S: filesBelow('test/simulation', '.ts').map(read).join(),
    C: read('test/verify/chaos.test.ts'),
  }
  for (const [mark, text] of Object.entries(texts)) {
    const named = [...page.matchAll(new RegExp(`(?<=[ ,|])${mark} "([^"]+)"`, 'g'))]
    t.ok(named.length > 3, `${named.length} rules`)
    for (const [, name = ''] of named) t.ok(text.includes(name), name)
  }
})

t.test('the page names every fuzzer and no other', async (t) => {
  const named = new Set([...page.matchAll(/(?<=[ ,|])F ([a-z]+(?:-[a-z]+)*)/g)].map(([, name]) => name))
  t.strictSame([...named].sort(), FUZZERS.map(({ name }) => name).sort())
})
