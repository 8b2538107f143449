import t from 'tap'
import { dueAt, leaseMs, presentableInMs, refreshesFirstAt } from '../../src/tokens/refresh-policy.ts'

const HOUR = { expiresAt: 3_600_000, lifeSeconds: 3_600 }
const SHORT = { expiresAt: 6_000, lifeSeconds: 6 }
const TIMING = { aheadSeconds: 300, thresholdSeconds: 30 }

t.test(
  'a request refreshes first within the threshold, which is never more than a third of the life',
  async (t) => {
    t.equal(refreshesFirstAt(HOUR, TIMING), 3_570_000)
    t.equal(refreshesFirstAt(SHORT, TIMING), 4_000)
  },
)

t.test('the background refreshes ahead of expiry and up to a fifth of that later', async (t) => {
  t.equal(dueAt(HOUR, TIMING, 0), 3_300_000)
  t.equal(dueAt(HOUR, TIMING, 0.5), 3_330_000)
  t.equal(dueAt(SHORT, TIMING, 0), 4_000)
  t.ok(dueAt(SHORT, TIMING, 0.999) < 4_400)
})

t.test('a token that is due at once is not refreshed in the background without a pause', async (t) => {
  t.equal(dueAt({ expiresAt: 1_000, lifeSeconds: 0 }, TIMING, 0.9), 11_000)
})

t.test('a refresh token in doubt is presented once shortly before expiry, and freely after it', async (t) => {
  t.equal(presentableInMs(HOUR, TIMING, 0, 60_000), 0)
  t.equal(presentableInMs(HOUR, TIMING, 1, 60_000), 50_000)
  t.equal(presentableInMs(HOUR, TIMING, 2, 60_000), 60_000)
  t.equal(presentableInMs(HOUR, TIMING, 9, 60_000), 60_000)
  t.equal(presentableInMs(HOUR, TIMING, 9, -1), 0)
})

t.test('the lease outlives the token request', async (t) => {
  t.ok(leaseMs(10_000) >= 13_000)
})
