// Runs the tests of test/verify: all but the largest, or those that are named, as in `npm run verify -- stores`.
import { spawnSync } from 'node:child_process'
import { readdirSync } from 'node:fs'

const ENDING = '.test.ts'
/** These fetch hundreds of megabytes, or take minutes: what the usual run checks has to fit between two changes. */
const ONLY_BY_NAME = ['builds', 'document', 'generators', 'servers', 'service-workers', 'snippets', 'stores']
const known = readdirSync('test/verify')
  .filter((file) => file.endsWith(ENDING))
  .map((file) => file.slice(0, -ENDING.length))
const names = process.argv.slice(2)
const unknown = names.filter((name) => !known.includes(name))
if (unknown.length > 0) {
  console.error(`There is no test of this name: ${unknown.join(', ')}. There are: ${known.join(', ')}`)
  process.exit(1)
}
const files = (names.length > 0 ? names : known.filter((name) => !ONLY_BY_NAME.includes(name))).map(
  (name) => `test/verify/${name}.test.ts`,
)
const { status } = spawnSync('tap', files, { stdio: 'inherit' })
process.exit(status ?? 1)
