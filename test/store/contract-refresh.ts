import type { Test } from 'tap'
import {
  begin,
  changesOnly,
  end,
  granted,
  LONG,
  pass,
  read,
  release,
  renew,
  replace,
  reseal,
  runCases,
  type Step,
  waitsLong,
  written,
  writtenBefore,
} from './contract-steps.ts'
import { startSession, type TestStore } from './stores.ts'

const FORCED = { forcedWindowMs: LONG }
const SHORT = { leaseMs: 40 }

const LEASE: Record<string, Step[]> = {
  'the lease is granted to one attempt, again if it asks again, and counts one doubt': [
    [begin('a'), granted(0)],
    [begin('a'), granted(0)],
    [read, { doubts: 1 }],
    [begin('b'), waitsLong('busy')],
    [begin('c', FORCED), waitsLong('busy')],
    [begin('a'), granted(0)],
  ],
  'an expired lease goes to the next attempt, which learns of the doubt': [
    [begin('a', SHORT), granted(0)],
    [pass(60)],
    [begin('b'), granted(1)],
    [begin('a'), waitsLong('busy')],
    [read, { doubts: 2 }],
  ],
  'an attempt whose expired lease nobody took is granted again and counted once': [
    [begin('a', SHORT), granted(0)],
    [pass(60)],
    [begin('a'), granted(0)],
    [read, { doubts: 1 }],
  ],
  'an attempt that read another generation learns that the tokens were replaced': [
    [replace(), written],
    [begin('b', { gen: 1 }), { kind: 'replaced' }],
    [begin('b', { gen: 3 }), { kind: 'replaced' }],
    [begin('b', { gen: 2 }), granted(0)],
  ],
  'after a failure the next attempt learns how long to wait': [
    [begin('a'), granted(0)],
    [release('a', { retryInMs: LONG })],
    [begin('b'), waitsLong('backing_off')],
    [read, { doubts: 0, leaseUntil: 0 }],
  ],
  'after the wait the lease is granted': [
    [begin('a'), granted(0)],
    [release('a', { retryInMs: 40 })],
    [pass(60)],
    [begin('b'), granted(0)],
  ],
  'a forced refresh does not wait for the end of a back-off, and does not count twice': [
    [begin('a'), granted(0)],
    [release('a', { retryInMs: LONG })],
    [begin('b', FORCED), granted(0)],
    [begin('b', FORCED), granted(0)],
  ],
  'a second forced refresh within the window waits for the back-off like any other': [
    [begin('a', FORCED), granted(0)],
    [release('a', { retryInMs: LONG })],
    [begin('b', FORCED), waitsLong('backing_off')],
  ],
  'a forced refresh that brought no new tokens may be made again': [
    [begin('a', FORCED), granted(0)],
    [release('a')],
    [begin('b', FORCED), granted(0)],
  ],
  'the window outlasts a replacement of the tokens, for forced refreshes alone': [
    [begin('a', FORCED), granted(0)],
    [replace(), written],
    [begin('b', { gen: 2, ...FORCED }), { kind: 'forced_before' }],
    [begin('c', { gen: 2 }), granted(0)],
  ],
  'after the window a refresh may be forced again': [
    [begin('a', { forcedWindowMs: 40 }), granted(0)],
    [replace(), written],
    [pass(60)],
    [begin('b', { gen: 2, forcedWindowMs: 40 }), granted(0)],
  ],
  'a refresh that is not forced opens no window': [
    [begin('a'), granted(0)],
    [replace(), written],
    [begin('b', { gen: 2, ...FORCED }), granted(0)],
  ],
  'a presentation without a response leaves a doubt; doubts add up and stay': [
    [begin('a'), granted(0)],
    [release('a', { doubts: 1 })],
    [begin('b'), granted(1)],
    [release('b', { doubts: 2 })],
    [read, { doubts: 2 }],
    [begin('c'), granted(2)],
    [release('c')],
    [read, { doubts: 2 }],
  ],
  'a lease that is released twice counts once': [
    [begin('a'), granted(0)],
    [release('a')],
    [release('a', { retryInMs: LONG })],
    [read, { doubts: 0, leaseUntil: 0 }],
    [begin('b'), granted(0)],
  ],
  'an attempt that does not hold the lease releases nothing': [
    [changesOnly({}, release('a', { retryInMs: LONG })), true],
    [begin('a', SHORT), granted(0)],
    [pass(60)],
    [begin('b'), granted(1)],
    [changesOnly({}, release('a', { retryInMs: LONG })), true],
    [changesOnly({}, release('c', { doubts: 2, retryInMs: LONG })), true],
  ],
  'a doubt whose lease the store has lost is written all the same, once, if it is of this generation': [
    [release('a', { gen: 2, doubts: 1, retryInMs: LONG })],
    [read, { doubts: 0, retryAt: 0 }],
    [release('a', { doubts: 1, retryInMs: LONG })],
    [read, { doubts: 1 }],
    [begin('b'), waitsLong('backing_off')],
    [changesOnly({}, release('a', { doubts: 1, retryInMs: 2 * LONG })), true],
  ],
  'a lost doubt leaves the lease of another to its holder': [
    [begin('b'), granted(0)],
    [release('a', { doubts: 3 })],
    [begin('c'), { kind: 'busy' }],
    [release('b')],
    [read, { doubts: 2, leaseUntil: 0 }],
  ],
  'a lease is renewed by its holder, and taken again where the store has lost it': [
    [renew('a', { doubts: 2 }), 'held'],
    [read, { doubts: 2 }],
    [begin('b'), waitsLong('busy')],
    [renew('b'), 'taken'],
    [renew('a', { gen: 2 }), 'taken'],
    [renew('a'), 'held'],
    [read, { doubts: 2 }],
    [end(), { kind: 'ended' }],
    [renew('a'), 'gone'],
  ],
  'an expired lease is renewed unless another attempt has taken it': [
    [begin('a', SHORT), granted(0)],
    [pass(60)],
    [renew('a', SHORT), 'held'],
    [pass(60)],
    [begin('b', SHORT), granted(1)],
    [pass(60)],
    [renew('a', SHORT), 'taken'],
  ],
  'a holder whose lease expired but was not taken still releases it': [
    [begin('a', SHORT), granted(0)],
    [pass(60)],
    [release('a')],
    [read, { doubts: 0 }],
  ],
}

const TOKENS: Record<string, Step[]> = {
  'the same replacement again writes nothing': [
    [replace(), written],
    [begin('b', { gen: 2 }), granted(0)],
    [changesOnly({}, replace()), true],
    [replace(), writtenBefore],
  ],
  'tokens of another generation are not overwritten': [
    [replace(), written],
    [replace(1, 'other'), { kind: 'newer' }],
    [replace(2), written],
    [replace(), { kind: 'newer' }],
    [read, { gen: 3, tokens: 'sealed-3' }],
  ],
  'tokens are stored over those of an older generation than was read': [
    [replace(4), written],
    [replace(4), writtenBefore],
    [read, { gen: 5, tokens: 'sealed-5' }],
  ],
  'the tokens of a new record count as newer than those of generation 0': [
    [replace(0, 'sealed-0'), { kind: 'newer' }],
    [read, { gen: 1, tokens: 'sealed-1' }],
  ],
  'new tokens are stored without a lease, and even while another holds it': [
    [begin('a', SHORT), granted(0)],
    [pass(60)],
    [begin('b'), granted(1)],
    [replace(), written],
    [replace(1, 'other'), { kind: 'newer' }],
    [begin('c', { gen: 2 }), granted(0)],
    [changesOnly({}, release('b', { retryInMs: LONG })), true],
  ],
  'resealed tokens replace the tokens that were read, and change nothing else': [
    [begin('a'), granted(0)],
    [changesOnly({ tokens: 'resealed' }, reseal('sealed-1', 'resealed')), true],
    [reseal('sealed-1', 'other'), false],
    [replace(), written],
    [reseal('resealed', 'other'), false],
    [reseal('sealed-2', 'resealed-2'), true],
    [replace(), { kind: 'newer' }],
    [read, { gen: 2, tokens: 'resealed-2' }],
    [end(), { kind: 'ended', tokens: 'resealed-2' }],
    [reseal('resealed-2', 'other'), false],
    [read, null],
  ],
}

/** The lease of a refresh, and how it ends: released, with new tokens, or by the end of the session. */
export async function refreshContract(t: Test, made: TestStore): Promise<void> {
  const { store, now } = made
  await runCases(t, made, LEASE)
  await runCases(t, made, TOKENS)

  await t.test('lease and back-off are dated by the clock of the store', async (t) => {
    const session = { ...made, key: await startSession(made) }
    await begin('a')(session)
    t.ok(Math.abs((await store.read(session.key))!.leaseUntil - (now() + LONG)) < 5_000)
    await release('a', { retryInMs: LONG })(session)
    t.ok(Math.abs((await store.read(session.key))!.retryAt - (now() + LONG)) < 5_000)
  })

  await t.test('new tokens raise the generation and clear lease, wait and doubts', async (t) => {
    const session = { ...made, key: await startSession(made) }
    for (const call of [begin('a'), release('a', { doubts: 1 }), begin('b')]) await call(session)
    const before = (await store.read(session.key))!
    t.strictSame(await replace()(session), written)
    const { replacedAt, ...after } = (await store.read(session.key))!
    t.ok(replacedAt >= before.replacedAt)
    const cleared = { doubts: 0, leaseUntil: 0, retryAt: 0 }
    t.strictSame({ replacedAt, ...after }, { ...before, tokens: 'sealed-2', gen: 2, ...cleared, replacedAt })
  })

  await t.test('of 50 replicas at once exactly one succeeds, in each of 20 rounds', async (t) => {
    const names = Array.from({ length: 50 }, (_, at) => `attempt-${at}`)
    for (let round = 0; round < 20; round++) {
      const session = { ...made, key: await startSession(made) }
      const all = <Result>(call: (name: string) => (of: typeof session) => unknown) =>
        Promise.all(names.map((name) => call(name)(session) as Promise<Result>))
      const begun = await all<{ kind: string }>((name) => begin(name))
      t.equal(begun.filter(({ kind }) => kind === 'granted').length, 1)
      t.equal(begun.filter(({ kind }) => kind === 'busy').length, 49)
      t.equal((await store.read(session.key))?.doubts, 1)
      const resealed = await all<boolean>((name) => reseal('sealed-1', name))
      t.equal(resealed.filter((done) => done).length, 1)
      const replaced = await all<{ kind: string }>((name) => replace(1, name))
      const winners = names.filter((_, at) => replaced[at]?.kind === 'replaced')
      t.equal(winners.length, 1)
      t.equal(replaced.filter(({ kind }) => kind === 'newer').length, 49)
      t.match(await store.read(session.key), { gen: 2, tokens: winners[0]! })
    }
  })

  await t.test('logout beats a refresh: whichever comes first, the session stays ended', async (t) => {
    for (let round = 0; round < 20; round++) {
      const session = { ...made, key: await startSession(made) }
      const [replaced, ended] = await Promise.all([replace()(session), store.end(session.key)])
      const tokens = (replaced as { kind: string }).kind === 'replaced' ? 'sealed-2' : 'sealed-1'
      t.strictSame(ended, { kind: 'ended', tokens }, 'it returns the tokens of that time')
      t.equal(await store.read(session.key), null)
    }
  })
}
