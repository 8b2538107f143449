import type { Test } from 'tap'
import { DUE_SHARDS, type RecordKey } from '../../src/store/store.ts'
import { newKey, newRecord, type TestStore } from './stores.ts'

const LONG = 60_000

/** The due queue, empty at the start. Each test uses its own shard. */
export async function queueContract(t: Test, made: TestStore): Promise<void> {
  const { store, now, pass } = made
  const keysOf = (entries: { key: RecordKey }[]) => entries.map((entry) => entry.key)

  await t.test('an empty queue returns no entries', async (t) => {
    t.equal(await store.queueLength(), 0)
    const empty = await store.claimDue(0, 10, LONG)
    t.match(empty, { entries: [], nextInMs: null })
    t.equal(empty.entries.length, 0)
    t.ok(Math.abs(empty.storeNow - now()) < 5_000, "with the store's clock")
  })

  await t.test('claimDue() returns due entries with their delay, the longest due first', async (t) => {
    const [late, latest, future] = [newKey(1), newKey(1), newKey(1)]
    await store.schedule(late, -1_000)
    await store.schedule(latest, -2_000)
    await store.schedule(future, 30_000)
    const { entries, nextInMs } = await store.claimDue(1, 10, LONG)
    t.strictSame(keysOf(entries), [latest, late])
    for (const [i, { lateMs }] of entries.entries()) {
      const least = 2_000 - i * 1_000
      t.ok(lateMs >= least && lateMs < least + 900, `${lateMs} ms late`)
    }
    t.ok(nextInMs !== null && nextInMs > 20_000 && nextInMs <= 30_000, 'the next entry is the future one')
    t.strictSame((await store.claimDue(1, 10, LONG)).entries, [], 'a claimed entry is not returned again')
  })

  await t.test('an entry is due at its exact millisecond', async (t) => {
    const key = newKey(2)
    await store.schedule(key, 0)
    t.strictSame(keysOf((await store.claimDue(2, 10, LONG)).entries), [key])
  })

  await t.test('claimDue() returns at most its limit, and the rest stays due', async (t) => {
    const keys = [newKey(3), newKey(3), newKey(3)]
    for (const [i, key] of keys.entries()) await store.schedule(key, -3_000 + i * 100)
    const first = await store.claimDue(3, 2, LONG)
    t.strictSame(keysOf(first.entries), keys.slice(0, 2))
    t.equal(first.nextInMs, 0)
    t.strictSame(keysOf((await store.claimDue(3, 2, LONG)).entries), keys.slice(2))
  })

  await t.test('a claimed entry that is not rescheduled is due again after the claim', async (t) => {
    const key = newKey(4)
    await store.schedule(key, -1_000)
    const { entries, nextInMs } = await store.claimDue(4, 10, 200)
    t.strictSame(keysOf(entries), [key])
    t.ok(nextInMs !== null && nextInMs > 0 && nextInMs <= 200)
    await pass(250)
    t.strictSame(keysOf((await store.claimDue(4, 10, LONG)).entries), [key])
  })

  await t.test('an entry that is rescheduled during its claim keeps the new time', async (t) => {
    const key = newKey(5)
    await store.schedule(key, -1_000)
    await store.claimDue(5, 10, 40)
    await store.schedule(key, 30_000)
    await pass(60)
    const { entries, nextInMs } = await store.claimDue(5, 10, LONG)
    t.strictSame(entries, [])
    t.ok(nextInMs !== null && nextInMs > 20_000)
  })

  await t.test('a removed entry is not returned, and removing an absent entry is allowed', async (t) => {
    const key = newKey(6)
    await store.schedule(key, -1_000)
    await store.unschedule(key)
    await store.unschedule(newKey(6))
    t.strictSame((await store.claimDue(6, 10, LONG)).entries, [])
  })

  await t.test('scheduling a key again moves its only entry', async (t) => {
    const key = newKey(7)
    const before = await store.queueLength()
    await store.schedule(key, 30_000)
    await store.schedule(key, -500)
    t.equal(await store.queueLength(), before + 1)
    t.strictSame(keysOf((await store.claimDue(7, 10, LONG)).entries), [key])
  })

  await t.test('schedule() accepts fractions of a millisecond', async (t) => {
    const key = newKey(8)
    await store.schedule(key, -1_000.4)
    t.strictSame(keysOf((await store.claimDue(8, 10, LONG + 0.5)).entries), [key])
    await store.schedule(key, 30_000.6)
    const { nextInMs } = await store.claimDue(8, 10, LONG)
    t.ok(Number.isInteger(nextInMs))
  })

  await t.test('the first digit of a key selects its shard', async (t) => {
    const keys = Array.from({ length: DUE_SHARDS }, (_, shard) => newKey(shard))
    const before = await store.queueLength()
    for (const key of keys) await store.schedule(key, -10_000_000)
    t.equal(await store.queueLength(), before + DUE_SHARDS)
    for (const [shard, key] of keys.entries()) {
      t.strictSame(keysOf((await store.claimDue(shard, 1, LONG)).entries), [key])
    }
  })

  await t.test('scheduleMissing() adds missing entries and leaves existing ones unchanged', async (t) => {
    const [there, missing] = [newKey(11), newKey(11)]
    const elsewhere = newKey(12)
    await store.schedule(there, 30_000)
    const before = await store.queueLength()
    const entries = [
      { key: there, inMs: -5_000 },
      { key: missing, inMs: -1_000.4 },
      { key: elsewhere, inMs: -2_000 },
    ]
    t.equal(await store.scheduleMissing(entries), 2)
    t.equal(await store.queueLength(), before + 2)
    t.strictSame(keysOf((await store.claimDue(11, 10, LONG)).entries), [missing])
    t.strictSame(keysOf((await store.claimDue(12, 10, LONG)).entries), [elsewhere])
    t.equal(await store.scheduleMissing(entries), 0, 'a claimed entry is not missing')
    t.equal(await store.scheduleMissing([]), 0)
  })

  await t.test('after a clock step entries are moved to an earlier time, never to a later one', async (t) => {
    const [late, early, missing] = [newKey(13), newKey(13), newKey(13)]
    await store.schedule(late, 3_600_000)
    await store.schedule(early, -1_000)
    const entries = [late, early, missing].map((key) => ({ key, inMs: -500 }))
    t.equal(await store.scheduleMissing(entries, true), 1)
    const claimed = (await store.claimDue(13, 10, LONG)).entries
    t.strictSame(keysOf(claimed).sort(), [late, early, missing].sort())
    t.equal(claimed[0]?.key, early)
  })

  await t.test('the end of a session leaves its queue entry, which is only a hint', async (t) => {
    const key = newKey(10)
    await store.create(key, newRecord(now()), 15_000)
    const before = await store.queueLength()
    await store.schedule(key, -1_000)
    await store.end(key)
    t.equal(await store.queueLength(), before + 1)
  })

  await t.test('of 20 replicas claiming at once each entry goes to one, in each of 20 rounds', async (t) => {
    for (let round = 0; round < 20; round++) {
      const keys = Array.from({ length: 30 }, () => newKey(9))
      await Promise.all(keys.map((key) => store.schedule(key, -1_000)))
      const claims = await Promise.all(Array.from({ length: 20 }, () => store.claimDue(9, 2, LONG)))
      const claimed = claims.flatMap(({ entries }) => keysOf(entries))
      t.strictSame(claimed.sort(), keys.sort())
    }
  })
}
