import t, { type Test } from 'tap'
import { createGrace, type Known } from '../../src/proxy/grace.ts'
import { createSessionCache } from '../../src/session/cache.ts'
import { createMemoryStore } from '../../src/store/memory/store.ts'
import type { RecordKey } from '../../src/store/store.ts'
import { createMovableClock } from '../helpers/clock.ts'
import { newKey } from '../store/stores.ts'

const IDLE_MS = 60_000
const GRACE_MS = 600_000

/** A grace during an outage, with one session that this process knows. */
function start(t: Test) {
  const clock = createMovableClock()
  const store = createMemoryStore({ now: clock.wall })
  t.teardown(() => store.close())
  const noted: RecordKey[] = []
  const cache = createSessionCache<Known>({ store, max: 100, asideMs: GRACE_MS })
  const activity = { note: (key: RecordKey) => void noted.push(key) }
  const grace = createGrace({ cache, outage: { isInGrace: () => true }, activity, idleMs: IDLE_MS, clock })
  const key = newKey()
  const at = clock.monotonic()
  cache.put(key, { key, graceUntil: at + GRACE_MS, seenAt: at }, cache.reading(key))
  return { clock, noted, key, find: () => grace.find(key) }
}

t.test('a call in an outage is activity: it moves the idle limit and is noted', async (t) => {
  const { clock, noted, key, find } = start(t)
  clock.pass(IDLE_MS - 1_000)
  t.match(find(), { key })
  clock.pass(IDLE_MS - 1_000)
  t.match(find(), { key })
  t.strictSame(noted, [key, key])
  clock.pass(IDLE_MS)
  t.equal(find(), null, 'idle for too long')
  t.equal(noted.length, 2)
})

for (const hours of [1, -1]) {
  t.test(`a wall clock that steps by ${hours} h changes neither limit`, async (t) => {
    const { clock, find } = start(t)
    clock.step(hours * 3_600_000)
    for (let passed = 0; passed < GRACE_MS; passed += 50_000) {
      t.not(find(), null, `${passed} ms`)
      clock.pass(50_000)
    }
    t.equal(find(), null, 'the grace is over')
  })
}
