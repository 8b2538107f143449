import { Histogram, Registry } from 'prom-client'
import t from 'tap'
import { createHistogram } from '../../src/ops/histogram.ts'

t.test('a histogram prints what one of prom-client prints', async (t) => {
  const [ours, theirs] = [new Registry(), new Registry()]
  const options = { name: 'seconds', help: 'Some "text" of \\ two\nlines', buckets: [0.1, 1, 10] }
  for (const labelNames of [['route', 'status'], []]) {
    for (const registry of [ours, theirs]) registry.clear()
    const observe = createHistogram({ ...options, labelNames, registry: ours })
    const other = new Histogram({ ...options, labelNames, registers: [theirs] })
    t.equal(await ours.metrics(), await theirs.metrics(), 'before the first value')
    for (const value of [0, 0.1, 0.1000001, 1, 9.99, 10, 11, 1e9]) {
      for (const [route, status] of [['/flux/:fluxId', 200] as const, ['a "b" \\', 503] as const]) {
        const labels = labelNames.length === 0 ? [] : [route, status]
        observe(value, ...labels)
        other.labels(...(labels as string[])).observe(value)
      }
    }
    t.equal(await ours.metrics(), await theirs.metrics(), `labels: ${labelNames.join()}`)
  }
})
