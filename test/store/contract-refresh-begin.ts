import type { Test } from 'tap'
import type { BeginRefresh, RecordKey } from '../../src/store/store.ts'
import { leaseRequest, newKey, startSession, type TestStore } from './stores.ts'

const LONG = 60_000

/** Taking the right to refresh. */
export async function beginContract(t: Test, made: TestStore): Promise<void> {
  const { store, now, pass } = made
  const begin = (
    key: RecordKey,
    attempt: string,
    { gen = 1, leaseMs = LONG, forcedWindowMs = 0 } = {},
  ): Promise<BeginRefresh> => store.beginRefresh(key, leaseRequest(attempt, { gen, leaseMs, forcedWindowMs }))

  await t.test('the right is granted with no doubts, and the intent can be read', async (t) => {
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

  await t.test('while the right is taken another attempt is reported for how long', async (t) => {
    const key = await startSession(made)
    await begin(key, 'a')
    const answer = await begin(key, 'b')
    t.equal(answer.kind, 'busy')
    if (answer.kind === 'busy') t.ok(answer.waitMs > LONG - 10_000 && answer.waitMs <= LONG)
    t.equal((await begin(key, 'c', { forcedWindowMs: LONG })).kind, 'busy', 'a forced one waits too')
    t.match(
      await begin(key, 'a'),
      { kind: 'granted', doubts: 0, openForMs: 0 },
      'it is still the first one’s',
    )
  })

  await t.test('a right that lapsed goes to the next attempt, which is reported of the doubt', async (t) => {
    const key = await startSession(made)
    await begin(key, 'a', { leaseMs: 40 })
    await pass(60)
    t.match(await begin(key, 'b'), { kind: 'granted', doubts: 1, openForMs: 0 })
    t.equal((await begin(key, 'a')).kind, 'busy', 'the first one has lost it')
    t.equal((await store.read(key))?.doubts, 2)
  })

  await t.test('an attempt whose lease lapsed unnoticed is granted again and counted once', async (t) => {
    const key = await startSession(made)
    await begin(key, 'a', { leaseMs: 40 })
    await pass(60)
    t.match(await begin(key, 'a'), { kind: 'granted', doubts: 0, openForMs: 0 })
    t.equal((await store.read(key))?.doubts, 1)
  })

  await t.test('who read another generation is reported that the tokens were replaced', async (t) => {
    const key = await startSession(made)
    await store.replaceTokens(key, { gen: 1, attempt: 'a', tokens: 'sealed-2' })
    t.match(await begin(key, 'b'), { kind: 'replaced' })
    t.match(await begin(key, 'b', { gen: 3 }), { kind: 'replaced' })
    t.match(await begin(key, 'b', { gen: 2 }), { kind: 'granted', doubts: 0, openForMs: 0 })
  })

  await t.test('there is no right to refresh a session that is gone', async (t) => {
    t.match(await begin(newKey(), 'a'), { kind: 'gone' })
  })

  await t.test('after a failure the next attempt is reported how long to wait', async (t) => {
    const key = await startSession(made)
    await begin(key, 'a')
    await store.releaseLease(key, { attempt: 'a', inDoubt: null, retryInMs: LONG })
    const answer = await begin(key, 'b')
    t.equal(answer.kind, 'backing_off')
    if (answer.kind === 'backing_off') t.ok(answer.waitMs > LONG - 10_000 && answer.waitMs <= LONG)
    const record = await store.read(key)
    t.equal(record?.doubts, 0, 'who is reported to wait has presented nothing')
    t.ok(Math.abs((record?.retryAt ?? 0) - (now() + LONG)) < 5_000)
  })

  await t.test('after the wait the right is granted', async (t) => {
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
      'the same attempt again is no second one',
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

  await t.test('the window holds over a replacement of the tokens', async (t) => {
    const key = await startSession(made)
    await begin(key, 'a', { forcedWindowMs: LONG })
    await store.replaceTokens(key, { gen: 1, attempt: 'a', tokens: 'sealed-2' })
    t.match(await begin(key, 'b', { gen: 2, forcedWindowMs: LONG }), { kind: 'forced_before' })
    t.match(
      await begin(key, 'c', { gen: 2 }),
      { kind: 'granted', doubts: 0, openForMs: 0 },
      'any other may go on',
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
      const kinds = (await Promise.all(attempts)).map((answer) => answer.kind)
      t.equal(kinds.filter((kind) => kind === 'granted').length, 1)
      t.equal(kinds.filter((kind) => kind === 'busy').length, 49)
      t.equal((await store.read(key))?.doubts, 1)
    }
  })
}
