import type { Test } from 'tap'
import type { BeginRefreshResult, RecordKey } from '../../src/store/store.ts'
import { leaseRequest, newKey, startSession, type TestStore } from './stores.ts'

const LONG = 60_000

/** Taking the lease of a refresh. */
export async function beginContract(t: Test, made: TestStore): Promise<void> {
  const { store, now, pass } = made
  const begin = (
    key: RecordKey,
    attempt: string,
    { gen = 1, leaseMs = LONG, forcedWindowMs = 0 } = {},
  ): Promise<BeginRefreshResult> =>
    store.beginRefresh(key, leaseRequest(attempt, { gen, leaseMs, forcedWindowMs }))

  await t.test('the lease is granted with no doubts, and the record counts one', async (t) => {
    const key = await startSession(made)
    t.match(await begin(key, 'a'), { kind: 'granted', doubts: 0, openForMs: 0 })
    const record = await store.read(key)
    t.equal(record?.doubts, 1, 'the presentation under way counts')
    t.ok(Math.abs((record?.leaseUntil ?? 0) - (now() + LONG)) < 5_000)
  })

  await t.test('the same attempt again is granted again, with the same count', async (t) => {
    const key = await startSession(made)
    await begin(key, 'a')
    t.match(await begin(key, 'a'), { kind: 'granted', doubts: 0, openForMs: 0 })
    t.equal((await store.read(key))?.doubts, 1)
  })

  await t.test('another attempt learns how long the lease is held', async (t) => {
    const key = await startSession(made)
    await begin(key, 'a')
    const begun = await begin(key, 'b')
    t.equal(begun.kind, 'busy')
    if (begun.kind === 'busy') t.ok(begun.waitMs > LONG - 10_000 && begun.waitMs <= LONG)
    t.equal((await begin(key, 'c', { forcedWindowMs: LONG })).kind, 'busy', 'a forced one waits too')
    t.match(
      await begin(key, 'a'),
      { kind: 'granted', doubts: 0, openForMs: 0 },
      'the first attempt still holds it',
    )
  })

  await t.test('an expired lease goes to the next attempt, which learns of the doubt', async (t) => {
    const key = await startSession(made)
    await begin(key, 'a', { leaseMs: 40 })
    await pass(60)
    t.match(await begin(key, 'b'), { kind: 'granted', doubts: 1, openForMs: 0 })
    t.equal((await begin(key, 'a')).kind, 'busy', 'the first one has lost it')
    t.equal((await store.read(key))?.doubts, 2)
  })

  await t.test('an attempt whose expired lease nobody took is granted again and counted once', async (t) => {
    const key = await startSession(made)
    await begin(key, 'a', { leaseMs: 40 })
    await pass(60)
    t.match(await begin(key, 'a'), { kind: 'granted', doubts: 0, openForMs: 0 })
    t.equal((await store.read(key))?.doubts, 1)
  })

  await t.test('an attempt that read another generation learns that the tokens were replaced', async (t) => {
    const key = await startSession(made)
    await store.replaceTokens(key, { gen: 1, attempt: 'a', tokens: 'sealed-2' })
    t.match(await begin(key, 'b'), { kind: 'replaced' })
    t.match(await begin(key, 'b', { gen: 3 }), { kind: 'replaced' })
    t.match(await begin(key, 'b', { gen: 2 }), { kind: 'granted', doubts: 0, openForMs: 0 })
  })

  await t.test('there is no lease for a session that is gone', async (t) => {
    t.match(await begin(newKey(), 'a'), { kind: 'gone' })
  })

  await t.test('after a failure the next attempt learns how long to wait', async (t) => {
    const key = await startSession(made)
    await begin(key, 'a')
    await store.releaseLease(key, { attempt: 'a', inDoubt: null, retryInMs: LONG })
    const begun = await begin(key, 'b')
    t.equal(begun.kind, 'backing_off')
    if (begun.kind === 'backing_off') t.ok(begun.waitMs > LONG - 10_000 && begun.waitMs <= LONG)
    const record = await store.read(key)
    t.equal(record?.doubts, 0, 'an attempt that must wait has presented nothing')
    t.ok(Math.abs((record?.retryAt ?? 0) - (now() + LONG)) < 5_000)
  })

  await t.test('after the wait the lease is granted', async (t) => {
    const key = await startSession(made)
    await begin(key, 'a')
    await store.releaseLease(key, { attempt: 'a', inDoubt: null, retryInMs: 40 })
    await pass(60)
    t.match(await begin(key, 'b'), { kind: 'granted', doubts: 0, openForMs: 0 })
  })

  await t.test('a forced refresh does not wait for the end of a back-off', async (t) => {
    const key = await startSession(made)
    await begin(key, 'a')
    await store.releaseLease(key, { attempt: 'a', inDoubt: null, retryInMs: LONG })
    t.match(await begin(key, 'b', { forcedWindowMs: LONG }), {
      kind: 'granted',
      doubts: 0,
      openForMs: 0,
    })
    t.match(
      await begin(key, 'b', { forcedWindowMs: LONG }),
      { kind: 'granted', doubts: 0, openForMs: 0 },
      'the same attempt again does not count as a second one',
    )
  })

  await t.test(
    'a second forced refresh within the window waits for the back-off like any other',
    async (t) => {
      const key = await startSession(made)
      await begin(key, 'a', { forcedWindowMs: LONG })
      await store.releaseLease(key, { attempt: 'a', inDoubt: null, retryInMs: LONG })
      t.equal((await begin(key, 'b', { forcedWindowMs: LONG })).kind, 'backing_off')
    },
  )

  await t.test('a forced refresh that brought no new tokens may be made again', async (t) => {
    const key = await startSession(made)
    await begin(key, 'a', { forcedWindowMs: LONG })
    await store.releaseLease(key, { attempt: 'a', inDoubt: null, retryInMs: 0 })
    t.match(await begin(key, 'b', { forcedWindowMs: LONG }), {
      kind: 'granted',
      doubts: 0,
      openForMs: 0,
    })
  })

  await t.test('the window outlasts a replacement of the tokens', async (t) => {
    const key = await startSession(made)
    await begin(key, 'a', { forcedWindowMs: LONG })
    await store.replaceTokens(key, { gen: 1, attempt: 'a', tokens: 'sealed-2' })
    t.match(await begin(key, 'b', { gen: 2, forcedWindowMs: LONG }), { kind: 'forced_before' })
    t.match(
      await begin(key, 'c', { gen: 2 }),
      { kind: 'granted', doubts: 0, openForMs: 0 },
      'a refresh that is not forced may begin',
    )
  })

  await t.test('after the window a refresh may be forced again', async (t) => {
    const key = await startSession(made)
    await begin(key, 'a', { forcedWindowMs: 40 })
    await store.releaseLease(key, { attempt: 'a', inDoubt: null, retryInMs: 0 })
    await pass(60)
    t.match(await begin(key, 'b', { forcedWindowMs: 40 }), { kind: 'granted', doubts: 0, openForMs: 0 })
  })

  await t.test('a refresh that is not forced opens no window', async (t) => {
    const key = await startSession(made)
    await begin(key, 'a')
    await store.releaseLease(key, { attempt: 'a', inDoubt: null, retryInMs: 0 })
    t.match(await begin(key, 'b', { forcedWindowMs: LONG }), {
      kind: 'granted',
      doubts: 0,
      openForMs: 0,
    })
  })

  await t.test('of 50 attempts at once exactly one is granted, in each of 20 rounds', async (t) => {
    for (let round = 0; round < 20; round++) {
      const key = await startSession(made)
      const attempts = Array.from({ length: 50 }, (_, i) => begin(key, `attempt-${i}`))
      const kinds = (await Promise.all(attempts)).map(({ kind }) => kind)
      t.equal(kinds.filter((kind) => kind === 'granted').length, 1)
      t.equal(kinds.filter((kind) => kind === 'busy').length, 49)
      t.equal((await store.read(key))?.doubts, 1)
    }
  })
}
