import { parseArgs } from 'node:util'
import { FUZZERS } from './all.ts'

const USAGE = `npm run fuzz -- [--minutes M] [--only NAME] [--seed S]

Tests rules with generated inputs for M minutes (1 by default), divided over the fuzzers:
${FUZZERS.map(({ name }) => `  ${name}`).join('\n')}

A broken rule is printed with the smallest input found and the seed that finds it again. Add that input to
the examples of its fuzzer: npm test runs them. Exit 0: nothing found; 1: a rule is broken; 2: called wrongly.`

const { seed, fuzzers, forMs } = readArguments()
console.log(`seed ${seed}, ${Math.round(forMs / 1_000)} s each`)
let broken = false
for (const fuzzer of fuzzers) {
  const handlers: (() => unknown)[] = []
  const t = { teardown: (handler: () => unknown) => handlers.unshift(handler) }
  const { summary, faults } = await fuzzer.run(t, { seed, runs: Infinity, forMs })
  for (const handler of handlers) await handler()
  console.log([summary, ...faults].join('\n  '))
  broken ||= faults.length > 0
}
process.exitCode = broken ? 1 : 0

function readArguments() {
  try {
    const { values } = parseArgs({
      options: {
        minutes: { type: 'string', default: '1' },
        only: { type: 'string', default: '' },
        seed: { type: 'string', default: String(Date.now() % 1_000_000_000) },
        help: { type: 'boolean', default: false },
      },
    })
    if (values.help) {
      console.log(USAGE)
      process.exit(0)
    }
    const minutes = Number(values.minutes)
    const seed = Number(values.seed)
    const fuzzers = FUZZERS.filter(({ name }) => values.only === '' || name === values.only)
    if (!(minutes > 0)) throw new Error('--minutes must be a number above 0')
    if (!Number.isSafeInteger(seed)) throw new Error('--seed must be a whole number')
    if (fuzzers.length === 0) throw new Error(`no fuzzer is called ${values.only}`)
    return { seed, fuzzers, forMs: (minutes * 60_000) / fuzzers.length }
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${USAGE}`)
    process.exit(2)
  }
}
