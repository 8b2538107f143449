// Times and percentiles of an open-loop load.
import { readFileSync, writeFileSync } from 'node:fs'

/** Milliseconds of a clock that all threads and processes of this machine share. */
export function now() {
  const [seconds, nanoseconds] = process.hrtime()
  return seconds * 1_000 + nanoseconds / 1e6
}

/** A percentile is known only if so many values are above it. */
const SLOWER = 3

/** Percentiles in milliseconds, exact to a microsecond, and the largest value; null if there are too few values. */
export function percentilesOf(values) {
  const sorted = Float64Array.from(values).sort()
  const { length } = sorted
  const rounded = (value) => Math.round(value * 1_000) / 1_000
  const at = (part) => (length * (1 - part) < SLOWER ? null : rounded(sorted[Math.ceil(length * part) - 1]))
  const most = length === 0 ? null : rounded(sorted[length - 1])
  return { p50: at(0.5), p99: at(0.99), p999: at(0.999), most }
}

const COLUMNS = 4

/** Writes one sample of each request: `due` and `late` by the clock of `now`, `latency`, and `status` (see open-loop.mjs). */
export function writeSamples(file, { due, late, latency, status }, { from, to }) {
  const rows = new Float64Array(Math.max(0, to - from) * COLUMNS)
  for (let at = from; at < to; at += 1)
    rows.set([due[at], late[at], latency[at], status[at]], (at - from) * COLUMNS)
  writeFileSync(file, rows)
}

/** The samples of such a file. */
export function readSamples(file) {
  const bytes = readFileSync(file)
  const rows = new Float64Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length))
  return Array.from({ length: rows.length / COLUMNS }, (_, at) => {
    const [due, late, latency, status] = rows.subarray(at * COLUMNS, (at + 1) * COLUMNS)
    return { due, late, latency, status }
  })
}
