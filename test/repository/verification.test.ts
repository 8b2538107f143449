import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { FUZZERS } from '../../tools/fuzz/all.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const page = readFileSync(`${ROOT}/docs/verification.md`, 'utf8')
const mechanisms = readFileSync(`${ROOT}/docs/mechanisms.md`, 'utf8')

/** The text of a file, or of all TypeScript files of a folder. */
function textOf(path: string): string {
  if (path.endsWith('.ts')) return readFileSync(`${ROOT}/${path}`, 'utf8')
  const files = readdirSync(`${ROOT}/${path}`).filter((name) => name.endsWith('.ts'))
  return files.map((name) => textOf(`${path}/${name}`)).join('\n')
}

t.test('every test that the page on verification names exists in the file that it names', async (t) => {
  const named = [...page.matchAll(/\]\(\.\.\/(test\/[^)]+\.ts)\) "([^"]+)"/g)]
  t.ok(named.length > 20, `${named.length} tests`)
  for (const [, file = '', name = ''] of named) t.ok(textOf(file).includes(name), `${file}: ${name}`)
})

t.test('each mechanism has its file and a test that exists, and there are at most eighteen', async (t) => {
  const rows = mechanisms.split('\n').filter((line) => line.startsWith('| ') && line.includes('../src/'))
  t.ok(rows.length > 10 && rows.length <= 18, `${rows.length} rows`)
  for (const row of rows) {
    const [, file = '', name = ''] = /\]\(\.\.\/(test\/[^)]+\.ts)\) "([^"]+)"/.exec(row) ?? []
    t.ok(file !== '' && textOf(file).includes(name), row.slice(0, 60))
  }
})

for (const { mark, place } of [
  { mark: 'S', place: 'test/simulation' },
  { mark: 'C', place: 'test/verify/chaos.test.ts' },
]) {
  t.test(`every rule that the page marks ${mark} exists in ${place}`, async (t) => {
    const text = textOf(place)
    const named = [...page.matchAll(new RegExp(`(?<=[ ,|])${mark} "([^"]+)"`, 'g'))].map(
      ([, name = '']) => name,
    )
    t.ok(named.length > 3, `${named.length} rules`)
    for (const name of named) t.ok(text.includes(name), name)
  })
}

t.test('the page names every fuzzer and no other', async (t) => {
  const named = new Set([...page.matchAll(/(?<=[ ,|])F ([a-z]+(?:-[a-z]+)*)/g)].map(([, name]) => name))
  t.strictSame([...named].sort(), FUZZERS.map(({ name }) => name).sort())
})
