import t from 'tap'
import { storeContract } from './contract.ts'
import { memoryStore } from './stores.ts'

t.test('the memory store keeps the promises of a store', async (t) => {
  await storeContract(t, async (t) => memoryStore(t))
})
