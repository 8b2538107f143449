import { randomUUID } from 'node:crypto'
import type { Test } from 'tap'
import type { TestStore } from './stores.ts'

const LONG = 600_000

/** The single-use nonces of sign-ins. */
export async function nonceContract(t: Test, { store, pass }: TestStore): Promise<void> {
  await t.test(
    'a nonce is claimed once; the same attempt may repeat its claim, which extends nothing',
    async (t) => {
      const nonce = randomUUID()
      t.equal(await store.nonceClaimed(nonce), false)
      t.equal(await store.claimNonce(nonce, 'a', 400), true)
      t.equal(await store.claimNonce(nonce, 'b', LONG), false)
      t.equal(await store.claimNonce(nonce, 'a', LONG), true)
      t.equal(await store.nonceClaimed(nonce), true)
      await pass(450)
      t.equal(await store.nonceClaimed(nonce), false)
      t.equal(await store.claimNonce(nonce, 'b', LONG), true)
    },
  )

  await t.test('of 50 callers exactly one claims a nonce, in each of 20 rounds', async (t) => {
    for (let round = 0; round < 20; round++) {
      const nonce = randomUUID()
      const calls = Array.from({ length: 50 }, (_, i) => store.claimNonce(nonce, `attempt-${i}`, LONG))
      t.equal((await Promise.all(calls)).filter((claimed) => claimed).length, 1)
    }
  })
}
