// Runs the tests of test/verify: all of them, or those that are named, as in `npm run verify -- stores`.
import { spawnSync } from 'node:child_process'
import { readdirSync } from 'node:fs'

const ENDING = '.test.ts'
const known = readdirSync('test/verify')
  .filter((file) => file.endsWith(ENDING))
  .map((file) => file.slice(0, -ENDING.length))
const names = process.argv.slice(2)
const unknown = names.filter((name) => !known.includes(name))
if (unknown.length > 0) {
  console.error(`There is no test of this name: ${unknown.join(', ')}. There are: ${known.join(', ')}`)
  process.exit(1)
}
const files = (names.length === 0 ? known : names).map((name) => `test/verify/${name}.test.ts`)
const { status } = spawnSync('tap', files, { stdio: 'inherit' })
process.exit(status ?? 1)
