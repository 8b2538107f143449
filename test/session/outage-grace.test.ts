import { setImmediate as turn } from 'node:timers/promises'
import { pino } from 'pino'
import t, { type Test } from 'tap'
import { createLog } from '../../src/log.ts'
import { createSessionCache } from '../../src/session/cache.ts'
import { type CachedSession, createOutageGrace } from '../../src/session/outage-grace.ts'
import { createMemoryStore } from '../../src/store/memory/store.ts'
import type { RecordKey } from '../../src/store/store.ts'
import { createMovableClock } from '../helpers/clock.ts'
import { newKey } from '../store/stores.ts'

const IDLE_MS = 60_000
const GRACE_MS = 600_000

/** An unreachable store. The test controls whether its messages arrive. */
function unreachedStore(msSinceLive: () => number) {
  const listeners: ((live: boolean) => void)[] = []
  const state = { isUnreached: true }
  const health = {
    isLive: () => false,
    msSinceLive,
    onLive: (listener: (live: boolean) => void) => void listeners.push(listener),
    isUnreached: () => state.isUnreached,
    onIncident() {},
    msSinceIncident: () => Number.POSITIVE_INFINITY,
  }
  return {
    health,
    state,
    setLive: (live: boolean): void => {
      for (const listener of listeners) listener(live)
    },
  }
}

/** A log that records the event of each line. */
function createEventLog() {
  const events: string[] = []
  const log = pino({}, { write: (line: string) => void events.push(JSON.parse(line).event) })
  return { events, log }
}

const NOTHING_CACHED = { getForOutage: () => null }
const OPTIONS = { cache: NOTHING_CACHED, idleMs: IDLE_MS, clock: createMovableClock() }

t.test('a grace that has ended does not begin again, however recent its last call is', async (t) => {
  for (let round = 0; round < 100; round += 1) {
    const { events, log } = createEventLog()
    const liveAt = performance.now()
    const { health, setLive } = unreachedStore(() => performance.now() - liveAt)
    const grace = createOutageGrace({ ...OPTIONS, store: { health, touch() {} }, graceMs: 5, log })
    setLive(false)
    // Until two milliseconds after its end.
    let until = Number.POSITIVE_INFINITY
    while (performance.now() < until) {
      if (events.length > 1) until = Math.min(until, performance.now() + 2)
      grace.isActive()
      await turn()
    }
    t.equal(events.join(), 'grace.begun,grace.ended', `round ${round}`)
  }
})

t.test('a process that was stopped for longer than the grace begins none when it resumes', async (t) => {
  let ms = 0
  const { health } = unreachedStore(() => ms)
  const log = createLog('silent')
  const grace = createOutageGrace({ ...OPTIONS, store: { health, touch() {} }, graceMs: 5_000, log })
  t.ok(grace.isActive())
  ms = 5_500
  t.notOk(grace.isActive(), 'before the process detects that messages stopped')
})

t.test(
  'a grace that has begun continues while a node responds, and ends when messages are back',
  async (t) => {
    const { events, log } = createEventLog()
    const { health, state, setLive } = unreachedStore(() => 0)
    const grace = createOutageGrace({ ...OPTIONS, store: { health, touch() {} }, graceMs: GRACE_MS, log })
    state.isUnreached = false
    setLive(false)
    t.notOk(grace.isActive(), 'a store that responds is asked')
    state.isUnreached = true
    t.ok(grace.isActive())
    state.isUnreached = false
    t.ok(grace.isActive(), 'changes during the outage are not known yet')
    setLive(true)
    t.notOk(grace.isActive())
    t.strictSame(events, ['grace.begun', 'grace.ended'])
    setLive(false)
    state.isUnreached = true
    t.ok(grace.isActive(), 'the next outage has a grace of its own')
    setLive(true)
  },
)

t.test('with a grace of 0 seconds nothing is served without the store', async (t) => {
  const { health } = unreachedStore(() => 0)
  const cache = { getForOutage: () => t.fail('the cache is not read') as never }
  const log = createLog('silent')
  const grace = createOutageGrace({ ...OPTIONS, cache, store: { health, touch() {} }, graceMs: 0, log })
  t.notOk(grace.isActive())
  t.equal(grace.find('cookie'), null)
})

/** A grace during an outage, with one session that this process knows. */
function start(t: Test) {
  const clock = createMovableClock()
  const memory = createMemoryStore({ now: clock.wall, idleMs: IDLE_MS })
  t.teardown(() => memory.close())
  const touched: RecordKey[] = []
  const cache = createSessionCache<CachedSession>({ store: memory, max: 100, graceMs: GRACE_MS })
  const { health, state } = unreachedStore(() => 0)
  const store = { health, touch: (key: RecordKey) => void touched.push(key) }
  const log = createLog('silent')
  const grace = createOutageGrace({ store, cache, graceMs: GRACE_MS, idleMs: IDLE_MS, clock, log })
  const key = newKey()
  const at = clock.monotonic()
  cache.put(key, { key, graceUntil: at + GRACE_MS, activeAt: at }, cache.beginRead(key))
  return { clock, touched, key, state, find: () => grace.find(key) }
}

t.test('a call during an outage is activity: it moves the idle limit and is recorded', async (t) => {
  const { clock, touched, key, find } = start(t)
  clock.pass(IDLE_MS - 1_000)
  t.match(find(), { key })
  clock.pass(IDLE_MS - 1_000)
  t.match(find(), { key })
  t.strictSame(touched, [key, key])
  clock.pass(IDLE_MS)
  t.equal(find(), null, 'idle for too long')
  t.equal(touched.length, 2)
})

t.test('a reachable store is asked, even if this process knows the session', async (t) => {
  const { touched, state, find } = start(t)
  state.isUnreached = false
  t.equal(find(), null)
  t.strictSame(touched, [])
})

for (const hours of [1, -1]) {
  t.test(`a wall clock that steps by ${hours} h changes neither limit`, async (t) => {
    const { clock, find } = start(t)
    clock.step(hours * 3_600_000)
    for (let passed = 0; passed < GRACE_MS; passed += 50_000) {
      t.not(find(), null, `${passed} ms`)
      clock.pass(50_000)
    }
    t.equal(find(), null, 'the grace has ended')
  })
}
