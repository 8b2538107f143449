import type { Test } from 'tap'
import { RECORD_SLACK_MS } from '../../src/store/store.ts'
import {
  begin,
  changesOnly,
  confirm,
  end,
  granted,
  LONG,
  pass,
  read,
  readEnd,
  release,
  replace,
  runCases,
  type Step,
  touch,
  written,
} from './contract-steps.ts'
import { IDLE_MS, newKey, newRecord, startSession, type TestStore } from './stores.ts'

const ended = { kind: 'ended', tokens: 'sealed-1' }
const gone = { kind: 'gone', successor: null }
const failed = { kind: 'precondition_failed' }

const ENDS: Record<string, Step[]> = {
  'no method but create() creates or restores a session': [
    [begin('a'), granted(0)],
    [end(), ended],
    [confirm, false],
    [touch, false],
    [begin('b'), { kind: 'gone' }],
    [release('a')],
    [replace(), { kind: 'gone' }],
    [end(), gone],
    [end({ gen: 1 }), gone],
    [read, null],
  ],
  'an end with a generation ends only that one and returns its tokens': [
    [replace(), written],
    [changesOnly({}, end({ gen: 1, reason: 'logout' })), true],
    [end({ gen: 1 }), failed],
    [end({ gen: 2 }), { kind: 'ended', tokens: 'sealed-2' }],
    [read, null],
  ],
  'an attempt ends a session unless another attempt holds the lease': [
    [begin('b'), granted(0)],
    [changesOnly({}, end({ gen: 1, attempt: 'a', reason: 'refused' })), true],
    [end({ gen: 1, attempt: 'a' }), failed],
    [readEnd, null],
    [end({ gen: 7, attempt: 'b' }), failed],
    [end({ gen: 1, attempt: 'b', reason: 'refused' }), ended],
    [readEnd, { reason: 'refused' }],
    [end({ attempt: 'b' }), gone],
  ],
  'an attempt ends a session whose lease is free': [
    [begin('b'), granted(0)],
    [release('b')],
    [end({ attempt: 'a' }), ended],
  ],
  'an expired lease that was not taken over still excludes other attempts': [
    [begin('b', { leaseMs: 40 }), granted(0)],
    [pass(60)],
    [end({ attempt: 'a' }), failed],
    [end({ attempt: 'b' }), ended],
  ],
  'a lease does not prevent an end without an attempt': [
    [begin('b'), granted(0)],
    [end({ gen: 1, reason: 'logout' }), ended],
  ],
  'the store keeps the reason of the first end, and none for a session that did not end': [
    [readEnd, null],
    [end({ gen: 7, reason: 'refused' }), failed],
    [readEnd, null],
    [end({ gen: 1, reason: 'idle' }), ended],
    [end({ reason: 'logout' }), gone],
    [readEnd, { reason: 'idle' }],
  ],
  'a replica with a fast clock ends no session whose limit has not passed by the clock of the store': [
    [changesOnly({}, end({ reason: 'idle', ifLimitPassed: true })), true],
    [end({ reason: 'idle', ifLimitPassed: true }), failed],
    [readEnd, null],
  ],
}

/** Creating, reading, confirming and ending records. */
export async function recordContract(t: Test, made: TestStore): Promise<void> {
  const { store, now, pass } = made
  await runCases(t, made, ENDS)

  await t.test('a new record has these fields and no others, and its state has some of them', async (t) => {
    const key = newKey()
    const createdAt = now()
    t.strictSame([await store.read(key), await store.readState(key)], [null, null])
    await store.create(key, newRecord(createdAt, { flow: 'password', client: 'the app' }), 15_000)
    const { replacedAt, ...record } = (await store.read(key))!
    t.ok(Math.abs(replacedAt - now()) < 5_000)
    const state = {
      gen: 1,
      seenAt: createdAt,
      idleEndsAt: createdAt + IDLE_MS,
      endsAt: createdAt + 43_200_000,
    }
    t.strictSame(await store.readState(key), state)
    t.strictSame(record, {
      ...state,
      tokens: 'sealed-1',
      createdAt,
      flow: 'password',
      client: 'the app',
      doubts: 0,
      leaseUntil: 0,
      retryAt: 0,
    })
    await store.replaceTokens(key, { gen: 1, tokens: 'sealed-2' })
    t.equal((await store.readState(key))?.gen, 2)
  })

  await t.test('creating a record again, by the same attempt or another, changes nothing', async (t) => {
    const key = await startSession(made)
    await store.replaceTokens(key, { gen: 1, tokens: 'sealed-2' })
    const before = await store.read(key)
    await store.create(key, newRecord(now()), 15_000)
    await store.create(key, newRecord(now(), { tokens: 'other' }), 15_000)
    t.strictSame(await store.read(key), before)
  })

  await t.test(
    'a record expires early unless it is confirmed, which changes none of its fields',
    async (t) => {
      const [dying, living] = [newKey(), newKey()]
      for (const key of [dying, living]) await store.create(key, newRecord(now()), 400)
      const before = await store.read(living)
      for (const time of ['once', 'twice']) t.equal(await store.confirm(living), true, time)
      t.strictSame(await store.read(living), before)
      await store.replaceTokens(dying, { gen: 1, tokens: 'sealed-2' })
      t.match(await store.read(dying), { gen: 2 })
      await pass(450)
      t.equal(await store.read(dying), null, 'new tokens confirm nothing')
      t.strictSame(await store.read(living), before)
      t.equal(await store.confirm(dying), false, 'it is too late to confirm it')
    },
  )

  await t.test('any bytes of sealed tokens and any text of a client are stored unchanged', async (t) => {
    const client = `quotes " \\ and ü € \u0000 ${'x'.repeat(5_000)}`
    const bytes = String.fromCharCode(...Array.from({ length: 256 }, (_, code) => code)).repeat(20)
    const key = await startSession(made, { tokens: bytes, client })
    t.match(await store.read(key), { tokens: bytes, client })
    const reversed = [...bytes].reverse().join('')
    await store.replaceTokens(key, { gen: 1, tokens: reversed })
    t.equal((await store.read(key))?.tokens, reversed)
    t.equal(await store.reseal(key, reversed, bytes), true)
    t.strictSame(await store.end(key), { kind: 'ended', tokens: bytes })
  })

  await t.test('activity moves the idle limit forward, but never past the absolute limit', async (t) => {
    const at = now()
    const long = await startSession(made, { createdAt: at - 9_000 })
    const short = await startSession(made, { createdAt: at - 9_000, endsAt: at + LONG })
    // The clock of the store, or the one that wrote the record, was set.
    const late = await startSession(made, { createdAt: at - IDLE_MS - 1_000 })
    const ahead = await startSession(made, { createdAt: at + LONG })
    t.equal((await store.read(long))?.idleEndsAt, at - 9_000 + IDLE_MS)
    const before = (await store.read(ahead))!.seenAt
    for (const key of [long, short, late, ahead]) t.equal(await store.touch(key), true)
    const { seenAt, idleEndsAt } = (await store.read(long))!
    t.ok(seenAt >= at && seenAt <= now(), 'by the clock of the store')
    t.equal(idleEndsAt, seenAt + IDLE_MS)
    t.equal((await store.read(short))?.idleEndsAt, at + LONG)
    t.ok((await store.read(late))!.seenAt >= at, 'although its limit has passed')
    t.equal((await store.read(ahead))?.seenAt, before)
  })

  await t.test('a limit ends a session once it has passed by the clock of the store', async (t) => {
    const idle = await startSession(made, { createdAt: now() - IDLE_MS })
    const request = { reason: 'idle', ifLimitPassed: true }
    t.strictSame(await store.end(idle, request), ended)
    t.equal((await store.readEnd(idle))?.reason, 'idle')
    t.strictSame(await store.end(idle, request), gone)
  })

  await t.test('a record outlives its nearer limit by exactly the slack', async (t) => {
    const past = (limit: 'idle' | 'absolute') => {
      const at = now() - RECORD_SLACK_MS + 300
      return limit === 'idle' ? { createdAt: at - IDLE_MS } : { endsAt: at }
    }
    const idle = await startSession(made, past('idle'))
    t.not(await store.read(idle), null, 'the idle limit has passed, the slack has not')
    const absolute = await startSession(made, past('absolute'))
    t.not(await store.read(absolute), null, 'the absolute limit has passed, the slack has not')
    // Activity extends the life of a record, but not past the absolute limit.
    const active = await startSession(made, past('idle'))
    t.equal(await store.touch(active), true)
    const over = await startSession(made, { ...past('idle'), ...past('absolute') })
    t.equal(await store.touch(over), true)
    await pass(400)
    for (const key of [idle, absolute, over]) t.equal(await store.read(key), null)
    t.not(await store.read(active), null)
  })

  await t.test('the end of a session names the first session that replaced it', async (t) => {
    const [live, over] = [await startSession(made), await startSession(made)]
    const [never, first, second] = [newKey(), newKey(), newKey()]
    const replacedBy = (successor: string) => ({ reason: 'replaced', successor })
    await store.end(over, { reason: 'logout' })
    t.strictSame(await store.end(live, replacedBy(first)), ended)
    t.strictSame(await store.end(never, replacedBy(first)), gone)
    for (const key of [live, never]) {
      t.equal((await store.readEnd(key))?.reason, 'replaced')
      const again = await store.end(key, replacedBy(second))
      t.strictSame(again, { kind: 'gone', successor: first }, 'the second one learns of the first')
      t.strictSame(await store.end(key, { reason: 'logout' }), { kind: 'gone', successor: first })
    }
    await store.end(over, replacedBy(first))
    t.equal((await store.readEnd(over))?.reason, 'logout', 'what is kept stays')
    t.strictSame(await store.end(over), gone)
  })

  await t.test('a session that is created after its end is gone', async (t) => {
    t.equal(await store.read(await startSession(made, { createdAt: now() - 50_000_000 })), null)
  })
}
