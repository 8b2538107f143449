import t from 'tap'
import { createLog } from '../../src/log.ts'
import { createFailoverRepair, type FailoverRepair, type Written } from '../../src/store/failover-repair.ts'
import { createMemoryStore } from '../../src/store/memory/store.ts'
import {
  type EndRequest,
  type EndResult,
  type RecordKey,
  type SessionEnd,
  StoreUnavailable,
} from '../../src/store/store.ts'
import type { Teardown } from '../helpers/child.ts'
import { installVirtualTime, type VirtualTime } from '../tokens/virtual-time.ts'
import { IDLE_MS, newKey, newRecord } from './stores.ts'

interface Scene {
  time: VirtualTime
  repair: FailoverRepair
  /** Kinds of writes that were repeated. */
  restored: Written['kind'][]
  /** Sessions that were put into the due queue. */
  scheduled: Set<RecordKey>
  /** Calls of the store, in order. */
  asked: RecordKey[]
  incident(): void
  /** Notes that the store has ended this session. */
  noteEnd(key: RecordKey, request: EndRequest): void
  /** Called once, during the next command. */
  atNextCall(work: () => void): void
  /** Keys whose node is unavailable; `all` stands for every key. */
  away: Set<RecordKey | 'all'>
  /** Keys whose node executes commands, and whose replies are lost. */
  losesReply: Set<RecordKey>
  session(gen?: number): Promise<RecordKey>
  generation(key: RecordKey): Promise<number | null>
  readEnd(key: RecordKey): Promise<SessionEnd | null>
}

function start(t: Teardown): Scene {
  const time = installVirtualTime(t)
  const store = createMemoryStore({ now: time.now, idleMs: IDLE_MS })
  t.teardown(() => store.close())
  const listeners: (() => void)[] = []
  const away = new Set<RecordKey | 'all'>()
  const losesReply = new Set<RecordKey>()
  const asked: RecordKey[] = []
  const restored: Written['kind'][] = []
  const scheduled = new Set<RecordKey>()
  let duringCall: (() => void) | null = null
  const incident = (): void => {
    for (const listener of listeners) listener()
  }
  function reach(key: RecordKey): void {
    asked.push(key)
    duringCall?.()
    duringCall = null
    if (!away.has('all') && !away.has(key)) return
    throw new StoreUnavailable(new Error('away'))
  }
  const repair = createFailoverRepair({
    store: {
      health: { ...store.health, onIncident: (listener) => void listeners.push(listener) },
      schedule: async (key) => void scheduled.add(key),
      async restoreTokens(key, write) {
        reach(key)
        const reply = await store.restoreTokens(key, write)
        if (losesReply.has(key)) throw new StoreUnavailable(new Error('no reply'))
        return reply
      },
    },
    monotonic: time.now,
    log: createLog('silent'),
    onRestored: (kind) => void restored.push(kind),
  })
  return {
    time,
    repair,
    restored,
    scheduled,
    asked,
    incident,
    noteEnd(key, request) {
      const again = async (): Promise<EndResult> => {
        reach(key)
        return await store.end(key, request)
      }
      repair.note(key, { kind: 'end', again })
    },
    readEnd: store.readEnd,
    away,
    losesReply,
    atNextCall(work) {
      duringCall = work
    },
    async session(gen = 1) {
      const key = newKey()
      await store.create(key, newRecord(time.now()), 600_000)
      if (gen > 1) await store.restoreTokens(key, { gen, attempt: 'before', tokens: 'sealed' })
      return key
    },
    generation: async (key) => (await store.read(key))?.gen ?? null,
  }
}

const tokens = (gen: number) => ({ kind: 'tokens', gen, tokens: `sealed-${gen}` }) as const

t.test('after an incident only the writes that the store lacks are repeated', async (t) => {
  const { time, repair, restored, scheduled, incident, noteEnd, session, generation, readEnd } = start(t)
  const [behind, same, ahead, gone, back] = [
    await session(1),
    await session(2),
    await session(3),
    newKey(),
    await session(),
  ]
  for (const key of [behind, same, ahead, gone]) repair.note(key, tokens(2))
  noteEnd(back, { reason: 'logout' })
  incident()
  await time.settle()
  t.strictSame([...restored].sort(), ['end', 'tokens'])
  t.strictSame([...scheduled], [behind], 'its queue entry may be lost too')
  t.equal((await readEnd(back))?.reason, 'logout')
  t.strictSame(await Promise.all([behind, same, ahead, gone, back].map(generation)), [2, 2, 3, null, null])
  await time.advance(10_000)
  t.equal(restored.length, 2)
  t.equal(time.waiting(), 1, 'only the timer of the memory store is left')
})

t.test('without an incident the repair sends no command', async (t) => {
  const { time, repair, asked, session } = start(t)
  repair.note(await session(), tokens(2))
  await time.advance(120_000)
  t.equal(asked.length, 0)
})

t.test(
  'during an outage the repair tries four times a second, and writes as soon as the store is back',
  async (t) => {
    const { time, repair, restored, asked, incident, away, session } = start(t)
    for (let count = 0; count < 100; count += 1) repair.note(await session(), tokens(2))
    away.add('all')
    incident()
    await time.advance(90_000)
    t.ok(asked.length <= 361 * 32, `asked ${asked.length} times`)
    away.clear()
    await time.advance(250)
    t.equal(restored.length, 100, 'although more than a minute has passed')
  },
)

t.test('an unavailable Cluster node does not delay writes to the others', async (t) => {
  const { time, repair, restored, incident, away, session } = start(t)
  const keys = await Promise.all(Array.from({ length: 100 }, () => session()))
  for (const key of keys) repair.note(key, tokens(2))
  // The newest writes, which the repair checks first.
  for (const key of keys.slice(40)) away.add(key)
  incident()
  await time.advance(1_000)
  t.equal(restored.length, 40)
  away.clear()
  await time.advance(250)
  t.equal(restored.length, 100)
})

t.test('a failover during a round is followed by another round', async (t) => {
  const { time, repair, restored, asked, incident, atNextCall, session } = start(t)
  const key = await session(2)
  repair.note(key, tokens(2))
  atNextCall(incident)
  incident()
  await time.advance(5_000)
  t.strictSame(asked, [key, key])
  t.equal(restored.length, 0)
})

t.test('a round whose commands fail is finished, and not repeated', async (t) => {
  const { time, repair, asked, incident, away, session } = start(t)
  const keys = await Promise.all(Array.from({ length: 100 }, () => session(2)))
  for (const key of keys) repair.note(key, tokens(2))
  // As with an overloaded server, where some commands time out.
  for (const key of keys.slice(0, 10)) away.add(key)
  incident()
  await time.advance(100)
  away.clear()
  await time.advance(60_000)
  for (const key of keys.slice(10)) t.equal(asked.filter((each) => each === key).length, 1)
})

t.test('continuous incidents cost one round a second, until the kept writes expire', async (t) => {
  const { time, repair, asked, incident, session } = start(t)
  const keys = await Promise.all(Array.from({ length: 10 }, () => session(2)))
  for (const key of keys) repair.note(key, tokens(2))
  for (let at = 0; at < 300; at += 1) {
    incident()
    await time.advance(100)
  }
  t.ok(asked.length >= 290 && asked.length <= 310, `asked ${asked.length} times`)
  await time.advance(31_000)
  incident()
  await time.advance(1_000)
  const count = asked.length
  incident()
  await time.advance(5_000)
  t.equal(asked.length, count)
  t.strictSame(
    keys.filter((key) => repair.get(key) !== null),
    [],
  )
})

t.test('a failover after a long series of incidents is followed by a round within a second', async (t) => {
  const { time, repair, restored, scheduled, incident, session } = start(t)
  for (let second = 0; second < 40; second += 1) {
    incident()
    repair.note(await session(2), tokens(2))
    await time.advance(1_000)
  }
  const lost = await session()
  repair.note(lost, tokens(2))
  incident()
  await time.advance(1_100)
  t.strictSame(restored, ['tokens'])
  t.strictSame([...scheduled], [lost])
})

t.test('a write that follows the incident is not repeated', async (t) => {
  const { time, repair, asked, incident, away, session } = start(t)
  const [before, after] = [await session(2), await session(2)]
  repair.note(before, tokens(2))
  away.add('all')
  incident()
  await time.advance(1_000)
  away.clear()
  repair.note(after, tokens(2))
  await time.advance(5_000)
  t.notOk(asked.includes(after))
  t.ok(asked.includes(before))
})

t.test('a node that stays unavailable does not delay the repair after a later incident', async (t) => {
  const { time, repair, restored, scheduled, asked, incident, away, session } = start(t)
  const gone = await session()
  repair.note(gone, tokens(2))
  away.add(gone)
  incident()
  await time.advance(5_000)
  const other = await session()
  repair.note(other, tokens(2))
  incident()
  await time.advance(1_100)
  t.strictSame(restored, ['tokens'])
  t.strictSame([...scheduled], [other])
  t.equal(asked.filter((key) => key === other).length, 1)
})

t.test('a write older than a minute at the incident is not repeated', async (t) => {
  const { time, repair, asked, incident, session } = start(t)
  const [old, young] = [await session(), await session()]
  repair.note(old, tokens(2))
  await time.advance(30_001)
  repair.note(young, tokens(2))
  await time.advance(30_000)
  incident()
  await time.settle()
  t.strictSame([...new Set(asked)], [young])
  t.equal(repair.get(old), null)
})

t.test('the newest 20,000 writes are kept', async (t) => {
  const { repair } = start(t)
  for (let at = 0; at < 20_001; at += 1) repair.note(String(at), tokens(2))
  t.equal(repair.get('0'), null)
  t.not(repair.get('1'), null)
  t.not(repair.get('20000'), null)
})

t.test('of each session the newest generation is kept, and its end replaces all', async (t) => {
  const { repair, noteEnd } = start(t)
  repair.note('key', tokens(2))
  repair.note('key', tokens(3))
  t.match(repair.get('key'), tokens(3))
  noteEnd('key', { reason: 'logout' })
  repair.note('key', tokens(4))
  t.match(repair.get('key'), { kind: 'end' })
})

t.test('an end whose condition no longer holds is not repeated, and is forgotten', async (t) => {
  const { time, repair, restored, scheduled, incident, noteEnd, session, generation } = start(t)
  const key = await session(3)
  noteEnd(key, { gen: 2, reason: 'refused' })
  incident()
  await time.settle()
  t.equal(await generation(key), 3)
  t.strictSame(restored, [])
  t.equal(repair.get(key), null)
  t.strictSame([...scheduled], [key], 'it may have been taken out of the due queue')
})

t.test('a sign-out after an end under a condition is repeated without one', async (t) => {
  const { time, restored, incident, noteEnd, session, generation } = start(t)
  const key = await session(3)
  noteEnd(key, { gen: 2, reason: 'refused' })
  noteEnd(key, { reason: 'logout' })
  incident()
  await time.settle()
  t.equal(await generation(key), null)
  t.strictSame(restored, ['end'])
})

t.test('a stop waits for the current round, but not for a store that stays unavailable', async (t) => {
  const { time, repair, restored, asked, incident, away, session } = start(t)
  repair.note(await session(), tokens(2))
  away.add('all')
  incident()
  await time.settle()
  const stopped = repair.stop()
  away.clear()
  await time.advance(2_000)
  await stopped
  t.equal(restored.length, 1)

  away.add('all')
  repair.note(await session(), tokens(2))
  incident()
  await time.settle()
  const before = asked.length
  await time.advance(10_000)
  t.equal(asked.length, before, 'no new round begins')
})

t.test('a repeated write whose reply was lost is reported once it is confirmed', async (t) => {
  const { time, repair, restored, incident, losesReply, session, generation } = start(t)
  const key = await session(1)
  repair.note(key, tokens(2))
  losesReply.add(key)
  incident()
  await time.settle()
  t.equal(await generation(key), 2)
  t.strictSame(restored, [])
  losesReply.delete(key)
  await time.advance(5_000)
  t.strictSame(restored, ['tokens'])
  incident()
  await time.advance(5_000)
  t.strictSame(restored, ['tokens'], 'only once')
})

t.test('a read during the repair of its session waits for the repair', async (t) => {
  const { repair, restored, session } = start(t)
  const key = await session(1)
  repair.note(key, tokens(2))
  await Promise.all([repair.restore(key), repair.restore(key)])
  t.strictSame(restored, ['tokens'])
})
