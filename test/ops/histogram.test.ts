import * as fc from 'fast-check'
import { Histogram as Reference, Registry } from 'prom-client'
import t from 'tap'
import { Histogram } from '../../src/ops/histogram.ts'

const BUCKETS = [0.001, 0.01, 0.25, 1]

t.test('a histogram prints as that of prom-client', async (t) => {
  const label = fc.constantFrom('a', 'b', 'a"quoted"')
  const value = fc.oneof(fc.constantFrom(...BUCKETS), fc.double({ min: 0, max: 3, noNaN: true }))
  await fc.assert(
    fc.asyncProperty(fc.array(fc.tuple(value, label, label), { maxLength: 30 }), async (observed) => {
      const [ours, theirs] = [new Registry(), new Registry()]
      const options = { name: 'h', help: 'help', labelNames: ['one', 'two'], buckets: BUCKETS }
      const own = new Histogram({ ...options, registry: ours })
      const reference = new Reference({ ...options, registers: [theirs] })
      for (const [seconds, one, two] of observed) {
        own.observe(seconds, one, two)
        reference.observe({ one, two }, seconds)
      }
      t.equal(await ours.metrics(), await theirs.metrics())
    }),
    { numRuns: 50 },
  )
})

t.test('a histogram without labels exists before its first observation', async (t) => {
  const [ours, theirs] = [new Registry(), new Registry()]
  const options = { name: 'h', help: 'help', labelNames: [], buckets: BUCKETS }
  new Histogram({ ...options, registry: ours })
  new Reference({ ...options, registers: [theirs] })
  t.equal(await ours.metrics(), await theirs.metrics())
})
