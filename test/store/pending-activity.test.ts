import { randomUUID } from 'node:crypto'
import t, { type Test } from 'tap'
import { createMemoryStore } from '../../src/store/memory/store.ts'
import { createPendingActivity } from '../../src/store/pending-activity.ts'
import type { RecordKey } from '../../src/store/store.ts'
import { createMovableClock } from '../helpers/clock.ts'
import { elapsed, until } from '../helpers/wait.ts'
import { newKey, newRecord } from './stores.ts'

const IDLE_MS = 60_000
/** Two clocks are read, and a record has whole milliseconds. */
const ROUNDING_MS = 5
/** Longer than two retry rounds. */
const TWO_ROUNDS_MS = 5_000

// The tests mostly wait, so they run concurrently.
t.jobs = 5

/** Activity over a store in memory whose clock and failures the test controls. */
function start(t: Test) {
  const clock = createMovableClock()
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
    clock,
    touched,
    failing,
    gone,
    state,
    setLive: (live: boolean) => liveListeners.forEach((listener) => void listener(live)),
    seenAt: async (key: RecordKey) => (await memory.read(key))!.seenAt,
    async session(): Promise<RecordKey> {
      const key = newKey()
      await memory.create(key, newRecord(clock.wall()), { attempt: randomUUID(), provisionalMs: 15_000 })
      await memory.confirm(key)
      return key
    },
  }
}

t.test('activity is written immediately and only once', async (t) => {
  const { activity, clock, session, seenAt, touched } = start(t)
  const key = await session()
  clock.pass(10_000)
  const before = clock.wall() - ROUNDING_MS
  activity.note(key)
  t.equal(touched.length, 1)
  await until('it is written', async () => (await seenAt(key)) >= before, 1_000)
  await elapsed(TWO_ROUNDS_MS)
  t.equal(touched.length, 1)
})

t.test('a replica whose wall clock is an hour behind makes no active session idle', async (t) => {
  const { activity, clock, session, seenAt } = start(t)
  const key = await session()
  clock.pass(10_000)
  const storeNow = clock.wall() - ROUNDING_MS
  const { wall } = clock
  clock.wall = () => wall() - 3_600_000
  activity.note(key)
  clock.wall = wall
  await until('it is written', async () => (await seenAt(key)) >= storeNow, 1_000)
})

t.test('activity that the store did not accept is retried until the store accepts it', async (t) => {
  const { activity, clock, session, seenAt, failing, touched } = start(t)
  const key = await session()
  failing.add(key)
  clock.pass(10_000)
  const before = clock.wall() - ROUNDING_MS
  activity.note(key)
  await until('it is retried', () => touched.length > 1)
  failing.clear()
  await until('it is written', async () => (await seenAt(key)) >= before)
  const count = touched.length
  await elapsed(TWO_ROUNDS_MS)
  t.equal(touched.length, count, 'and not retried after that')
})

t.test('pending activity of a session is written before that session is read', async (t) => {
  const { activity, clock, session, seenAt, failing, touched } = start(t)
  const [key, other] = [await session(), await session()]
  failing.add(key).add(other)
  clock.pass(10_000)
  const before = clock.wall() - ROUNDING_MS
  activity.note(key)
  activity.note(other)
  await activity.flush(key)
  t.strictSame(touched, [key, other, key])
  failing.clear()
  await activity.flush(key)
  t.ok((await seenAt(key)) >= before)
  t.ok((await seenAt(other)) < before)
  await activity.flush(key)
  t.equal(touched.length, 4, 'nothing is pending')
})

t.test('newer activity that arrives during a write is not lost', async (t) => {
  const { activity, clock, session, seenAt } = start(t)
  const key = await session()
  activity.note(key)
  clock.pass(10_000)
  const before = clock.wall() - ROUNDING_MS
  activity.note(key)
  await until('the newer one is written', async () => (await seenAt(key)) >= before)
})

t.test('a session whose part of the store is unavailable delays no other', async (t) => {
  const { activity, clock, session, seenAt, failing, touched } = start(t)
  const keys: RecordKey[] = []
  for (let each = 0; each < 40; each += 1) keys.push(await session())
  for (const key of keys) failing.add(key)
  clock.pass(10_000)
  const before = clock.wall() - ROUNDING_MS
  for (const key of keys) activity.note(key)
  const areWritten = async (some: RecordKey[]): Promise<boolean> =>
    (await Promise.all(some.map(seenAt))).every((at) => at >= before)
  for (const key of keys.slice(20)) failing.delete(key)
  await until('the others are written', () => areWritten(keys.slice(20)))
  failing.clear()
  await until('those are retried', () => areWritten(keys.slice(0, 20)))
  const count = touched.length
  await elapsed(TWO_ROUNDS_MS)
  t.equal(touched.length, count)
})

t.test(
  'a store that accepts nothing is asked a few hundred times a round, each session in turn',
  async (t) => {
    const { activity, session, failing, touched } = start(t)
    const keys: RecordKey[] = []
    for (let each = 0; each < 600; each += 1) keys.push(await session())
    for (const key of keys) failing.add(key)
    for (const key of keys) activity.note(key)
    touched.length = 0
    await until('the next round comes', () => touched.length > 0)
    await elapsed(500)
    t.equal(touched.length, 256)
    await until('the other sessions follow', () => keys.every((key) => touched.includes(key)))
    t.ok(touched.length <= 3 * 256)
  },
)

t.test('an unavailable store is not asked until its messages are back', async (t) => {
  const { activity, session, touched, state, setLive } = start(t)
  const key = await session()
  state.unreached = true
  activity.note(key)
  await activity.flush(key)
  await elapsed(TWO_ROUNDS_MS)
  t.strictSame(touched, [])
  state.unreached = false
  setLive(false)
  t.strictSame(touched, [], 'a loss of messages writes nothing')
  setLive(true)
  t.strictSame(touched, [key])
})

t.test('activity older than the idle limit is dropped, whatever the wall clock shows', async (t) => {
  const { activity, clock, session, failing, touched } = start(t)
  const key = await session()
  failing.add(key)
  activity.note(key)
  await until('it is retried', () => touched.length > 1)
  clock.step(-3_600_000)
  clock.pass(IDLE_MS)
  await elapsed(TWO_ROUNDS_MS)
  const count = touched.length
  await elapsed(TWO_ROUNDS_MS)
  t.equal(touched.length, count)
})

t.test('activity of a deleted session is dropped and not retried', async (t) => {
  const { activity, gone, touched } = start(t)
  const key = newKey()
  activity.note(key)
  await until('it is reported', () => gone.length > 0)
  await elapsed(TWO_ROUNDS_MS)
  t.strictSame([gone, touched], [[key], [key]])
})

t.test('close() writes pending activity once more, and nothing after that', async (t) => {
  const { activity, clock, session, seenAt, failing, touched } = start(t)
  const [key, other] = [await session(), await session()]
  failing.add(key).add(other)
  clock.pass(10_000)
  const before = clock.wall() - ROUNDING_MS
  activity.note(key)
  activity.note(other)
  await until('both are written', () => touched.length > 1)
  failing.delete(key)
  await activity.close()
  t.ok((await seenAt(key)) >= before)
  const count = touched.length
  await elapsed(TWO_ROUNDS_MS)
  t.equal(touched.length, count)
})

t.test('close() does not wait for an unavailable store', async (t) => {
  const { activity, session, touched, state } = start(t)
  const key = await session()
  state.unreached = true
  activity.note(key)
  await activity.close()
  t.strictSame(touched, [])
})
