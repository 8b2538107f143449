import type { Teardown } from '../helpers/child.ts'
import { changeContract } from './contract-changes.ts'
import { nonceContract } from './contract-nonces.ts'
import { queueContract } from './contract-queue.ts'
import { recordContract } from './contract-records.ts'
import { refreshContract } from './contract-refresh.ts'
import type { TestStore } from './stores.ts'

/** What every store promises, whatever it is made of. `makeStore` gives an empty one. */
export async function storeContract(
  t: Tap.Test,
  makeStore: (t: Teardown) => Promise<TestStore>,
): Promise<void> {
  for (const part of [recordContract, refreshContract, changeContract, nonceContract, queueContract]) {
    await part(t, await makeStore(t))
  }
}
