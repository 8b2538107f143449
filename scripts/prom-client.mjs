// What the bundle takes from prom-client, in place of its index, whose client of the Pushgateway makes the primary of
// `WORKERS` load TLS: 7 MB. The build fails if src/ imports a name that is not here.
export { default as AggregatorRegistry } from 'prom-client/lib/cluster.js'
export { default as Counter } from 'prom-client/lib/counter.js'
export { default as collectDefaultMetrics } from 'prom-client/lib/defaultMetrics.js'
export { default as Gauge } from 'prom-client/lib/gauge.js'
export { default as Registry } from 'prom-client/lib/registry.js'
