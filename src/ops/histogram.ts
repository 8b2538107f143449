import type { Metric, Registry } from 'prom-client'

interface HistogramOptions {
  name: string
  help: string
  labelNames: readonly string[]
  /** Upper bounds, ascending. */
  buckets: readonly number[]
  registry: Registry
}

interface Series {
  labels: Readonly<Record<string, LabelValue>>
  /** Observations in each bucket alone; the last one has no bound. */
  counts: number[]
  sum: number
}

/** Counts one value. The values of the labels come in the order of `labelNames`. */
type Observe = (value: number, ...labels: readonly LabelValue[]) => void

type LabelValue = string | number

/**
 * A histogram of plain numbers that a registry of prom-client prints. prom-client's own looks at each label by name and
 * counts by the text of a bound: two observations of it cost 7 percent of a forwarded call (decision 0008).
 */
export function createHistogram(options: HistogramOptions): Observe {
  const { name, help, labelNames, buckets, registry } = options
  const byLabels = new Map<string, Series>()

  function seriesOf(labels: readonly LabelValue[]): Series {
    const key = labels.join('\n')
    const known = byLabels.get(key)
    if (known !== undefined) return known
    const series = {
      labels: Object.fromEntries(labelNames.map((label, at) => [label, labels[at]!])),
      counts: new Array<number>(buckets.length + 1).fill(0),
      sum: 0,
    }
    byLabels.set(key, series)
    return series
  }

  function samplesOf({ labels, counts, sum }: Series) {
    let count = 0
    const samples = counts.map((inBucket, at) => {
      count += inBucket
      return { metricName: `${name}_bucket`, labels: { le: buckets[at] ?? '+Inf', ...labels }, value: count }
    })
    return [
      ...samples,
      { metricName: `${name}_sum`, labels, value: sum },
      { metricName: `${name}_count`, labels, value: count },
    ]
  }

  // As in prom-client, a histogram without labels exists before its first observation.
  if (labelNames.length === 0) seriesOf([])
  const metric = {
    name,
    help,
    type: 'histogram',
    get: async () => ({ name, help, type: 'histogram', values: [...byLabels.values()].flatMap(samplesOf) }),
  }
  // The type asks for one of prom-client's classes, the registry for these members.
  registry.registerMetric(metric as unknown as Metric)

  return (value, ...labels) => {
    const series = seriesOf(labels)
    let at = 0
    while (at < buckets.length && value > buckets[at]!) at += 1
    series.counts[at]! += 1
    series.sum += value
  }
}
