import type { Test } from 'tap'
import type { RecordKey } from '../../src/store/port.ts'
import { DUE_SHARDS } from '../../src/store/port.ts'
import type { TestStore } from './stores.ts'
import { newKey, newRecord } from './stores.ts'

const LONG = 60_000

/** The due queue, which is empty at the beginning. Each test has a shard of its own. */
export async function queueContract(t: Test, made: TestStore): Promise<void> {
  const { store, now, pass } = made
  const keysOf = (entries: { key: RecordKey }[]) => entries.map((entry) => entry.key)

  await t.test('an empty queue says so', async (t) => {
    t.equal(await store.queueLength(), 0)
    t.strictSame(await store.claimDue(0, 10, LONG), { entries: [], nextInMs: null })
  })

  await t.test('what is due is handed out with when it was due, the longest due first', async (t) => {
    const at = now()
    const [late, latest, future] = [newKey(1), newKey(1), newKey(1)]
    await store.schedule(late, at - 1_000)
    await store.schedule(latest, at - 2_000)
    await store.schedule(future, at + 30_000)
    const { entries, nextInMs } = await store.claimDue(1, 10, LONG)
    t.strictSame(entries, [
      { key: latest, dueAt: at - 2_000 },
      { key: late, dueAt: at - 1_000 },
    ])
    t.ok(nextInMs !== null && nextInMs > 20_000 && nextInMs <= 30_000, 'the next one is the future one')
    t.strictSame((await store.claimDue(1, 10, LONG)).entries, [], 'it is not handed out twice')
  })

  await t.test('what is due just now is due', async (t) => {
    const key = newKey(2)
    await store.schedule(key, now())
    t.strictSame(keysOf((await store.claimDue(2, 10, LONG)).entries), [key])
  })

  await t.test('no more than the limit is handed out, and the rest is due at once', async (t) => {
    const at = now()
    const keys = [newKey(3), newKey(3), newKey(3)]
    for (const [i, key] of keys.entries()) await store.schedule(key, at - 3_000 + i)
    const first = await store.claimDue(3, 2, LONG)
    t.strictSame(keysOf(first.entries), keys.slice(0, 2))
    t.equal(first.nextInMs, 0)
    t.strictSame(keysOf((await store.claimDue(3, 2, LONG)).entries), keys.slice(2))
  })

  await t.test('what is claimed and not dealt with comes back after the lease', async (t) => {
    const key = newKey(4)
    await store.schedule(key, now() - 1_000)
    const { entries, nextInMs } = await store.claimDue(4, 10, 200)
    t.strictSame(keysOf(entries), [key])
    t.ok(nextInMs !== null && nextInMs > 0 && nextInMs <= 200)
    await pass(250)
    t.strictSame(keysOf((await store.claimDue(4, 10, LONG)).entries), [key])
  })

  await t.test('what is put off while it is claimed stays put off', async (t) => {
    const key = newKey(5)
    await store.schedule(key, now() - 1_000)
    await store.claimDue(5, 10, 40)
    await store.schedule(key, now() + 30_000)
    await pass(60)
    const { entries, nextInMs } = await store.claimDue(5, 10, LONG)
    t.strictSame(entries, [])
    t.ok(nextInMs !== null && nextInMs > 20_000)
  })

  await t.test('what is taken out is not handed out, and may be absent', async (t) => {
    const key = newKey(6)
    await store.schedule(key, now() - 1_000)
    await store.unschedule(key)
    await store.unschedule(newKey(6))
    t.strictSame(await store.claimDue(6, 10, LONG), { entries: [], nextInMs: null })
  })

  await t.test('an entry has one place: scheduling again moves it', async (t) => {
    const key = newKey(7)
    const before = await store.queueLength()
    await store.schedule(key, now() + 30_000)
    await store.schedule(key, now() - 500)
    t.equal(await store.queueLength(), before + 1)
    t.strictSame(keysOf((await store.claimDue(7, 10, LONG)).entries), [key])
  })

  await t.test('an instant between two milliseconds is as good as any', async (t) => {
    const key = newKey(8)
    const at = now()
    await store.schedule(key, at - 1_000.4)
    t.strictSame((await store.claimDue(8, 10, LONG + 0.5)).entries, [{ key, dueAt: at - 1_000 }])
    await store.schedule(key, at + 30_000.6)
    const { nextInMs } = await store.claimDue(8, 10, LONG)
    t.ok(Number.isInteger(nextInMs))
  })

  await t.test('every key has its place by its first digit, and only there', async (t) => {
    const keys = Array.from({ length: DUE_SHARDS }, (_, shard) => newKey(shard))
    const before = await store.queueLength()
    for (const key of keys) await store.schedule(key, now() - 10_000_000)
    t.equal(await store.queueLength(), before + DUE_SHARDS)
    for (const [shard, key] of keys.entries()) {
      t.strictSame(keysOf((await store.claimDue(shard, 1, LONG)).entries), [key])
    }
  })

  await t.test('what is missing is put into the queue, what is there keeps its place', async (t) => {
    const at = now()
    const [there, missing] = [newKey(11), newKey(11)]
    const elsewhere = newKey(12)
    await store.schedule(there, at + 30_000)
    const before = await store.queueLength()
    const entries = [
      { key: there, at: at - 5_000 },
      { key: missing, at: at - 1_000.4 },
      { key: elsewhere, at: at - 2_000 },
    ]
    t.equal(await store.scheduleMissing(entries), 2)
    t.equal(await store.queueLength(), before + 2)
    t.strictSame((await store.claimDue(11, 10, LONG)).entries, [{ key: missing, dueAt: at - 1_000 }])
    t.strictSame(keysOf((await store.claimDue(12, 10, LONG)).entries), [elsewhere])
    t.equal(await store.scheduleMissing(entries), 0, 'what is claimed is not missing')
    t.equal(await store.scheduleMissing([]), 0)
  })

  await t.test('the end of a session leaves its entry, which is a hint', async (t) => {
    const key = newKey(10)
    await store.create(key, newRecord(now()), 'a', 15_000)
    const before = await store.queueLength()
    await store.schedule(key, now() - 1_000)
    await store.end(key, null)
    t.equal(await store.queueLength(), before + 1)
  })

  await t.test('of 20 replicas claiming at once each entry goes to one, in each of 20 rounds', async (t) => {
    for (let round = 0; round < 20; round++) {
      const keys = Array.from({ length: 30 }, () => newKey(9))
      await Promise.all(keys.map((key) => store.schedule(key, now() - 1_000)))
      const claims = await Promise.all(Array.from({ length: 20 }, () => store.claimDue(9, 2, LONG)))
      const claimed = claims.flatMap(({ entries }) => keysOf(entries))
      t.strictSame(claimed.sort(), keys.sort())
    }
  })
}
