import { randomUUID } from 'node:crypto'
import t from 'tap'
import { createLog } from '../../src/log.ts'
import { createMemoryStore } from '../../src/store/memory/store.ts'
import type { RecordKey } from '../../src/store/store.ts'
import { StoreUnavailable } from '../../src/store/store.ts'
import { createRecent, type Recent } from '../../src/tokens/recent.ts'
import type { Teardown } from '../helpers/child.ts'
import { newKey, newRecord } from '../store/stores.ts'
import { installVirtualTime, type VirtualTime } from './virtual-time.ts'

interface Scene {
  time: VirtualTime
  recent: Recent
  /** Writes that were made again. */
  again: string[]
  /** Calls of the store, in order. */
  asked: RecordKey[]
  trouble(): void
  /** Called once, while the store is asked. */
  atNextCall(work: () => void): void
  /** Keys whose node is away; `all` for every one. */
  away: Set<RecordKey | 'all'>
  /** Keys whose node does what it is told, and whose answers are lost. */
  unheard: Set<RecordKey>
  session(gen?: number): Promise<RecordKey>
  generation(key: RecordKey): Promise<number | null>
}

function start(t: Teardown): Scene {
  const time = installVirtualTime(t)
  const store = createMemoryStore({ now: time.now })
  t.teardown(() => store.close())
  const listeners: (() => void)[] = []
  const away = new Set<RecordKey | 'all'>()
  const unheard = new Set<RecordKey>()
  const asked: RecordKey[] = []
  const again: string[] = []
  let duringCall: (() => void) | null = null
  const trouble = (): void => {
    for (const listener of listeners) listener()
  }
  function reach(key: RecordKey): void {
    asked.push(key)
    duringCall?.()
    duringCall = null
    if (!away.has('all') && !away.has(key)) return
    throw new StoreUnavailable(new Error('away'))
  }
  const recent = createRecent({
    store: {
      onTrouble: (listener) => void listeners.push(listener),
      async restoreTokens(key, gen, attempt, tokens) {
        reach(key)
        const answer = await store.restoreTokens(key, gen, attempt, tokens)
        if (unheard.has(key)) throw new StoreUnavailable(new Error('no answer'))
        return answer
      },
      async end(key, gen) {
        reach(key)
        return await store.end(key, gen)
      },
    },
    monotonic: time.now,
    log: createLog('silent'),
    onWrittenAgain: (key, what) => void again.push(`${what} ${key}`),
  })
  return {
    time,
    recent,
    again,
    asked,
    trouble,
    away,
    unheard,
    atNextCall(work) {
      duringCall = work
    },
    async session(gen = 1) {
      const key = newKey()
      await store.create(key, newRecord(time.now()), randomUUID(), 600_000)
      if (gen > 1) await store.restoreTokens(key, gen, 'before', 'sealed')
      return key
    },
    generation: async (key) => (await store.read(key))?.gen ?? null,
  }
}

const tokens = (gen: number) => ({ kind: 'tokens', gen, sealed: `sealed-${gen}` }) as const

t.test('after trouble what the store lacks is written again, and nothing else', async (t) => {
  const { time, recent, again, trouble, session, generation } = start(t)
  const [behind, same, ahead, gone, back] = [
    await session(1),
    await session(2),
    await session(3),
    newKey(),
    await session(),
  ]
  for (const key of [behind, same, ahead, gone]) recent.note(key, tokens(2))
  recent.note(back, { kind: 'end', reason: 'logout' })
  trouble()
  await time.settle()
  t.strictSame(new Set(again), new Set([`tokens ${behind}`, `end ${back}`]))
  t.strictSame(await Promise.all([behind, same, ahead, gone, back].map(generation)), [2, 2, 3, null, null])
  await time.advance(10_000)
  t.equal(again.length, 2)
  t.equal(time.waiting(), 1, 'only the memory store waits for something')
})

t.test('without trouble the store is not asked', async (t) => {
  const { time, recent, asked, session } = start(t)
  recent.note(await session(), tokens(2))
  await time.advance(120_000)
  t.equal(asked.length, 0)
})

t.test('while the store is away it is tried four times a second, and written to at once after', async (t) => {
  const { time, recent, again, asked, trouble, away, session } = start(t)
  for (let count = 0; count < 100; count += 1) recent.note(await session(), tokens(2))
  away.add('all')
  trouble()
  await time.advance(90_000)
  t.ok(asked.length <= 361 * 32, `asked ${asked.length} times`)
  away.clear()
  await time.advance(250)
  t.equal(again.length, 100, 'though more than a minute has passed')
})

t.test('a node of a Cluster that is away holds up nothing on the others', async (t) => {
  const { time, recent, again, trouble, away, session } = start(t)
  const keys = await Promise.all(Array.from({ length: 100 }, () => session()))
  for (const key of keys) recent.note(key, tokens(2))
  // The newest ones, which come first.
  for (const key of keys.slice(40)) away.add(key)
  trouble()
  await time.advance(1_000)
  t.equal(again.length, 40)
  away.clear()
  await time.advance(250)
  t.equal(again.length, 100)
})

t.test('a failover that comes during a round is followed by another round', async (t) => {
  const { time, recent, again, asked, trouble, atNextCall, session } = start(t)
  const key = await session(2)
  recent.note(key, tokens(2))
  atNextCall(trouble)
  trouble()
  await time.advance(5_000)
  t.strictSame(asked, [key, key])
  t.equal(again.length, 0)
})

t.test('a round whose commands fail is finished, and not made again', async (t) => {
  const { time, recent, asked, trouble, away, session } = start(t)
  const keys = await Promise.all(Array.from({ length: 100 }, () => session(2)))
  for (const key of keys) recent.note(key, tokens(2))
  // As of an overloaded server, where some commands take too long.
  for (const key of keys.slice(0, 10)) away.add(key)
  trouble()
  await time.advance(100)
  away.clear()
  await time.advance(60_000)
  for (const key of keys.slice(10)) t.equal(asked.filter((each) => each === key).length, 1)
})

t.test('trouble without end costs a round a second, until what was kept is forgotten', async (t) => {
  const { time, recent, asked, trouble, session } = start(t)
  const keys = await Promise.all(Array.from({ length: 10 }, () => session(2)))
  for (const key of keys) recent.note(key, tokens(2))
  for (let at = 0; at < 300; at += 1) {
    trouble()
    await time.advance(100)
  }
  t.ok(asked.length >= 290 && asked.length <= 310, `asked ${asked.length} times`)
  await time.advance(31_000)
  trouble()
  await time.advance(1_000)
  const count = asked.length
  trouble()
  await time.advance(5_000)
  t.equal(asked.length, count)
  t.strictSame(
    keys.filter((key) => recent.get(key) !== null),
    [],
  )
})

t.test('a failover that follows long trouble is followed by a round within a second', async (t) => {
  const { time, recent, again, trouble, session } = start(t)
  for (let second = 0; second < 40; second += 1) {
    trouble()
    recent.note(await session(2), tokens(2))
    await time.advance(1_000)
  }
  const lost = await session()
  recent.note(lost, tokens(2))
  trouble()
  await time.advance(1_100)
  t.strictSame(again, [`tokens ${lost}`])
})

t.test('what was written after the trouble began is not written again', async (t) => {
  const { time, recent, asked, trouble, away, session } = start(t)
  const [before, after] = [await session(2), await session(2)]
  recent.note(before, tokens(2))
  away.add('all')
  trouble()
  await time.advance(1_000)
  away.clear()
  recent.note(after, tokens(2))
  await time.advance(5_000)
  t.notOk(asked.includes(after))
  t.ok(asked.includes(before))
})

t.test('a node that stays away does not hold up what a later trouble asks for', async (t) => {
  const { time, recent, again, asked, trouble, away, session } = start(t)
  const gone = await session()
  recent.note(gone, tokens(2))
  away.add(gone)
  trouble()
  await time.advance(5_000)
  const other = await session()
  recent.note(other, tokens(2))
  trouble()
  await time.advance(1_100)
  t.strictSame(again, [`tokens ${other}`])
  t.equal(asked.filter((key) => key === other).length, 1)
})

t.test('what is older than a minute when the trouble begins is left alone', async (t) => {
  const { time, recent, asked, trouble, session } = start(t)
  const [old, young] = [await session(), await session()]
  recent.note(old, tokens(2))
  await time.advance(30_001)
  recent.note(young, tokens(2))
  await time.advance(30_000)
  trouble()
  await time.settle()
  t.strictSame([...new Set(asked)], [young])
  t.equal(recent.get(old), null)
})

t.test('no more than 20,000 writes are kept, the newest', async (t) => {
  const { recent } = start(t)
  for (let at = 0; at < 20_001; at += 1) recent.note(String(at), tokens(2))
  t.equal(recent.get('0'), null)
  t.not(recent.get('1'), null)
  t.not(recent.get('20000'), null)
})

t.test('of one session the newest generation counts, and its end counts for good', async (t) => {
  const { recent } = start(t)
  recent.note('key', tokens(2))
  recent.note('key', tokens(3))
  t.match(recent.get('key'), tokens(3))
  recent.note('key', { kind: 'end', reason: 'logout' })
  recent.note('key', tokens(4))
  t.match(recent.get('key'), { kind: 'end', reason: 'logout' })
})

t.test('stopping waits for a round to end, but not for a store that stays away', async (t) => {
  const { time, recent, again, asked, trouble, away, session } = start(t)
  recent.note(await session(), tokens(2))
  away.add('all')
  trouble()
  await time.settle()
  const stopped = recent.stop()
  away.clear()
  await time.advance(2_000)
  await stopped
  t.equal(again.length, 1)

  away.add('all')
  recent.note(await session(), tokens(2))
  trouble()
  await time.settle()
  const before = asked.length
  await time.advance(10_000)
  t.equal(asked.length, before, 'nothing is begun after')
})

t.test('a write that was made again unheard is told once it is known', async (t) => {
  const { time, recent, again, trouble, unheard, session, generation } = start(t)
  const key = await session(1)
  recent.note(key, tokens(2))
  unheard.add(key)
  trouble()
  await time.settle()
  t.equal(await generation(key), 2)
  t.strictSame(again, [])
  unheard.delete(key)
  await time.advance(5_000)
  t.strictSame(again, [`tokens ${key}`])
  trouble()
  await time.advance(5_000)
  t.strictSame(again, [`tokens ${key}`], 'and no second time')
})

t.test('who asks while it is being made again waits for that', async (t) => {
  const { recent, again, session } = start(t)
  const key = await session(1)
  recent.note(key, tokens(2))
  await Promise.all([recent.writeAgain(key), recent.writeAgain(key)])
  t.strictSame(again, [`tokens ${key}`])
})
