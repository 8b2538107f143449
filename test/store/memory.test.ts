import t from 'tap'
import { createMemoryStore } from '../../src/store/memory/store.ts'
import { storeContract } from './contract.ts'
import { IDLE_MS, memoryStore, newKey, newRecord, startSession } from './stores.ts'

t.test('the memory store passes the store contract', async (t) => {
  await storeContract(t, async (t) => memoryStore(t))
})

t.test('limits pass while the machine is suspended, although the monotonic clock stops', async (t) => {
  let asleepMs = 0
  const store = createMemoryStore({ now: Date.now, wall: () => Date.now() + asleepMs, idleMs: IDLE_MS })
  t.teardown(() => store.close())
  const key = newKey()
  await store.create(key, newRecord(Date.now()), 15_000)
  await store.confirm(key)
  t.match(await store.endPassed(key, 1, 'idle'), { kind: 'precondition_failed' })
  asleepMs = IDLE_MS + 10_000
  t.match(await store.endPassed(key, 1, 'idle'), { kind: 'ended' })
})

t.test('the reason of an end is kept for an hour', async (t) => {
  const made = memoryStore(t)
  const key = await startSession(made)
  await made.store.end(key, { reason: 'logout' })
  await made.pass(3_599_999)
  t.match(await made.store.readEnd(key), { reason: 'logout' })
  await made.pass(1)
  t.equal(await made.store.readEnd(key), null)
})
