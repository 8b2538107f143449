import type { Test } from 'tap'
import { changeContract } from './contract-changes.ts'
import { nonceContract } from './contract-nonces.ts'
import { queueContract } from './contract-queue.ts'
import { recordContract } from './contract-records.ts'
import { beginContract } from './contract-refresh-begin.ts'
import { settleContract } from './contract-refresh-settle.ts'
import { resealContract } from './contract-reseal.ts'
import { walkContract } from './contract-walk.ts'
import type { TestStore } from './stores.ts'

/** What every store promises, whatever it is made of. `makeStore` gives an empty one. */
export async function storeContract(t: Test, makeStore: (t: Test) => Promise<TestStore>): Promise<void> {
  const made = await makeStore(t)
  // First, while its queue is empty.
  await t.test('the due queue', (t) => queueContract(t, made))
  // While there is no record.
  await t.test('the walk over all records', (t) => walkContract(t, made))
  await t.test('records', (t) => recordContract(t, made))
  await t.test('the right to refresh', (t) => beginContract(t, made))
  await t.test('the end of a refresh', (t) => settleContract(t, made))
  await t.test('tokens sealed again', (t) => resealContract(t, made))
  await t.test('change messages', (t) => changeContract(t, made))
  await t.test('nonces', (t) => nonceContract(t, made))
}
