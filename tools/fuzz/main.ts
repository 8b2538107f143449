import { parseArgs } from 'node:util'
import { FUZZERS } from './all.ts'
import { describe } from './fuzzer.ts'

const USAGE = `npm run fuzz -- [--minutes M] [--only NAME] [--seed S]

Tests rules with generated inputs for M minutes (1 by default), divided over the fuzzers:
${FUZZERS.map(({ name }) => `  ${name}`).join('\n')}

A broken rule is printed with the smallest input found and the seed that finds it again. Add that input to
the examples of its fuzzer: npm test runs them. Exit 0: nothing found; 1: a rule is broken; 2: called wrongly.
`

process.exitCode = await main(process.argv.slice(2))

async function main(argv: string[]): Promise<number> {
  const called = readArguments(argv)
  if (typeof called === 'string') {
    process.stderr.write(`${called}\n\n${USAGE}`)
    return 2
  }
  if (called.help) {
    process.stdout.write(USAGE)
    return 0
  }
  const { seed, fuzzers, forMs } = called
  console.log(`seed ${seed}, ${Math.round(forMs / 1_000)} s each`)
  let broken = false
  for (const fuzzer of fuzzers) {
    const handlers: (() => unknown)[] = []
    const report = await fuzzer.run(
      { teardown: (handler) => handlers.unshift(handler) },
      { seed, runs: Number.POSITIVE_INFINITY, forMs },
    )
    for (const handler of handlers) await handler()
    console.log(describe(report))
    broken ||= report.failure !== null || report.missing.length > 0
  }
  return broken ? 1 : 0
}

function readArguments(argv: string[]) {
  try {
    const { values } = parseArgs({
      args: argv,
      options: {
        minutes: { type: 'string', default: '1' },
        only: { type: 'string' },
        seed: { type: 'string', default: String(Date.now() % 1_000_000_000) },
        help: { type: 'boolean', default: false },
      },
    })
    const minutes = Number(values.minutes)
    const seed = Number(values.seed)
    const fuzzers = FUZZERS.filter(({ name }) => values.only === undefined || name === values.only)
    if (!(minutes > 0)) return '--minutes must be a number above 0'
    if (!Number.isSafeInteger(seed)) return '--seed must be a whole number'
    if (fuzzers.length === 0) return `no fuzzer is called ${values.only}`
    return { help: values.help, seed, fuzzers, forMs: (minutes * 60_000) / fuzzers.length }
  } catch (error) {
    return (error as Error).message
  }
}
