import t from 'tap'
import { FUZZERS } from '../../tools/fuzz/all.ts'
import { PATIENCE_MS } from '../helpers/wait.ts'

/** Enough for every expected outcome, with the examples; the long runs are `npm run fuzz`. */
const RUNS = 60

for (const fuzzer of FUZZERS) {
  t.test(`${fuzzer.name}: no example and no generated input breaks a rule`, async (t) => {
    const { summary, faults } = await fuzzer.run(t, { seed: 1, runs: RUNS, forMs: PATIENCE_MS })
    t.strictSame(faults, [], summary)
  })
}
