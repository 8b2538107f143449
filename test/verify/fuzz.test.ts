import t from 'tap'
import { FUZZERS } from '../../tools/fuzz/all.ts'
import { describe } from '../../tools/fuzz/fuzzer.ts'

/** Enough for every expected outcome, with the examples; the long runs are `npm run fuzz`. */
const RUNS = 60
const AT_MOST_MS = 20_000

for (const fuzzer of FUZZERS) {
  t.test(`${fuzzer.name}: no example and no generated input breaks a rule`, async (t) => {
    const report = await fuzzer.run(t, { seed: 1, runs: RUNS, forMs: AT_MOST_MS })
    t.equal(report.failure, null, describe(report))
    t.strictSame(report.missing, [], 'every expected outcome occurs')
  })
}
