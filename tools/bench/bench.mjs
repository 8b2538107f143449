// `npm run bench`: answers questions about the speed of this server, each with one table on docs/benchmarks.md.
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { BENCH } from './machine.mjs'
import { note, PAGE, say, writeSection } from './page.mjs'
import { anonymous } from './questions/anonymous.mjs'
import { bound } from './questions/bound.mjs'
import { calls } from './questions/calls.mjs'
import { few } from './questions/few.mjs'
import { files } from './questions/files.mjs'
import { growth } from './questions/growth.mjs'
import { peers } from './questions/peers.mjs'
import { refresh } from './questions/refresh.mjs'
import { rest } from './questions/rest.mjs'
import { users } from './questions/users.mjs'
import { withServices } from './services.mjs'

/**
 * A question: `candidates` with the `reference` that all are compared with, its numbers by `usual` and with `--quick`, and
 * `measure(services, { candidates, ...numbers })`, which resolves with `{ table, noise }`.
 */
const QUESTIONS = { users, calls, few, bound, peers, files, refresh, rest, growth, anonymous }

const HELP = `npm run bench -- [question] [flags]      without a question: all of them, two and a half hours
${Object.entries(QUESTIONS).map(describe).join('\n')}
  Rounds of new processes, each with seconds of load after those to warm up; browsers that sign in; connections of the load;
  every so many seconds a page asks; sessions in Redis; the count of refreshes, for the question refresh in each second.
  --only <a,b>    only these candidates; writes no page unless --page is given
  --page <file>   the page to write (docs/benchmarks.md)
  --quick         small numbers, to see that it works; writes no page unless --page is given`

function describe([name, { usual, candidates }]) {
  const numbers = Object.entries(usual).map(([flag, value]) => `--${flag} ${value}`)
  return `  ${name.padEnd(8)} ${numbers.join(' ')}\n           of ${candidates.map((each) => each.name).join()}`
}

try {
  await main()
} catch (error) {
  say(error.stack)
  process.exitCode = 1
}

async function main() {
  const { names, values } = readArguments()
  if (values.help) return console.log(HELP)
  const answers = names.map((name) => ({ name, options: optionsOf(name, values) }))
  for (const { name, options } of answers) {
    const { table, noise } = await withServices((services) => QUESTIONS[name].measure(services, options))
    const text = `${table}\n\n${note({ ...options, noise })}`
    console.log(`\n${text}\n`)
    const page = values.page ?? (values.quick || values.only ? null : PAGE)
    if (page === null) continue
    writeSection(page, name, text)
    say(`written: ${page}`)
  }
}

function readArguments() {
  const numbers = Object.values(QUESTIONS).flatMap(({ usual }) => Object.keys(usual))
  const text = [...new Set([...numbers, 'only', 'page'])].map((name) => [name, { type: 'string' }])
  const flags = ['quick', 'help'].map((name) => [name, { type: 'boolean' }])
  const { values, positionals } = parseArgs({
    options: Object.fromEntries([...text, ...flags]),
    allowPositionals: true,
  })
  for (const name of positionals)
    if (!Object.hasOwn(QUESTIONS, name))
      throw new Error(`${name} is none of ${Object.keys(QUESTIONS).join(', ')}`)
  return { names: positionals.length === 0 ? Object.keys(QUESTIONS) : positionals, values }
}

function optionsOf(question, values) {
  const { usual, quick, candidates, reference } = QUESTIONS[question]
  const defaults = values.quick ? { ...usual, ...quick } : usual
  const numbers = Object.entries(defaults).map(([name, value]) => [name, Number(values[name] ?? value)])
  for (const [name, value] of numbers) if (!(value > 0)) throw new Error(`--${name} must be a number above 0`)
  const known = candidates.map(({ name }) => name)
  const only = values.only?.split(',') ?? known
  for (const name of only)
    if (!known.includes(name)) throw new Error(`--only: ${name} is none of ${known.join(', ')}`)
  const wanted = candidates.filter((each) => only.includes(each.name) || each === reference)
  return { ...Object.fromEntries(numbers), candidates: wanted.filter(isInstalled) }
}

function isInstalled({ name, isInstalled, peers }) {
  if (isInstalled?.() === false) {
    say(`${name} is not installed: left out`)
    return false
  }
  if (peers && !existsSync(join(BENCH, 'node_modules'))) {
    say('installing the other servers into tools/bench/node_modules')
    const args = ['ci', '--prefix', BENCH, '--no-audit', '--no-fund']
    if (spawnSync('npm', args, { stdio: ['ignore', 2, 2] }).status !== 0)
      throw new Error('npm ci --prefix tools/bench failed')
  }
  return true
}
