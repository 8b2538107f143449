import t from 'tap'
import { backoffMs } from '../../src/tokens/backoff.ts'

const TIMING = { aheadSeconds: 300, thresholdSeconds: 30 }
const NO = {
  kind: 'unavailable',
  reason: '',
  retryAfterSeconds: null,
  timedOut: false,
  ofThisGrant: false,
} as const
const DOUBT = { kind: 'in_doubt', reason: '', timedOut: true } as const

function backoff(leftMs: number, change: Partial<Parameters<typeof backoffMs>[0]> = {}): number {
  const tokens = { lifeSeconds: 3_600 }
  return backoffMs({ tokens, leftMs, outcome: NO, doubts: 0, timing: TIMING, random: 0.5, ...change })
}

t.test('while the access token lives there is time, and never more than what is left', async (t) => {
  t.ok(backoff(3_000_000) <= 60_000)
  t.ok(backoff(3_000_000, { random: 0 }) >= 45_000)
  t.ok(backoff(40_000) <= 10_000)
  t.ok(backoff(2_000) <= 1_000 && backoff(2_000) >= 500)
})

t.test('once it has expired the next try is one to two seconds away', async (t) => {
  t.equal(backoff(0, { random: 0 }), 1_000)
  t.ok(backoff(-100_000, { random: 0.999 }) < 2_000)
})

t.test('a refusal of this grant alone is tried half as often', async (t) => {
  const outcome = { ...NO, ofThisGrant: true }
  t.equal(backoff(0, { outcome, random: 0 }), 2_000)
  t.ok(backoff(0, { outcome, random: 0.999 }) < 4_000, 'and what has changed is noticed within five seconds')
})

t.test('a Retry-After is a lower bound', async (t) => {
  const outcome = { ...NO, retryAfterSeconds: 60 }
  t.equal(backoff(-1, { outcome }), 60_000)
  t.equal(backoff(3_000_000, { outcome }), 60_000)
})

t.test('in doubt there is no try before the refresh token may be presented again', async (t) => {
  t.equal(backoff(200_000, { outcome: DOUBT, doubts: 1 }), 190_000)
  t.equal(backoff(5_000, { outcome: DOUBT, doubts: 2 }), 5_000)
  t.ok(backoff(-1, { outcome: DOUBT, doubts: 5 }) < 2_000)
})
