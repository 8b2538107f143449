import fc from 'fast-check'
import type { Teardown } from '../../test/helpers/child.ts'

interface FuzzRun {
  /** Seed of the first round; a round that breaks a rule reports its own seed. */
  seed: number
  /** Generated inputs at most, besides the examples. */
  runs: number
  /** Milliseconds after which no input begins and no counterexample is shrunk further. */
  forMs: number
}

interface FuzzReport {
  /** How many executions had which outcome. */
  summary: string
  /** A broken rule with the smallest input found, and expected outcomes that did not occur. Empty: all is well. */
  faults: string[]
}

export interface Fuzzer {
  readonly name: string
  run(t: Teardown, run: FuzzRun): Promise<FuzzReport>
}

interface FuzzerParts<Input> {
  name: string
  input: fc.Arbitrary<Input>
  /** Inputs that broke a rule before, and others worth keeping; they run first, whatever the seed. */
  examples: readonly Input[]
  /** Outcomes that must occur. */
  expects: readonly string[]
  /** Starts the tested system. The check of one input returns the name of the outcome, and throws where a rule is broken. */
  start(t: Teardown): Promise<(input: Input) => string | Promise<string>>
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

      let details = await round({ seed, numRuns: examples.length, examples: examples.map((each) => [each]) })
      for (let done = 0, at = seed; !details.failed && done < runs; done += RUNS_A_ROUND, at += 1) {
        if (performance.now() - startedAt >= forMs) break
        details = await round({ seed: at, numRuns: Math.min(RUNS_A_ROUND, runs - done) })
      }
      const seconds = ((performance.now() - startedAt) / 1_000).toFixed(0)
      const outcomes = [...tally].sort(([, one], [, other]) => other - one).map((each) => each.join(' '))
      const missing = expects.filter((outcome) => !tally.has(outcome))
      return {
        summary: `${name}: ${executions} executions in ${seconds} s (${outcomes.join(', ')})`,
        faults: [
          ...(details.failed ? failureOf(name, details) : []),
          ...missing.map((outcome) => `NOT TESTED: no input had the outcome ${outcome}`),
        ],
      }
    },
  }
}

function failureOf<Input>(name: string, { seed, counterexample, errorInstance }: fc.RunDetails<[Input]>) {
  const error = errorInstance instanceof Error ? errorInstance : new Error(String(errorInstance))
  const cause = error.cause instanceof Error ? `: ${error.cause.stack}` : ''
  return [
    `BROKEN: ${error.message}${cause}`,
    `input: ${fc.stringify(counterexample?.[0]).slice(0, 2_000)}`,
    `again: npm run fuzz -- --only ${name} --seed ${seed}`,
  ]
}
