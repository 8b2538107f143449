import fc from 'fast-check'
import type { Teardown } from '../../test/helpers/child.ts'

export interface FuzzRun {
  /** Seed of the first round; a round that breaks a rule reports its own seed. */
  seed: number
  /** Generated inputs at most, besides the examples. */
  runs: number
  /** Milliseconds after which no input begins and no counterexample is shrunk further. */
  forMs: number
}

export interface FuzzReport {
  name: string
  executions: number
  seconds: number
  /** Executions by outcome; each fuzzer names its own outcomes. */
  tally: ReadonlyMap<string, number>
  /** The smallest input found that breaks a rule, and the seed that finds it again; null where none does. */
  failure: { seed: number; input: string; message: string } | null
  /** Expected outcomes that did not occur: the fuzzer has tested nothing. */
  missing: readonly string[]
}

export interface Fuzzer {
  readonly name: string
  run(t: Teardown, run: FuzzRun): Promise<FuzzReport>
}

/** Tests one input: returns the name of the outcome, throws where a rule is broken. */
export type Check<Input> = (input: Input) => string | Promise<string>

export interface FuzzerParts<Input> {
  name: string
  input: fc.Arbitrary<Input>
  /** Inputs that broke a rule before, and others worth keeping; they run first, whatever the seed. */
  examples: readonly Input[]
  /** Outcomes that must occur. */
  expects: readonly string[]
  /** Starts the tested system. */
  start(t: Teardown): Promise<Check<Input>>
}

/** Environment of a server without log and without a limit of sign-ins. */
export const QUIET = { ACCESS_LOG: 'off', LOG_LEVEL: 'silent', LOGIN_RATE_PER_MINUTE: '0' }

/** One of the arbitraries, each as often as its weight says. */
export function mix<T>(...parts: (readonly [weight: number, arbitrary: fc.Arbitrary<T>])[]): fc.Arbitrary<T> {
  return fc.oneof(...parts.map(([weight, arbitrary]) => ({ weight, arbitrary })))
}

/** One of the values; those of a part, together, as often as its weight says. */
export function choose<const T>(
  ...parts: (readonly [weight: number, ...values: readonly T[]])[]
): fc.Arbitrary<T> {
  return mix(...parts.map(([weight, ...values]) => [weight, fc.constantFrom(...values)] as const))
}

/** Words that are separated by spaces. */
export function words(text: string): string[] {
  return text.split(' ')
}

/** Every byte encoded, needed or not. */
export function percentEncoded(text: string): string {
  return [...Buffer.from(text)].map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join('')
}

const RUNS_A_ROUND = 500
/** Characters of an input that are printed. */
const MAX_SHOWN = 2_000

/** A fuzzer over fast-check, in rounds with a seed each. */
export function createFuzzer<Input>({ name, input, examples, expects, start }: FuzzerParts<Input>): Fuzzer {
  return {
    name,
    async run(t, { seed, runs, forMs }) {
      const check = await start(t)
      const unhandled: unknown[] = []
      const note = (fault: unknown): void => void unhandled.push(fault)
      process.on('uncaughtException', note).on('unhandledRejection', note)
      t.teardown(() => process.off('uncaughtException', note).off('unhandledRejection', note))
      const tally = new Map<string, number>()
      let executions = 0
      const startedAt = performance.now()

      const property = fc.asyncProperty(input, async (given) => {
        executions += 1
        const outcome = await check(given)
        tally.set(outcome, (tally.get(outcome) ?? 0) + 1)
        const [fault] = unhandled.splice(0)
        if (fault !== undefined) throw new Error('an error that nothing handles', { cause: fault })
      })
      const round = (parameters: fc.Parameters<[Input]>): Promise<fc.RunDetails<[Input]>> =>
        fc.check(property, { ...parameters, interruptAfterTimeLimit: forMs, markInterruptAsFailure: false })

      let details =
        examples.length === 0
          ? null
          : await round({ seed, numRuns: examples.length, examples: examples.map((each) => [each]) })
      for (let done = 0, at = seed; !details?.failed && done < runs; done += RUNS_A_ROUND, at += 1) {
        if (performance.now() - startedAt >= forMs) break
        details = await round({ seed: at, numRuns: Math.min(RUNS_A_ROUND, runs - done) })
      }
      return {
        name,
        executions,
        seconds: (performance.now() - startedAt) / 1_000,
        tally,
        failure: details?.failed ? failureOf(details) : null,
        missing: expects.filter((outcome) => !tally.has(outcome)),
      }
    },
  }
}

function failureOf<Input>({ seed, counterexample, errorInstance }: fc.RunDetails<[Input]>) {
  const error = errorInstance instanceof Error ? errorInstance : null
  const cause = error?.cause instanceof Error ? `: ${error.cause.stack}` : ''
  return {
    seed,
    input: fc.stringify(counterexample?.[0]).slice(0, MAX_SHOWN),
    message: `${error?.message ?? String(errorInstance)}${cause}`,
  }
}

/** The report as text: one line, then the findings. */
export function describe({ name, executions, seconds, tally, failure, missing }: FuzzReport): string {
  const outcomes = [...tally]
    .sort(([, one], [, other]) => other - one)
    .map(([outcome, count]) => `${outcome} ${count}`)
    .join(', ')
  const lines = [`${name}: ${executions} executions in ${seconds.toFixed(0)} s (${outcomes})`]
  if (failure !== null) {
    lines.push(`  BROKEN: ${failure.message}`, `  input: ${failure.input}`)
    lines.push(`  again: npm run fuzz -- --only ${name} --seed ${failure.seed}`)
  }
  if (missing.length > 0) lines.push(`  NOT TESTED: no input had the outcome ${missing.join(', ')}`)
  return lines.join('\n')
}
