import { randomUUID } from 'node:crypto'
import t, { type Test } from 'tap'
import { createGrace, type Known } from '../../src/proxy/grace.ts'
import { createSessionCache } from '../../src/store/cache.ts'
import { createMemoryStore } from '../../src/store/memory.ts'
import type { RecordKey } from '../../src/store/port.ts'
import { newKey, newRecord } from '../store/stores.ts'
import { elapsed, until } from '../tokens/world.ts'

const IDLE_MS = 60_000
/** Longer than two times at which it is tried anew. */
const TWO_ROUNDS_MS = 5_000

// Most of the time is spent waiting.
t.jobs = 4

/** A grace that bears everything over a store in memory, whose clock and failures are at hand. */
function start(t: Test) {
  let ahead = 0
  const now = (): number => Date.now() + ahead
  const memory = createMemoryStore({ now })
  t.teardown(() => memory.close())
  const touched: RecordKey[] = []
  const failing = new Set<RecordKey>()
  const state = { unreached: false }
  const store = {
    ...memory,
    unreached: () => state.unreached,
    async touch(key: RecordKey, seenAt: number, idleMs: number) {
      touched.push(key)
      if (failing.has(key)) throw new Error('this part of the store is away')
      return await memory.touch(key, seenAt, idleMs)
    },
  }
  const cache = createSessionCache<Known>({ store, max: 100, asideMs: 60_000 })
  const grace = createGrace({ cache, outage: { isBorne: () => true }, store, idleMs: IDLE_MS, now })
  t.teardown(() => grace.close())
  return {
    grace,
    touched,
    failing,
    state,
    seenAt: async (key: RecordKey) => (await memory.read(key))?.seenAt,
    pass(ms: number) {
      ahead += ms
    },
    async session(): Promise<RecordKey> {
      const key = newKey()
      await memory.create(key, newRecord(now()), randomUUID(), 15_000)
      await memory.saveSession(key, '{}', IDLE_MS)
      cache.put(key, { key, graceUntil: now() + 600_000, seenAt: now() }, cache.reading(key))
      return key
    },
  }
}

t.test('what was seen in a gap too short for messages to be missed is told all the same', async (t) => {
  const { grace, session, seenAt, touched, pass } = start(t)
  const key = await session()
  pass(10_000)
  const seen = grace.find(key)?.seenAt
  t.type(seen, 'number')
  await until('it is told', async () => (await seenAt(key)) === seen)
  await elapsed(TWO_ROUNDS_MS)
  t.equal(touched.length, 1, 'once')
})

t.test('a session whose part of the store is away keeps no other from being told', async (t) => {
  const { grace, session, seenAt, failing, touched, pass } = start(t)
  const keys: RecordKey[] = []
  for (let each = 0; each < 40; each += 1) keys.push(await session())
  // They are told in this order.
  const away = keys.slice(0, 20)
  for (const key of away) failing.add(key)
  pass(10_000)
  const seen = new Map(keys.map((key) => [key, grace.find(key)!.seenAt]))
  const areTold = async (some: RecordKey[]): Promise<boolean> =>
    (await Promise.all(some.map(seenAt))).every((at, each) => at === seen.get(some[each]!))
  await until('the others are told', () => areTold(keys.slice(20)))
  failing.clear()
  await until('it is tried again', () => areTold(away))
  const count = touched.length
  await elapsed(TWO_ROUNDS_MS)
  t.equal(touched.length, count, 'and then no more')
})

t.test('a store that is away is not asked; what is older than the idle limit is dropped', async (t) => {
  const { grace, session, failing, touched, state, pass } = start(t)
  const key = await session()
  failing.add(key)
  state.unreached = true
  t.not(grace.find(key), null)
  await elapsed(TWO_ROUNDS_MS)
  t.strictSame(touched, [])
  state.unreached = false
  await until('it is tried', () => touched.length > 0)
  pass(IDLE_MS)
  await elapsed(TWO_ROUNDS_MS)
  const count = touched.length
  await elapsed(TWO_ROUNDS_MS)
  t.equal(touched.length, count)
})

t.test('a grace that was closed tells nothing more', async (t) => {
  const { grace, session, failing, touched } = start(t)
  const key = await session()
  failing.add(key)
  t.not(grace.find(key), null)
  await until('it is tried', () => touched.length > 0)
  grace.close()
  const count = touched.length
  await elapsed(TWO_ROUNDS_MS)
  t.equal(touched.length, count)
})
