import type { Test } from 'tap'
import type { RecordKey } from '../../src/store/store.ts'
import { until } from '../helpers/wait.ts'
import { leaseRequest, newKey, newRecord, startSession, type TestStore } from './stores.ts'

/** Which changes a store announces, and to whom. */
export async function changeContract(t: Test, made: TestStore): Promise<void> {
  const { store, now } = made
  const reported: RecordKey[] = []
  store.onChange((key) => void reported.push(key))

  /** How often `key` was announced, once all earlier messages have arrived. */
  async function countOf(key: RecordKey): Promise<number> {
    await passMarker(made, reported)
    return reported.filter((one) => one === key).length
  }

  await t.test('messages are proven to arrive', async (t) => {
    t.equal(store.health.isLive(), true)
  })

  await t.test('replaced tokens are announced once, even if the same attempt is repeated', async (t) => {
    const key = await startSession(made)
    await store.replaceTokens(key, { gen: 1, attempt: 'a', tokens: 'sealed-2' })
    t.equal(await countOf(key), 1)
    await store.replaceTokens(key, { gen: 1, attempt: 'a', tokens: 'sealed-2' })
    await store.replaceTokens(key, { gen: 1, attempt: 'b', tokens: 'other' })
    t.equal(await countOf(key), 1)
  })

  await t.test('restored tokens are announced, and a restore without effect is not', async (t) => {
    const key = await startSession(made)
    await store.restoreTokens(key, { gen: 2, attempt: 'r', tokens: 'sealed-2' })
    t.equal(await countOf(key), 1)
    await store.restoreTokens(key, { gen: 2, attempt: 'r', tokens: 'sealed-2' })
    t.equal(await countOf(key), 1)
  })

  await t.test('the end of a session is announced in this process at once, and to all others', async (t) => {
    const key = await startSession(made)
    await store.end(key, { gen: 7 })
    t.equal(await countOf(key), 0, 'not for another generation')
    await store.end(key, { gen: 1 })
    t.ok(reported.includes(key), 'before the call returns')
    const count = await countOf(key)
    await store.end(key)
    t.equal(await countOf(key), count, 'not for a session that is gone')
  })

  await t.test('a released lease is announced, and a lease that is not held is not', async (t) => {
    const key = await startSession(made)
    await store.beginRefresh(key, leaseRequest('a'))
    await store.releaseLease(key, { attempt: 'b', inDoubt: null, retryInMs: 0 })
    t.equal(await countOf(key), 0)
    await store.releaseLease(key, { attempt: 'a', inDoubt: { gen: 1, doubts: 1 }, retryInMs: 0 })
    t.equal(await countOf(key), 1)
    await store.releaseLease(key, { attempt: 'a', inDoubt: { gen: 1, doubts: 1 }, retryInMs: 0 })
    t.equal(await countOf(key), 1)
  })

  await t.test('no other method announces anything', async (t) => {
    const key = newKey()
    await store.create(key, newRecord(now()), 15_000)
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

  await t.test('every listener is called', async (t) => {
    const other: RecordKey[] = []
    store.onChange((key) => void other.push(key))
    const key = await startSession(made)
    await store.end(key)
    await passMarker(made, reported)
    t.ok(other.includes(key))
  })
}

/** Messages of one store keep their order: once this one has arrived, all earlier ones have. */
async function passMarker(made: TestStore, reported: RecordKey[]): Promise<void> {
  const marker = await startSession(made)
  // Not an end: this process announces an end without a message.
  await made.store.replaceTokens(marker, { gen: 1, attempt: 'marker', tokens: 'sealed-2' })
  await until('the marker is reported', () => reported.includes(marker))
}
