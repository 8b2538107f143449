import type { Test } from 'tap'
import type { RecordKey, SessionStore } from '../../src/store/store.ts'
import { newKey, newRecord, startSession, type TestStore } from './stores.ts'

/** Every distinct key of a scan, sorted. */
export async function scan(store: Pick<SessionStore, 'keys'>): Promise<RecordKey[]> {
  const found = new Set<RecordKey>()
  for await (const batch of store.keys()) for (const key of batch) found.add(key)
  return [...found].sort()
}

/** The scan over all records. The store is empty at the start. */
export async function scanContract(t: Test, made: TestStore): Promise<void> {
  const { store, now, pass } = made

  await t.test('a scan over an empty store finds nothing and ends', async (t) => {
    await store.claimNonce('nonce', 'a', 60_000)
    await store.countTry('sign-in:0000', 60_000)
    await store.schedule(newKey(), 60_000)
    t.strictSame(await scan(store), [])
  })

  await t.test('a scan finds every record, confirmed or not, and none that ended or expired', async (t) => {
    const keys: RecordKey[] = []
    // In parts: a command has a second, and those before it in the pipe count.
    while (keys.length < 2_500) {
      keys.push(...(await Promise.all(Array.from({ length: 50 }, () => startSession(made)))))
    }
    const [unconfirmed, dying] = [newKey(), newKey()]
    await store.create(unconfirmed, newRecord(now()), 15_000)
    await store.create(dying, newRecord(now()), 200)
    await store.end(keys.pop()!)
    await pass(250)
    t.strictSame(await scan(store), [...keys, unconfirmed].sort())
  })

  await t.test('a scan yields batches and can be stopped early', async (t) => {
    let batches = 0
    for await (const batch of store.keys()) {
      batches += 1
      t.ok(batch.length <= 2_000, `${batch.length} at once`)
      if (batches === 2) break
    }
    t.equal(batches, 2)
  })

  await t.test('records that end and begin during a scan do not disturb it', async (t) => {
    const before = await scan(store)
    const ending = new Set(before.slice(0, 500))
    const found = new Set<RecordKey>()
    let turn = 0
    for await (const batch of store.keys()) {
      for (const key of batch) found.add(key)
      if (turn === 0) for (const key of ending) await store.end(key)
      else await startSession(made)
      turn += 1
    }
    t.strictSame(
      before.filter((key) => !ending.has(key) && !found.has(key)),
      [],
    )
  })
}
