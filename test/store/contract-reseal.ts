import type { Test } from 'tap'
import { leaseRequest, newKey, startSession, type TestStore } from './stores.ts'

/** Sealing the same tokens under another secret. */
export async function resealContract(t: Test, made: TestStore): Promise<void> {
  const { store } = made

  await t.test('resealed tokens replace the tokens that were read', async (t) => {
    const key = await startSession(made)
    await store.beginRefresh(key, leaseRequest('a'))
    const before = await store.read(key)
    t.equal(await store.reseal(key, 'sealed-1', 'resealed'), true)
    t.strictSame(await store.read(key), { ...before, tokens: 'resealed' }, 'and nothing else changes')
    const replaced = await store.replaceTokens(key, { gen: 1, attempt: 'a', tokens: 'sealed-2' })
    t.strictSame(replaced, { kind: 'replaced', written: true }, 'a refresh under way is not disturbed')
  })

  await t.test('reseal() writes nothing if the tokens have changed since the read', async (t) => {
    const key = await startSession(made)
    await store.replaceTokens(key, { gen: 1, attempt: 'a', tokens: 'sealed-2' })
    t.equal(await store.reseal(key, 'sealed-1', 'resealed'), false, 'they are newer')
    t.equal((await store.read(key))?.tokens, 'sealed-2')
    t.equal(await store.reseal(key, 'sealed-2', 'resealed-2'), true)
    t.equal(await store.reseal(key, 'sealed-2', 'other'), false, 'another replica was faster')
    t.equal((await store.read(key))?.tokens, 'resealed-2')
  })

  await t.test('reseal() neither creates nor restores a session', async (t) => {
    const key = await startSession(made)
    await store.end(key)
    t.equal(await store.reseal(key, 'sealed-1', 'resealed'), false)
    t.equal(await store.reseal(newKey(), '', 'resealed'), false)
    t.equal(await store.read(key), null)
  })

  await t.test('of 20 replicas exactly one writes, in each of 20 rounds', async (t) => {
    const key = await startSession(made)
    for (let round = 1; round <= 20; round++) {
      const was = (await store.read(key))!.tokens
      const calls = Array.from({ length: 20 }, (_, i) => store.reseal(key, was, `resealed-${round}-${i}`))
      t.equal((await Promise.all(calls)).filter((written) => written).length, 1)
    }
    t.equal((await store.read(key))?.gen, 1)
    t.ok(await store.touch(key))
  })
}
