import type { Test } from 'tap'
import { nonceContract } from './contract-nonces.ts'
import { queueContract } from './contract-queue.ts'
import { recordContract } from './contract-records.ts'
import { refreshContract } from './contract-refresh.ts'
import { scanContract } from './contract-scan.ts'
import type { TestStore } from './stores.ts'

/** The contract tests that every store passes. `makeStore` returns an empty store. */
export async function storeContract(t: Test, makeStore: (t: Test) => Promise<TestStore>): Promise<void> {
  const made = await makeStore(t)
  // First, because it needs an empty queue.
  await t.test('the due queue', (t) => queueContract(t, made))
  // Before any record exists.
  await t.test('the scan over all records', (t) => scanContract(t, made))
  await t.test('records', (t) => recordContract(t, made))
  await t.test('the refresh of a record', (t) => refreshContract(t, made))
  await t.test('nonces', (t) => nonceContract(t, made))
}
