import t, { type Test } from 'tap'
import { createMemoryStore } from '../../src/store/memory/store.ts'
import { createPendingActivity } from '../../src/store/pending-activity.ts'
import type { RecordKey } from '../../src/store/store.ts'
import { installVirtualTime } from '../tokens/virtual-time.ts'
import { newKey, newRecord } from './stores.ts'

const IDLE_MS = 60_000
const ROUND_MS = 2_000

/** Activity over a store in memory whose clock and failures the test controls. */
function start(t: Test) {
  const time = installVirtualTime(t)
  let steppedMs = 0
  const clock = { wall: () => time.now() + steppedMs, monotonic: time.clock.monotonic }
  const memory = createMemoryStore({ now: clock.wall, idleMs: IDLE_MS })
  t.teardown(() => memory.close())
  const touched: RecordKey[] = []
  const failing = new Set<RecordKey>()
  const gone: RecordKey[] = []
  const state = { unreached: false }
  const liveListeners: ((live: boolean) => void)[] = []
  const health = {
    ...memory.health,
    isUnreached: () => state.unreached,
    onLive: (listener: (live: boolean) => void) => void liveListeners.push(listener),
  }
  const store = {
    health,
    announceHere: (key: RecordKey) => void gone.push(key),
    async touch(key: RecordKey, agoMs: number) {
      touched.push(key)
      if (failing.has(key)) throw new Error('this part of the store is unavailable')
      return await memory.touch(key, agoMs)
    },
  }
  const activity = createPendingActivity({ store, idleMs: IDLE_MS, clock })
  t.teardown(() => activity.close())
  return {
    activity,
    time,
    clock,
    /** Sets the wall clock only, as NTP does. */
    stepWallClock(ms: number): void {
      steppedMs += ms
    },
    touched,
    failing,
    gone,
    state,
    setLive: (live: boolean) => liveListeners.forEach((listener) => void listener(live)),
    seenAt: async (key: RecordKey) => (await memory.read(key))!.seenAt,
    async session(): Promise<RecordKey> {
      const key = newKey()
      await memory.create(key, newRecord(clock.wall()), 15_000)
      await memory.confirm(key)
      return key
    },
  }
}

t.test('activity is written immediately and only once', async (t) => {
  const { activity, time, session, seenAt, touched } = start(t)
  const key = await session()
  await time.advance(10_000)
  activity.note(key)
  t.equal(touched.length, 1)
  await time.settle()
  t.equal(await seenAt(key), time.now())
  await time.advance(2 * ROUND_MS)
  t.equal(touched.length, 1)
})

t.test('a replica whose wall clock is an hour behind makes no active session idle', async (t) => {
  const { activity, time, clock, session, seenAt } = start(t)
  const key = await session()
  await time.advance(10_000)
  const { wall } = clock
  clock.wall = () => wall() - 3_600_000
  activity.note(key)
  clock.wall = wall
  await time.settle()
  t.equal(await seenAt(key), time.now())
})

t.test('activity that the store did not accept is retried until the store accepts it', async (t) => {
  const { activity, time, session, seenAt, failing, touched } = start(t)
  const key = await session()
  failing.add(key)
  await time.advance(10_000)
  const activeAt = time.now()
  activity.note(key)
  await time.advance(2 * ROUND_MS)
  t.equal(touched.length, 3, 'it is retried in each round')
  failing.clear()
  await time.advance(ROUND_MS)
  t.equal(await seenAt(key), activeAt, 'it is written')
  await time.advance(2 * ROUND_MS)
  t.equal(touched.length, 4, 'and not retried after that')
})

t.test('pending activity of a session is written before that session is read', async (t) => {
  const { activity, time, session, seenAt, failing, touched } = start(t)
  const [key, other] = [await session(), await session()]
  failing.add(key).add(other)
  await time.advance(10_000)
  activity.note(key)
  activity.note(other)
  await activity.flush(key)
  t.strictSame(touched, [key, other, key])
  failing.clear()
  await activity.flush(key)
  t.equal(await seenAt(key), time.now())
  t.equal(await seenAt(other), time.now() - 10_000)
  await activity.flush(key)
  t.equal(touched.length, 4, 'nothing is pending')
})

t.test('newer activity that arrives during a write is not lost', async (t) => {
  const { activity, time, session, seenAt } = start(t)
  const key = await session()
  activity.note(key)
  time.stall(10_000)
  const activeAt = time.now()
  activity.note(key)
  await time.advance(ROUND_MS)
  t.equal(await seenAt(key), activeAt)
})

t.test('a session whose part of the store is unavailable delays no other', async (t) => {
  const { activity, time, session, seenAt, failing, touched } = start(t)
  const keys: RecordKey[] = []
  for (let each = 0; each < 40; each += 1) keys.push(await session())
  for (const key of keys) failing.add(key)
  await time.advance(10_000)
  const activeAt = time.now()
  for (const key of keys) activity.note(key)
  const areWritten = async (some: RecordKey[]): Promise<boolean> =>
    (await Promise.all(some.map(seenAt))).every((at) => at === activeAt)
  for (const key of keys.slice(20)) failing.delete(key)
  await time.advance(ROUND_MS)
  t.ok(await areWritten(keys.slice(20)), 'the others are written in the next round')
  failing.clear()
  await time.advance(ROUND_MS)
  t.ok(await areWritten(keys.slice(0, 20)), 'those are retried')
  const count = touched.length
  await time.advance(2 * ROUND_MS)
  t.equal(touched.length, count)
})

t.test(
  'a store that accepts nothing is asked a few hundred times a round, each session in turn',
  async (t) => {
    const { activity, time, session, failing, touched } = start(t)
    const keys: RecordKey[] = []
    for (let each = 0; each < 600; each += 1) keys.push(await session())
    for (const key of keys) failing.add(key)
    for (const key of keys) activity.note(key)
    touched.length = 0
    await time.advance(ROUND_MS)
    t.equal(touched.length, 256)
    await time.advance(2 * ROUND_MS)
    t.ok(
      keys.every((key) => touched.includes(key)),
      'the other sessions follow',
    )
    t.equal(touched.length, 3 * 256)
  },
)

t.test('an unavailable store is not asked until its messages are back', async (t) => {
  const { activity, time, session, touched, state, setLive } = start(t)
  const key = await session()
  state.unreached = true
  activity.note(key)
  await activity.flush(key)
  await time.advance(2 * ROUND_MS)
  t.strictSame(touched, [])
  state.unreached = false
  setLive(false)
  t.strictSame(touched, [], 'a loss of messages writes nothing')
  setLive(true)
  t.strictSame(touched, [key])
})

t.test('activity older than the idle limit is dropped, whatever the wall clock shows', async (t) => {
  const { activity, time, stepWallClock, session, failing, touched } = start(t)
  const key = await session()
  failing.add(key)
  activity.note(key)
  await time.advance(ROUND_MS)
  t.equal(touched.length, 2, 'it is retried')
  stepWallClock(-3_600_000)
  time.stall(IDLE_MS)
  await time.advance(2 * ROUND_MS)
  t.equal(touched.length, 2)
})

t.test('activity of a deleted session is dropped and not retried', async (t) => {
  const { activity, time, gone, touched } = start(t)
  const key = newKey()
  activity.note(key)
  await time.advance(2 * ROUND_MS)
  t.strictSame([gone, touched], [[key], [key]])
})

t.test('close() writes pending activity once more, and nothing after that', async (t) => {
  const { activity, time, session, seenAt, failing, touched } = start(t)
  const [key, other] = [await session(), await session()]
  failing.add(key).add(other)
  await time.advance(10_000)
  activity.note(key)
  activity.note(other)
  await time.settle()
  failing.delete(key)
  await activity.close()
  t.equal(await seenAt(key), time.now())
  t.strictSame(touched, [key, other, key, other])
  t.equal(time.waiting(), 1, 'only the timer of the memory store is left')
  await time.advance(2 * ROUND_MS)
  t.equal(touched.length, 4)
})

t.test('close() does not wait for an unavailable store', async (t) => {
  const { activity, session, touched, state } = start(t)
  const key = await session()
  state.unreached = true
  activity.note(key)
  await activity.close()
  t.strictSame(touched, [])
})
