// A run replaces only the text between its two marks on the page.
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { PAGE } from '../places.mjs'

/** Writes `text` into the section `name` of `page`. A missing page starts as a copy of the default one. */
export function writeSection(page, name, text) {
  const before = readFileSync(existsSync(page) ? page : PAGE, 'utf8')
  const [begin, end] = [`<!-- ${name}: written by the benchmark -->`, `<!-- /${name} -->`]
  const from = before.indexOf(begin)
  const to = before.indexOf(end, from)
  if (from < 0 || to < 0) throw new Error(`${page} has no place for ${name}`)
  writeFileSync(page, `${before.slice(0, from + begin.length)}\n\n${text.trim()}\n\n${before.slice(to)}`)
}

/** Writes the results of all rounds to a JSON file next to the page. */
export function writeRounds(page, results) {
  writeFileSync(page.replace(/(\.md)?$/, '.json'), `${JSON.stringify(results, null, 1)}\n`)
}
