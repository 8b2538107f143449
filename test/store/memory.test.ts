import t from 'tap'
import { storeContract } from './contract.ts'
import { memoryStore, startSession } from './stores.ts'

t.test('the memory store passes the store contract', async (t) => {
  await storeContract(t, async (t) => memoryStore(t))
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
