import t from 'tap'
import {
  backOffMs,
  dueAt,
  leaseMs,
  neededAt,
  presentableInMs,
  resetAfterMs,
} from '../../src/tokens/refresh-policy.ts'

const HOUR = { expiresAt: 3_600_000, lifeSeconds: 3_600 }
const SHORT = { expiresAt: 6_000, lifeSeconds: 6 }
const TIMING = { aheadSeconds: 300, thresholdSeconds: 30 }

t.test('a request refreshes within the threshold, which is at most a third of the lifetime', async (t) => {
  t.equal(neededAt(HOUR, TIMING), 3_570_000)
  t.equal(neededAt(SHORT, TIMING), 4_000)
})

t.test('the background refresh is ahead of expiry, delayed by up to a fifth of that lead time', async (t) => {
  t.equal(dueAt(HOUR, TIMING, 0), 3_300_000)
  t.equal(dueAt(HOUR, TIMING, 0.5), 3_330_000)
  t.equal(dueAt(SHORT, TIMING, 0), 4_000)
  t.ok(dueAt(SHORT, TIMING, 0.999) < 4_400)
})

t.test('background refreshes of a token that is always due have a pause between them', async (t) => {
  t.equal(dueAt({ expiresAt: 1_000, lifeSeconds: 0 }, TIMING, 0.9), 11_000)
})

t.test(
  'a refresh token in doubt is presented once shortly before expiry, and at any time after it',
  async (t) => {
    t.equal(presentableInMs(HOUR, TIMING, { doubts: 0, leftMs: 60_000 }), 0)
    t.equal(presentableInMs(HOUR, TIMING, { doubts: 1, leftMs: 60_000 }), 50_000)
    t.equal(presentableInMs(HOUR, TIMING, { doubts: 2, leftMs: 60_000 }), 60_000)
    t.equal(presentableInMs(HOUR, TIMING, { doubts: 9, leftMs: 60_000 }), 60_000)
    t.equal(presentableInMs(HOUR, TIMING, { doubts: 9, leftMs: -1 }), 0)
  },
)

t.test('the lease outlives the token request', async (t) => {
  t.ok(leaseMs(10_000) >= 13_000)
})

t.test('a presentation may have no response for 30 s or three timeouts, whichever is longer', async (t) => {
  t.equal(resetAfterMs(2_000), 30_000)
  t.equal(resetAfterMs(10_000), 30_000)
  t.equal(resetAfterMs(20_000), 60_000)
})

const NO = {
  kind: 'unavailable',
  reason: '',
  retryAfterSeconds: null,
  timedOut: false,
  ofThisGrant: false,
} as const
const DOUBT = { kind: 'in_doubt', reason: '', timedOut: true } as const

function backOff(leftMs: number, change: Partial<Parameters<typeof backOffMs>[0]> = {}): number {
  const tokens = { lifeSeconds: 3_600 }
  return backOffMs({ tokens, leftMs, outcome: NO, doubts: 0, timing: TIMING, random: 0.5, ...change })
}

t.test('while the access token is valid the back-off is long, but never past its expiry', async (t) => {
  t.ok(backOff(3_000_000) <= 60_000)
  t.ok(backOff(3_000_000, { random: 0 }) >= 45_000)
  t.ok(backOff(40_000) <= 10_000)
  t.ok(backOff(2_000) <= 1_000 && backOff(2_000) >= 500)
})

t.test('after expiry the next attempt follows in one to two seconds', async (t) => {
  t.equal(backOff(0, { random: 0 }), 1_000)
  t.ok(backOff(-100_000, { random: 0.999 }) < 2_000)
})

t.test('a failure of this grant only is retried half as often', async (t) => {
  const outcome = { ...NO, ofThisGrant: true }
  t.equal(backOff(0, { outcome, random: 0 }), 2_000)
  t.ok(backOff(0, { outcome, random: 0.999 }) < 4_000, 'and recovery is detected within five seconds')
})

t.test('a Retry-After is a lower bound', async (t) => {
  const outcome = { ...NO, retryAfterSeconds: 60 }
  t.equal(backOff(-1, { outcome }), 60_000)
  t.equal(backOff(3_000_000, { outcome }), 60_000)
})

t.test('in doubt the next attempt is not before the refresh token may be presented again', async (t) => {
  t.equal(backOff(200_000, { outcome: DOUBT, doubts: 1 }), 190_000)
  t.equal(backOff(5_000, { outcome: DOUBT, doubts: 2 }), 5_000)
  t.ok(backOff(-1, { outcome: DOUBT, doubts: 5 }) < 2_000)
})
