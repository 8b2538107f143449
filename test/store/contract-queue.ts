import type { Test } from 'tap'
import type { RecordKey } from '../../src/store/store.ts'
import { newKey, newRecord, type TestStore } from './stores.ts'

const LONG = 60_000

/** The due queue, empty at the start. Each test empties it at its end. */
export async function queueContract(t: Test, made: TestStore): Promise<void> {
  const { store, now, pass } = made
  const keysOf = (entries: { key: RecordKey }[]) => entries.map((entry) => entry.key)

  async function test(name: string, run: (t: Test, newKeyOfTest: () => RecordKey) => Promise<void>) {
    await t.test(name, async (t) => {
      const used: RecordKey[] = []
      await run(t, () => {
        used.push(newKey())
        return used.at(-1)!
      })
      await Promise.all(used.map((key) => store.schedule(key, null)))
      t.equal(await store.queueLength(), 0)
    })
  }

  await test('an empty queue returns no entries', async (t) => {
    t.equal(await store.queueLength(), 0)
    const empty = await store.claimDue(10, LONG)
    t.match(empty, { entries: [], nextInMs: null })
    t.equal(empty.entries.length, 0)
    t.ok(Math.abs(empty.storeNow - now()) < 5_000, "with the store's clock")
  })

  await test('claimDue() returns due entries with their delay, the longest due first', async (t, key) => {
    const [late, latest, future] = [key(), key(), key()]
    await store.schedule(late, -1_000_000)
    await store.schedule(latest, -2_000_000)
    await store.schedule(future, 3_000_000)
    const { entries, nextInMs } = await store.claimDue(10, 6_000_000)
    t.strictSame(keysOf(entries), [latest, late])
    for (const [i, { lateMs }] of entries.entries())
      t.ok(lateMs >= 2_000_000 - i * 1_000_000, `${lateMs} ms late`)
    t.ok(nextInMs !== null && nextInMs > 0 && nextInMs <= 3_000_000, 'the next entry is the future one')
    t.strictSame((await store.claimDue(10, LONG)).entries, [], 'a claimed entry is not returned again')
  })

  await test('claimDue() returns at most its limit, and the rest stays due', async (t, key) => {
    const keys = [key(), key(), key()]
    for (const [i, key] of keys.entries()) await store.schedule(key, -3_000 + i * 100)
    const first = await store.claimDue(2, LONG)
    t.strictSame(keysOf(first.entries), keys.slice(0, 2))
    t.equal(first.nextInMs, 0)
    t.strictSame(keysOf((await store.claimDue(2, LONG)).entries), keys.slice(2))
  })

  await test('a claimed entry that is not rescheduled is due again after the claim', async (t, newKey) => {
    const key = newKey()
    await store.schedule(key, -1_000)
    const { entries, nextInMs } = await store.claimDue(10, 200)
    t.strictSame(keysOf(entries), [key])
    t.ok(nextInMs !== null && nextInMs > 0 && nextInMs <= 200)
    await pass(250)
    t.strictSame(keysOf((await store.claimDue(10, LONG)).entries), [key])
  })

  await test('an entry that is rescheduled during its claim keeps the new time', async (t, newKey) => {
    const key = newKey()
    await store.schedule(key, -1_000)
    await store.claimDue(10, 40)
    await store.schedule(key, 3_000_000)
    await pass(60)
    const { entries, nextInMs } = await store.claimDue(10, LONG)
    t.strictSame(entries, [])
    t.ok(nextInMs !== null && nextInMs > 40)
  })

  await test('scheduling a key again moves its only entry, by fractions too, or removes it', async (t, newKey) => {
    const key = newKey()
    await store.schedule(key, 30_000.6)
    const { nextInMs } = await store.claimDue(10, LONG)
    t.ok(Number.isInteger(nextInMs))
    await store.schedule(key, 0)
    t.equal(await store.queueLength(), 1)
    t.strictSame(
      keysOf((await store.claimDue(10, LONG + 0.5)).entries),
      [key],
      'due at its exact millisecond',
    )
    await store.schedule(key, -1_000.4)
    await store.schedule(key, null)
    await store.schedule(newKey(), null)
    t.strictSame((await store.claimDue(10, LONG)).entries, [])
  })

  await test('scheduleMissing() adds missing entries and leaves existing ones unchanged', async (t, newKey) => {
    const [there, missing, another] = [newKey(), newKey(), newKey()]
    await store.schedule(there, 3_000_000)
    const entries = [
      { key: there, inMs: -5_000 },
      { key: missing, inMs: -1_000.4 },
      { key: another, inMs: -2_000 },
    ]
    t.equal(await store.scheduleMissing(entries), 2)
    t.equal(await store.queueLength(), 3)
    t.strictSame(keysOf((await store.claimDue(10, LONG)).entries), [another, missing])
    t.equal(await store.scheduleMissing(entries), 0, 'a claimed entry is not missing')
    t.equal(await store.scheduleMissing([]), 0)
  })

  await test('the end of a session leaves its queue entry, which is only a hint', async (t, newKey) => {
    const key = newKey()
    await store.create(key, newRecord(now()), 15_000)
    await store.schedule(key, -1_000)
    await store.end(key)
    t.equal(await store.queueLength(), 1)
  })

  await test('of 20 replicas claiming at once each entry goes to one, in each of 20 rounds', async (t, newKey) => {
    for (let round = 0; round < 20; round++) {
      const keys = Array.from({ length: 30 }, newKey)
      await Promise.all(keys.map((key) => store.schedule(key, -1_000)))
      const claims = await Promise.all(Array.from({ length: 20 }, () => store.claimDue(2, LONG)))
      const claimed = claims.flatMap(({ entries }) => keysOf(entries))
      t.strictSame(claimed.sort(), keys.sort())
    }
  })
}
