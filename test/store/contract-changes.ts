import type { Test } from 'tap'
import type { RecordKey } from '../../src/store/store.ts'
import type { TestStore } from './stores.ts'
import { leaseRequest, newKey, newRecord, startSession, until } from './stores.ts'

/** Who is told of what. */
export async function changeContract(t: Test, made: TestStore): Promise<void> {
  const { store, now } = made
  const told: RecordKey[] = []
  store.onChange((key) => void told.push(key))

  /** How often `key` was told, once everything that was sent has arrived. */
  async function countOf(key: RecordKey): Promise<number> {
    await passMarker(made, told)
    return told.filter((one) => one === key).length
  }

  await t.test('messages are proven to arrive', async (t) => {
    t.equal(store.health.isLive(), true)
  })

  await t.test('replaced tokens are told once, even if the same attempt comes twice', async (t) => {
    const key = await startSession(made)
    await store.replaceTokens(key, 1, 'a', 'sealed-2')
    t.equal(await countOf(key), 1)
    await store.replaceTokens(key, 1, 'a', 'sealed-2')
    await store.replaceTokens(key, 1, 'b', 'other')
    t.equal(await countOf(key), 1)
  })

  await t.test('restored tokens are told, tokens that need not be are not', async (t) => {
    const key = await startSession(made)
    await store.restoreTokens(key, 2, 'r', 'sealed-2')
    t.equal(await countOf(key), 1)
    await store.restoreTokens(key, 2, 'r', 'sealed-2')
    t.equal(await countOf(key), 1)
  })

  await t.test('the end of a session is told at once where it was asked, and to all', async (t) => {
    const key = await startSession(made)
    await store.end(key, { gen: 7 })
    t.equal(await countOf(key), 0, 'not where the generation is another')
    await store.end(key, { gen: 1 })
    t.ok(told.includes(key), 'before the call returns')
    const count = await countOf(key)
    await store.end(key)
    t.equal(await countOf(key), count, 'not where there is nothing to end')
  })

  await t.test('a lease that is given back is told, a lease that is not held is not', async (t) => {
    const key = await startSession(made)
    await store.beginRefresh(key, leaseRequest('a'))
    await store.releaseLease(key, 'b', null, 0)
    t.equal(await countOf(key), 0)
    await store.releaseLease(key, 'a', { gen: 1, doubts: 1 }, 0)
    t.equal(await countOf(key), 1)
    await store.releaseLease(key, 'a', { gen: 1, doubts: 1 }, 0)
    t.equal(await countOf(key), 1)
  })

  await t.test('nothing else is told', async (t) => {
    const key = newKey()
    await store.create(key, newRecord(now()), 'a', 15_000)
    await store.confirm(key)
    await store.read(key)
    await store.touch(key, 0)
    await store.schedule(key, 60_000)
    await store.unschedule(key)
    await store.scheduleMissing([{ key, inMs: 60_000 }])
    await store.reseal(key, 'sealed-1', 'resealed')
    await store.beginRefresh(key, leaseRequest('a'))
    await store.beginRefresh(key, leaseRequest('b'))
    t.equal(await countOf(key), 0)
  })

  await t.test('every listener is told', async (t) => {
    const other: RecordKey[] = []
    store.onChange((key) => void other.push(key))
    const key = await startSession(made)
    await store.end(key)
    await passMarker(made, told)
    t.ok(other.includes(key))
  })
}

/** Messages of one store come in order: when this one has come, so have all before it. */
async function passMarker(made: TestStore, told: RecordKey[]): Promise<void> {
  const marker = await startSession(made)
  // Not an end, which is told here without any message.
  await made.store.replaceTokens(marker, 1, 'marker', 'sealed-2')
  await until('the marker is reported', () => told.includes(marker))
}
