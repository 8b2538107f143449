import t from 'tap'
import { idleEndsAt, passedLimit, touchInterval } from '../../src/store/limits.ts'

const IDLE_MS = 7_200_000

t.test('a session passes the limit that comes first, at that millisecond', async (t) => {
  const record = { seenAt: 1_000_000, endsAt: 50_000_000 }
  t.equal(passedLimit(record, 1_000_000 + IDLE_MS - 1, IDLE_MS), null)
  t.equal(passedLimit(record, 1_000_000 + IDLE_MS, IDLE_MS), 'idle')
  const old = { seenAt: 49_999_000, endsAt: 50_000_000 }
  t.equal(passedLimit(old, 49_999_999, IDLE_MS), null)
  t.equal(passedLimit(old, 50_000_000, IDLE_MS), 'absolute')
  t.equal(passedLimit(record, 90_000_000, IDLE_MS), 'absolute', 'where both have passed')
})

t.test('a session that is not used ends at its idle limit, or before at its absolute one', async (t) => {
  t.equal(idleEndsAt({ seenAt: 1_000_000, endsAt: 50_000_000 }, IDLE_MS), 1_000_000 + IDLE_MS)
  t.equal(idleEndsAt({ seenAt: 49_000_000, endsAt: 50_000_000 }, IDLE_MS), 50_000_000)
})

t.test('activity is recorded to a tenth of the idle limit, and at least once a minute', async (t) => {
  t.equal(touchInterval(IDLE_MS), 60_000)
  t.equal(touchInterval(300_000), 30_000)
})
