import type { Metric, Registry } from 'prom-client'

interface Sample {
  metricName: string
  labels: Record<string, string | number>
  value: number
}

interface Series {
  labels: Record<string, string>
  /** How many fell into each bucket, not into those below it; the last one has no bound. */
  counts: number[]
  sum: number
}

export interface HistogramOptions {
  name: string
  help: string
  labelNames: readonly string[]
  /** Upper bounds, ascending. */
  buckets: readonly number[]
  registry: Registry
}

/**
 * A histogram that a registry of prom-client takes like its own. Its own one turns a bound into text at
 * each observation, which costs a tenth of a whole forwarded request.
 */
export class Histogram {
  readonly name: string
  readonly help: string
  readonly type = 'histogram'
  readonly aggregator = 'sum'
  private readonly labelNames: readonly string[]
  private readonly buckets: readonly number[]
  private readonly series = new Map<string, Series>()

  constructor({ name, help, labelNames, buckets, registry }: HistogramOptions) {
    this.name = name
    this.help = help
    this.labelNames = labelNames
    this.buckets = buckets
    // Its declarations know its own classes alone; it asks for no more than is here.
    registry.registerMetric(this as unknown as Metric)
  }

  /** Counts one value; the label values in the order of `labelNames`. */
  observe(value: number, ...labelValues: string[]): void {
    const key = labelValues.length === 1 ? labelValues[0]! : labelValues.join('\n')
    let series = this.series.get(key)
    if (series === undefined) {
      series = { labels: this.labelled(labelValues), counts: this.noCounts(), sum: 0 }
      this.series.set(key, series)
    }
    const { buckets } = this
    let at = 0
    while (at < buckets.length && value > buckets[at]!) at += 1
    series.counts[at]! += 1
    series.sum += value
  }

  /** What prom-client writes out, and sums over workers. */
  async get() {
    const { name, help, type, aggregator } = this
    // As of prom-client's own, one that has no labels is there before it has counted anything.
    const all = [...this.series.values()]
    if (all.length === 0 && this.labelNames.length === 0)
      all.push({ labels: {}, counts: this.noCounts(), sum: 0 })
    const values = all.flatMap((series) => this.valuesOf(series))
    return { name, help, type, aggregator, values }
  }

  reset(): void {
    this.series.clear()
  }

  private valuesOf({ labels, counts, sum }: Series): Sample[] {
    let below = 0
    const buckets = counts.map((count, at) => {
      below += count
      const le = this.buckets[at] ?? '+Inf'
      return { metricName: `${this.name}_bucket`, labels: { le, ...labels }, value: below }
    })
    return [
      ...buckets,
      { metricName: `${this.name}_sum`, labels, value: sum },
      { metricName: `${this.name}_count`, labels, value: below },
    ]
  }

  private labelled(values: string[]): Record<string, string> {
    return Object.fromEntries(this.labelNames.map((name, at) => [name, values[at] ?? '']))
  }

  private noCounts(): number[] {
    return new Array<number>(this.buckets.length + 1).fill(0)
  }
}
