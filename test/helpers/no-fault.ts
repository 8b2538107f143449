// A 5xx that is part of normal use.

import type { Test } from 'tap'
import { logLines } from './log-lines.ts'
import { type Bff, metricsOf } from './system.ts'
import { until } from './wait.ts'

/** Fails unless the 503 responses of `path` are in the log at `info`, as no fault, and in no metric. */
export async function isNoFault(
  t: Test,
  bff: Bff,
  { path, responses }: { path: string; responses: number },
): Promise<void> {
  const of503 = () =>
    logLines(bff.log(), 'request').filter((line) => line.path === path && line.status === 503)
  await until('each has its line', () => of503().length >= responses)
  t.strictSame(
    of503().map(({ level }) => level),
    Array<string>(responses).fill('info'),
  )
  t.strictSame(logLines(bff.log(), 'fault'), [])
  t.notMatch(
    await metricsOf(bff),
    new RegExp(`seconds_count{.*route="${path}".*status="5`),
    'no 5xx for an alert',
  )
}
