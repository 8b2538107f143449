import t from 'tap'
import { passedLimit, touchIntervalMs } from '../../src/vault/session.ts'

const IDLE_MS = 7_200_000

t.test('a session passes its nearer limit, exact to the millisecond', async (t) => {
  const record = { idleEndsAt: 1_000_000 + IDLE_MS, endsAt: 50_000_000 }
  t.equal(passedLimit(record, 1_000_000 + IDLE_MS - 1), null)
  t.equal(passedLimit(record, 1_000_000 + IDLE_MS), 'idle')
  const old = { idleEndsAt: 50_000_000, endsAt: 50_000_000 }
  t.equal(passedLimit(old, 49_999_999), null)
  t.equal(passedLimit(old, 50_000_000), 'absolute')
  t.equal(passedLimit(record, 90_000_000), 'absolute', 'when both have passed')
})

t.test('activity is recorded to a tenth of the idle limit, and at least once a minute', async (t) => {
  t.equal(touchIntervalMs(IDLE_MS), 60_000)
  t.equal(touchIntervalMs(300_000), 30_000)
})
