import t from 'tap'
import { leaseMs, resetAfterMs } from '../../../src/vault/refresh/rules.ts'
import { leaseRequest } from '../store/stores.ts'
import { follow, startSessions, TIMEOUT_MS } from './virtual-replicas.ts'

/** A request that is served with refreshed tokens. */
const GEN_2 = { kind: 'token', session: { record: { gen: 2 } } }

t.test('after a doubt a slow response is still awaited, and no other presentation is made', async (t) => {
  const setup = await startSessions(t, { replicas: 2 })
  const { time, behave, presentations, request, shared, replica, other, key } = setup
  behave({ kind: 'in_doubt', rotates: false })
  t.match(await request(replica, key), { kind: 'wait' })
  // The access token has expired. A server that is slow after an outage rotates at the first presentation.
  await time.advance(2_000)
  behave({ kind: 'granted', ms: 9_500, early: true })
  const asked = request(replica, key)
  const meanwhile = request(other, key)
  await time.advance(9_600)
  t.match(await asked, GEN_2)
  t.match(await meanwhile, GEN_2)
  t.equal((await shared.read(key))?.gen, 2)
  t.equal(presentations.length, 2)
})

t.test(
  'no replica presents a refresh token while an earlier presentation may still get a response',
  async (t) => {
    const { time, behave, presentations, request, shared, replica, other, key } = await startSessions(t, {
      replicas: 2,
    })
    behave({ kind: 'granted', ms: 29_000, early: true })
    const asked = request(replica, key)
    await time.advance(10_600)
    t.match(await asked, { kind: 'wait' })
    // Later callers do not wait for a response that is already late.
    for (let second = 11; second < 28; second += 1) {
      const startedAt = time.now()
      const answers = Promise.all([request(replica, key), request(other, key)])
      await time.advance(50)
      for (const answer of await answers) t.match(answer, { kind: 'wait' })
      t.ok(time.now() - startedAt <= 50)
      await time.advance(950)
    }
    await time.advance(3_000)
    t.match(await shared.read(key), { gen: 2, doubts: 0, leaseUntil: 0 }, 'the late response was stored')
    t.match(await request(other, key), GEN_2)
    t.strictSame(replica.outcomes, ['in_doubt', 'granted'], 'both are counted')
    t.equal(presentations.length, 1)
  },
)

t.test('a presentation without a response for 30 seconds is reset before the next one is sent', async (t) => {
  const { time, behave, presentations, request, replica, other, key } = await startSessions(t, {
    replicas: 2,
  })
  behave({ kind: 'granted', ms: 600_000 })
  const asked = request(replica, key)
  await time.advance(10_600)
  await asked
  behave({ kind: 'granted' })
  for (let waited = 0; waited < 40 && presentations.length === 1; waited += 1) {
    const again = request(other, key)
    await time.advance(1_000)
    await again
  }
  const [first, second] = presentations
  t.ok(first!.answeredAt - first!.at >= 30_000 && first!.answeredAt - first!.at <= 32_000)
  t.ok(second!.at >= first!.answeredAt, 'not before the reset')
  t.ok(second!.at <= first!.answeredAt + 5_000, 'and soon after the reset')
})

t.test('a holder that could not renew its lease during a store outage takes it again', async (t) => {
  const { time, behave, presentations, request, storeDown, shared, replica, other, key } =
    await startSessions(t, { replicas: 2 })
  behave({ kind: 'granted', ms: 25_000, early: true })
  const asked = request(replica, key)
  await time.advance(100)
  storeDown(true)
  await time.advance(18_000)
  await asked
  storeDown(false)
  behave({ kind: 'granted' })
  for (let waited = 0; waited < 7; waited += 1) {
    void request(other, key)
    await time.advance(1_000)
  }
  t.equal(presentations.length, 1, 'no other process presents the token while the holder may resume')
  t.match(await shared.read(key), { gen: 2 })
})

t.test('a holder whose lease the store has lost takes it again', async (t) => {
  const { time, behave, presentations, request, shared, replica, other, key } = await startSessions(t, {
    replicas: 2,
  })
  behave({ kind: 'granted', ms: 9_000 })
  const attempts: string[] = []
  const begin = shared.beginRefresh
  shared.beginRefresh = async (key, request) => {
    attempts.push(request.attempt)
    return await begin(key, request)
  }
  const asked = request(replica, key)
  await time.advance(100)
  await shared.releaseLease(key, { attempt: attempts[0]!, inDoubt: null, retryInMs: 0 })
  await time.advance(2_000)
  const record = await shared.read(key)
  t.equal(record?.doubts, 1, 'its doubt is written again')
  t.ok(record!.leaseUntil > time.now())
  behave({ kind: 'granted' })
  const meanwhile = request(other, key)
  await time.advance(8_000)
  t.match(await asked, GEN_2)
  t.match(await meanwhile, GEN_2)
  t.equal(presentations.length, 1)
})

t.test('a refusal does not end a session while an earlier presentation may still be granted', async (t) => {
  for (const isGranted of [true, false]) {
    const { time, behave, presentations, request, shared, replica, key } = await startSessions(t, {
      upMs: 5_000,
    })
    // Of a process that was stopped and does not renew its lease.
    const lease = { leaseMs: leaseMs(TIMEOUT_MS), openMs: 40_000 }
    await shared.beginRefresh(key, leaseRequest('elsewhere', lease))
    behave({ kind: 'refused' })
    await time.advance(15_100)
    t.match(await request(replica, key), { kind: 'wait' })
    t.equal(presentations.length, 1)
    if (isGranted) {
      const late = { gen: 1, tokens: (await shared.read(key))!.tokens }
      t.match(await shared.replaceTokens(key, late), { kind: 'replaced', written: true })
      continue
    }
    await time.advance(23_000)
    t.strictSame(replica.ended, [])
    await time.advance(7_000)
    t.match(await request(replica, key), { kind: 'ended', reason: 'refused' })
    t.equal(presentations.length, 2)
    t.strictSame(replica.ended, ['refused'])
  }
})

t.test(
  'a stopped process that resumes after its deadline still uses a response that has arrived',
  async (t) => {
    const { time, behave, request, shared, replica, key } = await startSessions(t)
    // Between the check that finds the deadline passed and the next one.
    behave({ kind: 'granted', ms: resetAfterMs(TIMEOUT_MS) + 100 })
    void request(replica, key)
    await time.advance(resetAfterMs(TIMEOUT_MS) + 2_000)
    t.equal((await shared.read(key))?.gen, 2)
  },
)

for (const isStalled of [true, false]) {
  t.test(
    `a connection that is not made in time ${isStalled ? 'for a stall' : 'counts as a failure'}`,
    async (t) => {
      const { time, behave, request, shared, replica, key } = await startSessions(t)
      behave({ kind: 'unavailable', ms: isStalled ? 5_000 : TIMEOUT_MS, timedOut: true })
      const asked = request(replica, key)
      await time.settle()
      behave({ kind: 'granted' })
      if (isStalled) time.stall(TIMEOUT_MS + 2_000)
      await time.advance(isStalled ? 10 : TIMEOUT_MS + 10)
      t.match(await asked, { kind: 'wait' })
      t.equal(replica.tokens.consecutiveFailures(), isStalled ? 0 : 1)
      t.match(await shared.read(key), { doubts: 0, leaseUntil: 0 })
      if (isStalled) t.match(await request(replica, key), GEN_2, 'without a back-off')
    },
  )
}

for (const kind of ['refused', 'granted'] as const) {
  t.test(
    `what could not be written is written when the store is back, without a request: ${kind}`,
    async (t) => {
      const { time, behave, presentations, request, shared, storeDown, replica, key } = await startSessions(t)
      behave({ kind, ms: 500 })
      const asked = request(replica, key)
      await time.settle()
      storeDown(true)
      await time.advance(600)
      t.match(await asked, { kind: 'store_unavailable' })
      await time.advance(20_000)
      storeDown(false)
      await time.advance(1_200)
      t.equal((await shared.read(key))?.gen, kind === 'granted' ? 2 : undefined)
      t.strictSame(replica.ended, kind === 'granted' ? [] : ['refused'])
      t.equal(presentations.length, 1)
    },
  )
}

t.test('an outage of the server delays a session in doubt by five seconds', async (t) => {
  const { time, presentations, request, shared, storeDown, replica, key } = await startSessions(t)
  await shared.beginRefresh(key, leaseRequest('of another', { leaseMs: 15_000 }))
  await time.advance(10_000)
  storeDown(true)
  await time.advance(6_000)
  storeDown(false)
  t.match(await request(replica, key), { kind: 'wait' })
  await time.advance(4_900)
  t.equal(presentations.length, 0)
  await time.advance(200)
  t.match(await request(replica, key), GEN_2)
})

t.test('tokens that arrive after the session ended are revoked', async (t) => {
  const { time, behave, request, revoked, shared, replica, other, key } = await startSessions(t, {
    replicas: 2,
  })
  behave({ kind: 'granted', ms: 3_000 })
  const asked = request(replica, key)
  await time.advance(100)
  t.ok(await other.sessions.end(key, 'logout'))
  await time.advance(250)
  t.match(await asked, { kind: 'ended', reason: 'logout' }, 'long before the response')
  await time.advance(3_000)
  t.equal(await shared.read(key), null)
  t.strictSame([...revoked].sort(), ['at-1', 'at-2', 'rt-1', 'rt-2'])
})

t.test('a caller learns why the session ended, also if the response comes just after the end', async (t) => {
  const { time, behave, request, replica, other, keys } = await startSessions(t, { replicas: 2, sessions: 2 })
  for (const [at, kind] of (['granted', 'refused'] as const).entries()) {
    const key = keys[at]!
    behave({ kind, ms: 3_000 })
    const asked = request(replica, key)
    await time.advance(2_999)
    t.ok(await other.sessions.end(key, 'logout'))
    await time.advance(100)
    t.match(await asked, { kind: 'ended', reason: 'logout' }, kind)
  }
})

t.test('a refusal does not end a session whose tokens another replica replaced meanwhile', async (t) => {
  const { time, behave, presentations, request, shared, replica, key } = await startSessions(t)
  behave({ kind: 'refused', ms: 3_000 })
  const asked = request(replica, key)
  await time.advance(100)
  const record = await shared.read(key)
  await shared.replaceTokens(key, { gen: 1, tokens: record!.tokens })
  await time.advance(1_500)
  t.ok(
    presentations[0]!.answeredAt <= time.now(),
    'its connection was reset at the next renewal, so it cannot deliver a response',
  )
  await time.advance(1_500)
  t.match(await asked, GEN_2)
  t.strictSame(replica.ended, [])
})

for (const [shutdownMs, waitsMs] of [
  [15_000, 12_000],
  [3_000, 2_000],
] as const) {
  t.test(`a stop of ${shutdownMs} ms waits ${waitsMs} for a response, and then resets it`, async (t) => {
    const { time, behave, presentations, request, shared, replica, key } = await startSessions(t, {
      shutdownMs,
    })
    behave({ kind: 'granted', ms: 60_000 })
    const asked = request(replica, key)
    await time.settle()
    const stop = follow(replica.tokens.stop())
    await time.advance(waitsMs - 100)
    t.notOk(stop.isOver)
    await time.advance(200)
    t.ok(stop.isOver)
    t.ok(presentations[0]!.answeredAt <= time.now(), 'its connection is closed')
    t.match(await shared.read(key), { doubts: 1, leaseUntil: 0 }, 'other replicas do not wait for the lease')
    await asked
  })
}

t.test(
  'a refresh that gets its lease after the end of a stop presents nothing and releases the lease',
  async (t) => {
    const setup = await startSessions(t, { shutdownMs: 7_500 })
    const { time, presentations, request, shared, replica, key } = setup
    const { beginRefresh } = shared
    let answer = (): void => {}
    const held = new Promise<void>((resolve) => {
      answer = resolve
    })
    shared.beginRefresh = async (...args) => {
      await held
      return await beginRefresh(...args)
    }
    const asked = request(replica, key)
    await time.settle()
    const stop = follow(replica.tokens.stop())
    await time.advance(6_000)
    t.notOk(stop.isOver, 'the stop waits for the lease')
    answer()
    await time.advance(1_000)
    t.ok(stop.isOver)
    t.strictSame(presentations, [])
    t.match(await shared.read(key), { doubts: 0, leaseUntil: 0 })
    t.match(await asked, { kind: 'wait' })
  },
)
