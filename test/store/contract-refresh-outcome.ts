import type { Test } from 'tap'
import type { RecordKey } from '../../src/store/store.ts'
import { leaseRequest, newKey, startSession, type TestStore } from './stores.ts'

const LONG = 60_000

/** Releasing the lease, with new tokens and without. */
export async function outcomeContract(t: Test, made: TestStore): Promise<void> {
  const { store, pass } = made
  const begin = (key: RecordKey, attempt: string, leaseMs = LONG) =>
    store.beginRefresh(key, leaseRequest(attempt, { leaseMs }))

  await t.test('a presentation with a readable response, or none sent, leaves no doubt', async (t) => {
    const key = await startSession(made)
    await begin(key, 'a')
    await store.releaseLease(key, { attempt: 'a', inDoubt: null, retryInMs: 0 })
    const record = await store.read(key)
    t.equal(record?.doubts, 0)
    t.equal(record?.leaseUntil, 0)
    t.match(await begin(key, 'b'), { kind: 'granted', doubts: 0, openForMs: 0 })
  })

  await t.test('a presentation without a response leaves a doubt, and doubts add up', async (t) => {
    const key = await startSession(made)
    for (const [before, attempt] of ['a', 'b', 'c'].entries()) {
      t.match(await begin(key, attempt), { kind: 'granted', doubts: before, openForMs: 0 })
      await store.releaseLease(key, { attempt, inDoubt: { gen: 1, doubts: before + 1 }, retryInMs: 0 })
      t.equal((await store.read(key))?.doubts, before + 1)
    }
    await begin(key, 'd')
    await store.releaseLease(key, { attempt: 'd', inDoubt: null, retryInMs: 0 })
    t.equal((await store.read(key))?.doubts, 3, 'a later response does not remove earlier doubts')
  })

  await t.test('a lease that is released twice counts once', async (t) => {
    const key = await startSession(made)
    await begin(key, 'a')
    await store.releaseLease(key, { attempt: 'a', inDoubt: null, retryInMs: 0 })
    await store.releaseLease(key, { attempt: 'a', inDoubt: null, retryInMs: LONG })
    const record = await store.read(key)
    t.equal(record?.doubts, 0)
    t.equal((await begin(key, 'b')).kind, 'granted', 'the second call set no wait')
  })

  await t.test('an attempt that does not hold the lease releases nothing', async (t) => {
    const key = await startSession(made)
    await store.releaseLease(key, { attempt: 'a', inDoubt: null, retryInMs: LONG })
    await begin(key, 'a', 40)
    await pass(60)
    await begin(key, 'b')
    const before = await store.read(key)
    await store.releaseLease(key, { attempt: 'a', inDoubt: null, retryInMs: LONG })
    await store.releaseLease(key, { attempt: 'c', inDoubt: { gen: 1, doubts: 2 }, retryInMs: LONG })
    t.strictSame(await store.read(key), before)
    await store.releaseLease(newKey(), { attempt: 'a', inDoubt: null, retryInMs: LONG })
  })

  await t.test('a doubt whose lease the store has lost is written all the same, once', async (t) => {
    const key = await startSession(made)
    await store.releaseLease(key, { attempt: 'a', inDoubt: { gen: 2, doubts: 1 }, retryInMs: LONG })
    t.match(await store.read(key), { doubts: 0, retryAt: 0 }, 'not of another generation')
    await store.releaseLease(key, { attempt: 'a', inDoubt: { gen: 1, doubts: 1 }, retryInMs: LONG })
    const record = await store.read(key)
    t.equal(record?.doubts, 1)
    t.equal((await begin(key, 'b')).kind, 'backing_off')
    await store.releaseLease(key, { attempt: 'a', inDoubt: { gen: 1, doubts: 1 }, retryInMs: 2 * LONG })
    t.strictSame(await store.read(key), record)
  })

  await t.test('a lost doubt leaves the lease of another to its holder', async (t) => {
    const key = await startSession(made)
    await begin(key, 'b')
    await store.releaseLease(key, { attempt: 'a', inDoubt: { gen: 1, doubts: 3 }, retryInMs: 0 })
    t.match(await store.read(key), { doubts: 3 })
    t.equal((await begin(key, 'c')).kind, 'busy')
    await store.releaseLease(key, { attempt: 'b', inDoubt: null, retryInMs: 0 })
    t.match(await store.read(key), { doubts: 2, leaseUntil: 0 })
  })

  await t.test('a lease is renewed by its holder, and taken again where the store has lost it', async (t) => {
    const key = await startSession(made)
    const renew = (attempt: string, doubts = 1, gen = 1) =>
      store.renewLease(key, { gen, attempt, doubts, leaseMs: LONG })
    t.equal(await renew('a', 2), 'held', 'nobody holds it')
    t.equal((await store.read(key))?.doubts, 2, 'the doubts that were lost with it are written again')
    t.equal((await begin(key, 'b')).kind, 'busy')
    t.equal(await renew('b'), 'taken')
    t.equal(await renew('a', 1, 2), 'taken', 'of other tokens')
    t.equal(await renew('a'), 'held')
    t.equal((await store.read(key))?.doubts, 2, 'doubts only rise')
    await store.end(key)
    t.equal(await renew('a'), 'gone')
  })

  await t.test('an expired lease is renewed unless another attempt has taken it', async (t) => {
    const key = await startSession(made)
    await begin(key, 'a', 40)
    await pass(60)
    t.equal(await store.renewLease(key, { gen: 1, attempt: 'a', doubts: 1, leaseMs: 40 }), 'held')
    await pass(60)
    await begin(key, 'b', 40)
    await pass(60)
    t.equal(await store.renewLease(key, { gen: 1, attempt: 'a', doubts: 1, leaseMs: 40 }), 'taken')
  })

  await t.test('a holder whose lease expired but was not taken still releases it', async (t) => {
    const key = await startSession(made)
    await begin(key, 'a', 40)
    await pass(60)
    await store.releaseLease(key, { attempt: 'a', inDoubt: null, retryInMs: 0 })
    t.equal((await store.read(key))?.doubts, 0)
  })

  await t.test('new tokens raise the generation and clear lease, wait and doubts', async (t) => {
    const key = await startSession(made)
    await begin(key, 'a')
    await store.releaseLease(key, { attempt: 'a', inDoubt: { gen: 1, doubts: 1 }, retryInMs: 0 })
    await begin(key, 'b')
    const before = await store.read(key)
    t.strictSame(await store.replaceTokens(key, { gen: 1, attempt: 'b', tokens: 'sealed-2' }), {
      kind: 'replaced',
      written: true,
    })
    const after = await store.read(key)
    t.ok(after!.replacedAt >= before!.replacedAt)
    t.strictSame(after, {
      ...before,
      tokens: 'sealed-2',
      gen: 2,
      doubts: 0,
      leaseUntil: 0,
      retryAt: 0,
      replacedAt: after!.replacedAt,
    })
    const next = leaseRequest('c', { gen: 2 })
    t.match(await store.beginRefresh(key, next), { kind: 'granted', doubts: 0, openForMs: 0 })
  })

  await t.test('the same replacement again writes nothing', async (t) => {
    const key = await startSession(made)
    await store.replaceTokens(key, { gen: 1, attempt: 'a', tokens: 'sealed-2' })
    const next = leaseRequest('b', { gen: 2 })
    await store.beginRefresh(key, next)
    const before = await store.read(key)
    t.strictSame(await store.replaceTokens(key, { gen: 1, attempt: 'a', tokens: 'sealed-2' }), {
      kind: 'replaced',
      written: false,
    })
    t.strictSame(await store.read(key), before, 'the lease of the next generation stays')
  })

  await t.test('tokens of another generation are not overwritten', async (t) => {
    const key = await startSession(made)
    await store.replaceTokens(key, { gen: 1, attempt: 'a', tokens: 'sealed-2' })
    t.strictSame(await store.replaceTokens(key, { gen: 1, attempt: 'b', tokens: 'other' }), { kind: 'newer' })
    t.strictSame(await store.replaceTokens(key, { gen: 2, attempt: 'b', tokens: 'sealed-3' }), {
      kind: 'replaced',
      written: true,
    })
    t.strictSame(await store.replaceTokens(key, { gen: 1, attempt: 'a', tokens: 'sealed-2' }), {
      kind: 'newer',
    })
    t.equal((await store.read(key))?.tokens, 'sealed-3')
  })

  await t.test('tokens are stored over those of an older generation than was read', async (t) => {
    const key = await startSession(made)
    t.strictSame(await store.replaceTokens(key, { gen: 4, attempt: 'a', tokens: 'sealed-5' }), {
      kind: 'replaced',
      written: true,
    })
    t.strictSame(await store.replaceTokens(key, { gen: 4, attempt: 'a', tokens: 'sealed-5' }), {
      kind: 'replaced',
      written: false,
    })
    t.equal((await store.read(key))?.tokens, 'sealed-5')
  })

  await t.test('new tokens end the lease of an older generation, whichever attempt holds it', async (t) => {
    const key = await startSession(made)
    await begin(key, 'a')
    await store.replaceTokens(key, { gen: 1, attempt: 'r', tokens: 'sealed-2' })
    const next = leaseRequest('b', { gen: 2 })
    t.match(await store.beginRefresh(key, next), { kind: 'granted', doubts: 0, openForMs: 0 })
    await store.releaseLease(key, { attempt: 'a', inDoubt: null, retryInMs: LONG })
    t.ok(((await store.read(key))?.leaseUntil ?? 0) > 0, 'the older attempt releases nothing')
  })

  await t.test(
    'the attempt that created the record does not count as one that replaced its tokens',
    async (t) => {
      const key = await startSession(made)
      const record = await store.read(key)
      t.equal(record?.gen, 1)
      t.strictSame(await store.replaceTokens(key, { gen: 0, attempt: 'z', tokens: 'sealed-0' }), {
        kind: 'newer',
      })
      t.equal((await store.read(key))?.tokens, 'sealed-1')
    },
  )

  await t.test('new tokens are stored without a lease, and even while another holds it', async (t) => {
    const key = await startSession(made)
    await begin(key, 'a', 40)
    await pass(60)
    await begin(key, 'b')
    t.strictSame(await store.replaceTokens(key, { gen: 1, attempt: 'a', tokens: 'sealed-2' }), {
      kind: 'replaced',
      written: true,
    })
    t.strictSame(await store.replaceTokens(key, { gen: 1, attempt: 'b', tokens: 'other' }), { kind: 'newer' })
  })

  await t.test(
    'of 50 replacements of one generation exactly one is stored, in each of 20 rounds',
    async (t) => {
      for (let round = 0; round < 20; round++) {
        const key = await startSession(made)
        const names = Array.from({ length: 50 }, (_, i) => `attempt-${i}`)
        const results = await Promise.all(
          names.map((name) => store.replaceTokens(key, { gen: 1, attempt: name, tokens: name })),
        )
        const winners = names.filter((_, i) => results[i]?.kind === 'replaced')
        t.equal(winners.length, 1)
        t.equal(results.filter(({ kind }) => kind === 'newer').length, 49)
        const record = await store.read(key)
        t.equal(record?.gen, 2)
        t.equal(record?.tokens, winners[0])
      }
    },
  )

  await t.test('logout beats a refresh: whichever comes first, the session stays ended', async (t) => {
    for (let round = 0; round < 20; round++) {
      const key = await startSession(made)
      const [replaced, ended] = await Promise.all([
        store.replaceTokens(key, { gen: 1, attempt: 'a', tokens: 'sealed-2' }),
        store.end(key),
      ])
      t.equal(ended.kind, 'ended')
      const tokens = replaced.kind === 'replaced' ? 'sealed-2' : 'sealed-1'
      if (ended.kind === 'ended') t.equal(ended.tokens, tokens, 'it returns the tokens of that time')
      t.equal(await store.read(key), null)
    }
  })
}
