import type { Test } from 'tap'
import { RECORD_SLACK_MS } from '../../src/store/store.ts'
import { IDLE_MS, leaseRequest, newKey, newRecord, startSession, type TestStore } from './stores.ts'

/** Creating, reading, confirming and ending records. */
export async function recordContract(t: Test, made: TestStore): Promise<void> {
  const { store, now, pass } = made

  await t.test('a new record has these fields and no others', async (t) => {
    const key = newKey()
    const createdAt = now()
    await store.create(key, newRecord(createdAt, { flow: 'password', client: 'the app' }), 15_000)
    const record = await store.read(key)
    t.ok(Math.abs((record?.replacedAt ?? 0) - now()) < 5_000)
    t.strictSame(record, {
      tokens: 'sealed-1',
      gen: 1,
      createdAt,
      seenAt: createdAt,
      idleEndsAt: createdAt + IDLE_MS,
      endsAt: createdAt + 43_200_000,
      flow: 'password',
      client: 'the app',
      doubts: 0,
      leaseUntil: 0,
      retryAt: 0,
      replacedAt: record?.replacedAt,
    })
  })

  await t.test('an unknown key reads as null', async (t) => {
    t.equal(await store.read(newKey()), null)
  })

  await t.test('creating a record again, by the same attempt or another, changes nothing', async (t) => {
    const key = newKey()
    await store.create(key, newRecord(now()), 15_000)
    await store.replaceTokens(key, { gen: 1, attempt: 'b', tokens: 'sealed-2' })
    const before = await store.read(key)
    await store.create(key, newRecord(now()), 15_000)
    await store.create(key, newRecord(now(), { tokens: 'other' }), 15_000)
    t.strictSame(await store.read(key), before)
  })

  await t.test('an unconfirmed record expires early, and a confirmed one does not', async (t) => {
    const [dying, living] = [newKey(), newKey()]
    await store.create(dying, newRecord(now()), 400)
    await store.create(living, newRecord(now()), 400)
    t.equal(await store.confirm(living), true)
    t.not(await store.read(dying), null)
    await pass(450)
    t.equal(await store.read(dying), null)
    t.not(await store.read(living), null)
    t.equal(await store.confirm(dying), false, 'it is too late to confirm it')
  })

  await t.test('an unconfirmed record still expires early after a replacement of its tokens', async (t) => {
    const key = newKey()
    await store.create(key, newRecord(now()), 1_000)
    t.equal((await store.replaceTokens(key, { gen: 1, attempt: 'b', tokens: 'sealed-2' })).kind, 'replaced')
    await pass(1_050)
    t.equal(await store.read(key), null)
  })

  await t.test('confirming a session, even twice, changes none of its fields', async (t) => {
    const key = newKey()
    await store.create(key, newRecord(now()), 15_000)
    const before = await store.read(key)
    for (const time of ['once', 'twice']) {
      t.equal(await store.confirm(key), true, time)
      t.strictSame(await store.read(key), before, time)
    }
  })

  await t.test('any bytes of sealed tokens and any text of a client are stored unchanged', async (t) => {
    const client = `quotes " \\ and ü € \u0000 ${'x'.repeat(5_000)}`
    const bytes = String.fromCharCode(...Array.from({ length: 256 }, (_, code) => code)).repeat(20)
    const key = await startSession(made, { tokens: bytes, client })
    t.match(await store.read(key), { tokens: bytes, client })
    const reversed = [...bytes].reverse().join('')
    await store.replaceTokens(key, { gen: 1, attempt: 'a', tokens: reversed })
    t.equal((await store.read(key))?.tokens, reversed)
    t.equal(await store.reseal(key, reversed, bytes), true)
    t.strictSame(await store.end(key), { kind: 'ended', tokens: bytes })
  })

  await t.test('activity moves the idle limit, but never past the absolute limit', async (t) => {
    const at = now()
    const [long, short] = [
      await startSession(made, { createdAt: at - 9_000 }),
      await startSession(made, { createdAt: at - 9_000, endsAt: at + 60_000 }),
    ]
    t.equal((await store.read(long))?.idleEndsAt, at - 9_000 + IDLE_MS)
    t.equal((await store.read(short))?.idleEndsAt, at + 60_000)
    for (const key of [long, short]) await store.touch(key)
    const { seenAt, idleEndsAt } = (await store.read(long))!
    t.ok(seenAt >= at)
    t.equal(idleEndsAt, seenAt + IDLE_MS)
    t.equal((await store.read(short))?.idleEndsAt, at + 60_000)
  })

  await t.test('no method but create() creates or restores a session', async (t) => {
    const key = await startSession(made)
    await store.beginRefresh(key, leaseRequest('a'))
    t.strictSame(await store.end(key), { kind: 'ended', tokens: 'sealed-1' })
    t.equal(await store.confirm(key), false)
    t.equal(await store.touch(key), false)
    t.strictSame(await store.beginRefresh(key, leaseRequest('b')), { kind: 'gone' })
    await store.releaseLease(key, { attempt: 'a', inDoubt: null, retryInMs: 0 })
    t.strictSame(await store.replaceTokens(key, { gen: 1, attempt: 'a', tokens: 'sealed-2' }), {
      kind: 'gone',
    })
    t.strictSame(await store.end(key), { kind: 'gone', successor: null })
    t.strictSame(await store.end(key, { gen: 1 }), { kind: 'gone', successor: null })
    t.equal(await store.read(key), null)
  })

  await t.test('an end with a generation ends only that one and returns its tokens', async (t) => {
    const key = await startSession(made)
    await store.replaceTokens(key, { gen: 1, attempt: 'a', tokens: 'sealed-2' })
    t.strictSame(await store.end(key, { gen: 1 }), { kind: 'precondition_failed' })
    t.equal((await store.read(key))?.tokens, 'sealed-2')
    t.strictSame(await store.end(key, { gen: 2 }), { kind: 'ended', tokens: 'sealed-2' })
    t.equal(await store.read(key), null)
  })

  await t.test('an attempt ends a session unless another attempt holds the lease', async (t) => {
    const key = await startSession(made)
    await store.beginRefresh(key, leaseRequest('b'))
    const before = await store.read(key)
    t.strictSame(await store.end(key, { gen: 1, attempt: 'a', reason: 'refused' }), {
      kind: 'precondition_failed',
    })
    t.strictSame(await store.read(key), before, 'the record is unchanged')
    t.equal(await store.readEnd(key), null)
    t.strictSame(
      await store.end(key, { gen: 7, attempt: 'b' }),
      { kind: 'precondition_failed' },
      'both conditions must hold',
    )
    const ended = await store.end(key, { gen: 1, attempt: 'b', reason: 'refused' })
    t.strictSame(ended, { kind: 'ended', tokens: 'sealed-1' })
    t.equal((await store.readEnd(key))?.reason, 'refused')
    t.strictSame(await store.end(key, { attempt: 'b' }), { kind: 'gone', successor: null })
  })

  await t.test('an attempt ends a session whose lease is free', async (t) => {
    const [never, released] = [await startSession(made), await startSession(made)]
    await store.beginRefresh(released, leaseRequest('b'))
    await store.releaseLease(released, { attempt: 'b', inDoubt: null, retryInMs: 0 })
    for (const key of [never, released])
      t.strictSame(await store.end(key, { attempt: 'a' }), { kind: 'ended', tokens: 'sealed-1' })
  })

  await t.test('an expired lease that was not taken over still excludes other attempts', async (t) => {
    const key = await startSession(made)
    await store.beginRefresh(key, leaseRequest('b', { leaseMs: 40 }))
    await pass(60)
    t.strictSame(
      await store.end(key, { attempt: 'a' }),
      { kind: 'precondition_failed' },
      'its holder may still receive a response',
    )
    t.strictSame(await store.end(key, { attempt: 'b' }), { kind: 'ended', tokens: 'sealed-1' })
  })

  await t.test('a lease does not prevent an end without an attempt', async (t) => {
    const key = await startSession(made)
    await store.beginRefresh(key, leaseRequest('b'))
    t.strictSame(await store.end(key, { gen: 1, reason: 'logout' }), { kind: 'ended', tokens: 'sealed-1' })
  })

  await t.test('the store keeps the reason of an end, and none for a session that did not end', async (t) => {
    const key = await startSession(made)
    t.equal(await store.readEnd(key), null)
    await store.end(key, { gen: 7, reason: 'refused' })
    t.equal(await store.readEnd(key), null, 'it has not ended')
    await store.end(key, { gen: 1, reason: 'idle' })
    t.equal((await store.readEnd(key))?.reason, 'idle')
    await store.end(key, { reason: 'logout' })
    t.equal((await store.readEnd(key))?.reason, 'idle', 'the first end counts')
  })

  await t.test('a limit ends a session only if it has also passed by the clock of the store', async (t) => {
    const young = await startSession(made)
    t.strictSame(await store.end(young, { reason: 'idle', ifLimitPassed: true }), {
      kind: 'precondition_failed',
    })
    t.equal(await store.readEnd(young), null)
    t.not(await store.read(young), null, 'a replica with a fast clock has ended nothing')
    const idle = await startSession(made, { createdAt: now() - IDLE_MS })
    t.strictSame(await store.end(idle, { reason: 'idle', ifLimitPassed: true }), {
      kind: 'ended',
      tokens: 'sealed-1',
    })
    t.equal((await store.readEnd(idle))?.reason, 'idle')
    t.strictSame(await store.end(idle, { reason: 'idle', ifLimitPassed: true }), {
      kind: 'gone',
      successor: null,
    })
  })

  await t.test('an end without a generation ends the current one', async (t) => {
    const key = await startSession(made)
    await store.replaceTokens(key, { gen: 1, attempt: 'a', tokens: 'sealed-2' })
    t.strictSame(await store.end(key), { kind: 'ended', tokens: 'sealed-2' })
  })

  await t.test('activity only moves forward', async (t) => {
    const key = await startSession(made, { createdAt: now() - 9_000 })
    const before = now()
    t.equal(await store.touch(key), true)
    const { seenAt } = (await store.read(key))!
    t.ok(seenAt >= before && seenAt <= now(), 'by the clock of the store')
    // The clock that wrote the record was ahead.
    const ahead = await startSession(made, { createdAt: now() + 60_000 })
    const first = (await store.read(ahead))!.seenAt
    t.equal(await store.touch(ahead), true)
    t.equal((await store.read(ahead))?.seenAt, first)
  })

  await t.test('the state of a session shows its generation, its activity and its limits', async (t) => {
    const key = await startSession(made)
    const { gen, seenAt, idleEndsAt, endsAt } = (await store.read(key))!
    t.strictSame(await store.readState(key), { gen, seenAt, idleEndsAt, endsAt })
    await store.replaceTokens(key, { gen: 1, attempt: 'a', tokens: 'sealed-2' })
    t.equal((await store.readState(key))?.gen, 2)
    await store.end(key)
    t.equal(await store.readState(key), null)
    t.equal(await store.readState(newKey()), null)
  })

  await t.test(
    'activity is recorded even if the idle limit has passed by the clock of the store',
    async (t) => {
      // The store clock was set forward by an hour, and the replica found the session alive by its own clock.
      const createdAt = now() - IDLE_MS - 1_000
      const key = await startSession(made, { createdAt })
      t.equal(await store.touch(key), true)
      t.ok((await store.read(key))!.seenAt > createdAt)
    },
  )

  await t.test('a record outlives its nearer limit by exactly the slack', async (t) => {
    const at = now()
    const pastBy = RECORD_SLACK_MS - 300
    const limits = {
      idle: { createdAt: at - IDLE_MS - pastBy },
      absolute: { endsAt: at - pastBy },
    }
    for (const [name, changes] of Object.entries(limits)) {
      const key = await startSession(made, changes)
      t.not(await store.read(key), null, `the ${name} limit has passed, the slack has not`)
    }
    const keys = await Promise.all(Object.values(limits).map((changes) => startSession(made, changes)))
    await pass(400)
    for (const key of keys) t.equal(await store.read(key), null)
  })

  await t.test('activity extends the lifetime of a record, but not past the absolute limit', async (t) => {
    const at = now()
    const pastBy = RECORD_SLACK_MS - 300
    const idle = at - IDLE_MS - pastBy
    const [lives, dies] = [
      await startSession(made, { createdAt: idle }),
      await startSession(made, { createdAt: idle, endsAt: at - pastBy }),
    ]
    // The idle limit has grown, as after a restart with other settings.
    for (const key of [lives, dies]) t.equal(await store.touch(key), true)
    await pass(400)
    t.ok((await store.read(lives))!.seenAt >= at)
    t.equal(await store.read(dies), null)
  })

  await t.test('the end of a session names the first session that replaced it', async (t) => {
    const [live, over] = [await startSession(made), await startSession(made)]
    const [never, first, second] = [newKey(), newKey(), newKey()]
    await store.end(over, { reason: 'logout' })
    t.strictSame(await store.end(live, { reason: 'replaced', successor: first }), {
      kind: 'ended',
      tokens: 'sealed-1',
    })
    t.strictSame(await store.end(never, { reason: 'replaced', successor: first }), {
      kind: 'gone',
      successor: null,
    })
    for (const key of [live, never]) {
      t.equal((await store.readEnd(key))?.reason, 'replaced')
      const again = await store.end(key, { reason: 'replaced', successor: second })
      t.strictSame(again, { kind: 'gone', successor: first }, 'the second one learns of the first')
      t.strictSame(await store.end(key, { reason: 'logout' }), { kind: 'gone', successor: first })
    }
    await store.end(over, { reason: 'replaced', successor: first })
    t.equal((await store.readEnd(over))?.reason, 'logout', 'what is kept stays')
    t.strictSame(await store.end(over), { kind: 'gone', successor: null })
  })

  await t.test('a session that is created after its end is gone', async (t) => {
    const key = newKey()
    await store.create(key, newRecord(now() - 50_000_000), 15_000)
    await store.confirm(key)
    t.equal(await store.read(key), null)
  })
}
