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

/** By the value of the first label, then of the second, and so on: an observation builds no key. */
interface Branch {
  next: Map<LabelValue, Branch>
  series: Series | null
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
  const root: Branch = { next: new Map(), series: null }
  const all: Series[] = []

  function seriesOf(labels: readonly LabelValue[]): Series {
    let branch = root
    for (const label of labels) {
      branch = branch.next.get(label) ?? newBranch(branch, label)
    }
    branch.series ??= newSeries(labels)
    return branch.series
  }

  function newBranch({ next }: Branch, label: LabelValue): Branch {
    const branch = { next: new Map(), series: null }
    next.set(label, branch)
    return branch
  }

  function newSeries(labels: readonly LabelValue[]): Series {
    const named = Object.fromEntries(labelNames.map((label, at) => [label, labels[at]!]))
    const series = { labels: named, counts: new Array<number>(buckets.length + 1).fill(0), sum: 0 }
    all.push(series)
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
    get: async () => ({ name, help, type: 'histogram', values: all.flatMap(samplesOf) }),
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
