import type { Test } from 'tap'
import { nonceContract } from './contract-nonces.ts'
import { queueContract } from './contract-queue.ts'
import { recordContract } from './contract-records.ts'
import { beginContract } from './contract-refresh-begin.ts'
import { outcomeContract } from './contract-refresh-outcome.ts'
import { resealContract } from './contract-reseal.ts'
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
  await t.test('the begin of a refresh', (t) => beginContract(t, made))
  await t.test('the end of a refresh', (t) => outcomeContract(t, made))
  await t.test('resealed tokens', (t) => resealContract(t, made))
  await t.test('nonces', (t) => nonceContract(t, made))
}
