import t, { type Test } from 'tap'
import { type SessionStore, StoreUnavailable } from '../../src/store/store.ts'
import { leaseMs, resetAfterMs } from '../../src/tokens/rules.ts'
import { leaseRequest } from '../store/stores.ts'
import { createVirtualReplicas, LIFE_SECONDS, oneSession, TIMEOUT_MS, TIMING } from './virtual-replicas.ts'

t.test('after a doubt a slow response is still awaited, and no other presentation is made', async (t) => {
  const setup = await oneSession(t, { replicas: 2 })
  const { time, behave, presentations, request, shared, replica, other, key } = setup
  behave({ kind: 'in_doubt', rotates: false })
  t.match(await request(replica, key), { kind: 'wait' })
  // The access token has expired. A server that is slow after an outage rotates at the first presentation.
  await time.advance(2_000)
  behave({ kind: 'granted', ms: 9_500, early: true })
  const asked = request(replica, key)
  const meanwhile = request(other, key)
  await time.advance(9_600)
  t.match(await asked, { kind: 'token', session: { record: { gen: 2 } } })
  t.match(await meanwhile, { kind: 'token', session: { record: { gen: 2 } } })
  t.equal((await shared.read(key))?.gen, 2)
  t.equal(presentations.length, 2)
})

t.test(
  'no replica presents a refresh token while an earlier presentation may still get a response',
  async (t) => {
    const { time, behave, presentations, request, shared, replica, other, key } = await oneSession(t, {
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
    t.match(await request(other, key), { kind: 'token', session: { record: { gen: 2 } } })
    t.equal(presentations.length, 1)
  },
)

t.test('a presentation without a response for 30 seconds is reset before the next one is sent', async (t) => {
  const { time, behave, presentations, request, replica, other, key } = await oneSession(t, { replicas: 2 })
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
  const { time, behave, presentations, request, storeDown, shared, replica, other, key } = await oneSession(
    t,
    { replicas: 2 },
  )
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

t.test('a request that hangs is aborted although its session has ended', async (t) => {
  const { time, behave, presentations, request, replica, key } = await oneSession(t)
  behave({ kind: 'granted', ms: 600_000 })
  void request(replica, key)
  await time.advance(100)
  await replica.sessions.end(key, 'logout')
  await time.advance(35_000)
  t.ok(presentations[0]!.answeredAt <= time.now())
})

t.test('a holder whose lease the store has lost takes it again', async (t) => {
  const { time, behave, presentations, request, shared, replica, other, key } = await oneSession(t, {
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
  t.match(await asked, { kind: 'token', session: { record: { gen: 2 } } })
  t.match(await meanwhile, { kind: 'token', session: { record: { gen: 2 } } })
  t.equal(presentations.length, 1)
})

/** A session whose refresh token another process presented. That process was stopped and does not renew its lease. */
async function presentedElsewhere(t: Test, attempt: string) {
  const setup = await oneSession(t, { upMs: 5_000 })
  const { replica, key } = setup
  const lease = { leaseMs: leaseMs(TIMEOUT_MS), openMs: 40_000 }
  await setup.shared.beginRefresh(key, leaseRequest(attempt, lease))
  setup.behave({ kind: 'refused' })
  await setup.time.advance(15_100)
  t.match(await setup.request(replica, key), { kind: 'wait' })
  return setup
}

t.test('a refusal does not end a session while an earlier presentation may still be granted', async (t) => {
  const { presentations, shared, key } = await presentedElsewhere(t, 'of a stopped process')
  const { tokens } = (await shared.read(key))!
  t.equal(presentations.length, 1)
  t.strictSame(await shared.replaceTokens(key, { gen: 1, attempt: 'of a stopped process', tokens }), {
    kind: 'replaced',
    written: true,
  })
})

t.test('a refusal ends the session once no earlier presentation can be granted', async (t) => {
  const { time, presentations, request, replica, key } = await presentedElsewhere(t, 'of a dead process')
  await time.advance(23_000)
  t.strictSame(replica.ended, [])
  await time.advance(7_000)
  t.match(await request(replica, key), { kind: 'ended', reason: 'refused' })
  t.equal(presentations.length, 2)
  t.strictSame(replica.ended, ['refused'])
})

t.test(
  'a stopped process that resumes after its deadline still uses a response that has arrived',
  async (t) => {
    const { time, behave, request, shared, replica, key } = await oneSession(t)
    // Between the check that finds the deadline passed and the next one.
    behave({ kind: 'granted', ms: resetAfterMs(TIMEOUT_MS) + 100 })
    void request(replica, key)
    await time.advance(resetAfterMs(TIMEOUT_MS) + 2_000)
    t.equal((await shared.read(key))?.gen, 2)
  },
)

t.test('new tokens are stored although a renewal said that the lease is taken', async (t) => {
  const { time, behave, request, shared, replica, key } = await oneSession(t)
  const { renewLease } = shared
  Object.assign(shared, { renewLease: async () => 'taken' })
  t.teardown(() => Object.assign(shared, { renewLease }))
  behave({ kind: 'granted', ms: 2_000, early: true })
  void request(replica, key)
  await time.advance(5_000)
  t.equal((await shared.read(key))?.gen, 2, 'no other process had replaced them')
})

t.test(
  'a process that was stalled before it sent does not count that against the token endpoint',
  async (t) => {
    const { time, presentations, request, shared, replica, key } = await oneSession(t)
    const { beginRefresh } = shared
    shared.beginRefresh = async (...args) => {
      shared.beginRefresh = beginRefresh
      const begun = await beginRefresh(...args)
      // Longer than a token request may take, shorter than the lease.
      time.stall(TIMEOUT_MS + 2_000)
      return begun
    }
    t.match(await request(replica, key), { kind: 'wait' })
    t.equal(replica.tokens.consecutiveFailures(), 0)
    t.strictSame(presentations, [])
    t.match(
      await request(replica, key),
      { kind: 'token', session: { record: { gen: 2 } } },
      'without a back-off',
    )
  },
)

t.test('a process that was stalled while it connected does not count that either', async (t) => {
  const { time, behave, request, shared, replica, key } = await oneSession(t)
  behave({ kind: 'unavailable', ms: 5_000, timedOut: true })
  const asked = request(replica, key)
  await time.settle()
  behave({ kind: 'granted' })
  time.stall(TIMEOUT_MS + 2_000)
  await time.advance(10)
  t.match(await asked, { kind: 'wait' })
  t.equal(replica.tokens.consecutiveFailures(), 0)
  t.match(await shared.read(key), { doubts: 0, leaseUntil: 0 })
  t.match(
    await request(replica, key),
    { kind: 'token', session: { record: { gen: 2 } } },
    'without a back-off',
  )
})

t.test(
  'a request that cannot be sent in time, without a stall, is a failure of the token endpoint',
  async (t) => {
    const { time, behave, request, replica, key } = await oneSession(t)
    behave({ kind: 'unavailable', ms: TIMEOUT_MS, timedOut: true })
    const asked = request(replica, key)
    await time.advance(TIMEOUT_MS + 10)
    t.match(await asked, { kind: 'wait' })
    t.equal(replica.tokens.consecutiveFailures(), 1)
  },
)

t.test('a stalled process does not conclude that the token endpoint hangs', async (t) => {
  const { time, behave, request, replica, key } = await oneSession(t, { upMs: 5_000 })
  behave({ kind: 'in_doubt', rotates: false })
  await request(replica, key)
  const failures = replica.tokens.consecutiveFailures()
  await time.advance(2_000)
  behave({ kind: 'granted', ms: 4_000 })
  const asked = request(replica, key)
  await time.settle()
  time.stall(3_500)
  await time.advance(100)
  t.equal(replica.tokens.consecutiveFailures(), failures, 'before the response')
  await time.advance(500)
  t.match(await asked, { kind: 'token', session: { record: { gen: 2 } } })
})

t.test('a lease that was granted without a reply is released, and leaves no doubt', async (t) => {
  const { time, loseReply, presentations, request, shared, replica, key } = await oneSession(t)
  loseReply('beginRefresh')
  t.match(await request(replica, key), { kind: 'store_unavailable' })
  t.match(await shared.read(key), { doubts: 1 })
  t.not((await shared.read(key))?.leaseUntil, 0)
  await time.advance(1_100)
  t.match(await shared.read(key), { doubts: 0, leaseUntil: 0 })
  t.match(await request(replica, key), { kind: 'token' })
  t.equal(presentations.length, 1)
})

t.test('the back-off after a readable error is written once the store is back', async (t) => {
  const { time, behave, request, shared, storeDown, replica, key } = await oneSession(t)
  behave({ kind: 'unavailable', ms: 500 })
  const asked = request(replica, key)
  await time.settle()
  storeDown(true)
  await time.advance(600)
  t.match(await asked, { kind: 'wait' }, 'the response of the authorization server gives the reason')
  storeDown(false)
  await time.advance(1_200)
  t.match(await shared.read(key), { doubts: 0, leaseUntil: 0 })
})

t.test(
  'a refusal that could not be written ends the session when the store is back, without a request',
  async (t) => {
    const { time, behave, presentations, request, shared, storeDown, replica, key } = await oneSession(t)
    behave({ kind: 'refused', ms: 500 })
    const asked = request(replica, key)
    await time.settle()
    storeDown(true)
    await time.advance(600)
    t.match(await asked, { kind: 'store_unavailable' })
    await time.advance(60_000)
    storeDown(false)
    await time.advance(1_200)
    t.equal(await shared.read(key), null)
    t.strictSame(replica.ended, ['refused'])
    t.equal(presentations.length, 1)
  },
)

t.test(
  'tokens that the store does not accept are served only by their holder, while it can read the record',
  async (t) => {
    const {
      time,
      behave,
      presentations,
      request,
      shared,
      replica: holder,
      other,
      key,
    } = await oneSession(t, { replicas: 2 })
    behave({ kind: 'granted', ms: 500 })
    const asked = request(holder, key)
    await time.settle()
    const allowWrites = refuseWrites(shared)
    await time.advance(600)
    t.match(await asked, { kind: 'token', session: { record: { gen: 2 } } })
    t.equal(holder.store.pendingTokens(), 1)
    // Longer than the lease, shorter than the lifetime of these tokens.
    for (let waited = 0; waited < 30; waited += 1) {
      await time.advance(1_000)
      t.match(await request(holder, key), { kind: 'token', session: { record: { gen: 2 } } })
      t.match(await request(other, key), { kind: 'store_unavailable' })
    }
    allowWrites()
    await time.advance(2_000)
    t.match(await request(other, key), { kind: 'token', session: { record: { gen: 2 } } })
    t.equal(holder.store.pendingTokens(), 0)
    t.equal(presentations.length, 1)
  },
)

t.test('tokens that could not be stored are not served while the store cannot be read', async (t) => {
  const { time, behave, presentations, request, storeDown, replica: holder, key } = await oneSession(t)
  behave({ kind: 'granted', ms: 500 })
  const asked = request(holder, key)
  await time.settle()
  storeDown(true)
  await time.advance(600)
  t.match(await asked, { kind: 'store_unavailable' })
  t.equal(holder.store.pendingTokens(), 1)
  await time.advance(20_000)
  t.match(await request(holder, key), { kind: 'store_unavailable' })
  storeDown(false)
  await time.advance(2_000)
  t.match(await request(holder, key), { kind: 'token', session: { record: { gen: 2 } } })
  t.equal(presentations.length, 1)
})

t.test('failures that are no outage of the server do not delay a session in doubt', async (t) => {
  const { time, loseReply, presentations, request, shared, replica, key } = await oneSession(t)
  await shared.beginRefresh(key, leaseRequest('of a dead process', { leaseMs: 15_000 }))
  loseReply('claimDue', 1_000)
  await time.advance(15_001)
  t.match(await request(replica, key), { kind: 'token', session: { record: { gen: 2 } } })
  t.equal(presentations.length, 1)
})

t.test('an outage of the server delays a session in doubt by five seconds', async (t) => {
  const { time, presentations, request, shared, storeDown, replica, key } = await oneSession(t)
  await shared.beginRefresh(key, leaseRequest('of another', { leaseMs: 15_000 }))
  await time.advance(10_000)
  storeDown(true)
  await time.advance(6_000)
  storeDown(false)
  t.match(await request(replica, key), { kind: 'wait' })
  await time.advance(4_900)
  t.equal(presentations.length, 0)
  await time.advance(200)
  t.match(await request(replica, key), { kind: 'token', session: { record: { gen: 2 } } })
})

t.test('a session is not refused for a minute after a forced refresh that failed', async (t) => {
  const { time, behave, presentations, request, replica, key } = await oneSession(t, { lifeSeconds: 3_600 })
  await time.advance(100_000)
  behave({ kind: 'unavailable' })
  t.match(await request(replica, key, 1), { kind: 'wait' })
  behave({ kind: 'granted' })
  t.match(await request(replica, key, 1), { kind: 'wait' }, 'not before its back-off has passed')
  await time.advance(60_000 - 1_000)
  t.match(await request(replica, key, 1), { kind: 'token', session: { record: { gen: 2 } } })
  t.equal(presentations.length, 2)
})

t.test('a new token that is refused at once is not refreshed again within a minute', async (t) => {
  const { time, presentations, request, replica, key } = await oneSession(t, { lifeSeconds: 3_600 })
  t.match(await request(replica, key, 1), { kind: 'token', session: { record: { gen: 2 } } })
  await time.advance(20_000)
  t.match(await request(replica, key, 2), { kind: 'wait', why: 'forced_before' })
  t.equal(presentations.length, 1)
})

t.test('tokens that arrive after the session ended are revoked', async (t) => {
  const { time, behave, request, revoked, shared, replica, other, key } = await oneSession(t, { replicas: 2 })
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
  const { time, addReplica, addSession, behave, request } = createVirtualReplicas(t)
  const [replica, other] = [addReplica(), addReplica()]
  for (const [at, kind] of (['granted', 'refused'] as const).entries()) {
    const key = await addSession(replica, at + 1, 0)
    behave({ kind, ms: 3_000 })
    const asked = request(replica, key)
    await time.advance(2_999)
    t.ok(await other.sessions.end(key, 'logout'))
    await time.advance(100)
    t.match(await asked, { kind: 'ended', reason: 'logout' }, kind)
  }
})

t.test('a refusal does not end a session whose tokens another replica replaced meanwhile', async (t) => {
  const { time, behave, presentations, request, shared, replica, key } = await oneSession(t)
  behave({ kind: 'refused', ms: 3_000 })
  const asked = request(replica, key)
  await time.advance(100)
  const record = await shared.read(key)
  await shared.replaceTokens(key, { gen: 1, attempt: 'of another replica', tokens: record!.tokens })
  await time.advance(1_500)
  t.ok(
    presentations[0]!.answeredAt <= time.now(),
    'its connection was reset at the next renewal, so it cannot deliver a response',
  )
  await time.advance(1_500)
  t.match(await asked, { kind: 'token', session: { record: { gen: 2 } } })
  t.strictSame(replica.ended, [])
})

t.test(
  'a presentation by a replica that died is repeated only when the access token has expired',
  async (t) => {
    const { time, presentations, request, shared, replica, key } = await oneSession(t, {
      lifeSeconds: LIFE_SECONDS,
    })
    await shared.beginRefresh(key, leaseRequest('of a dead process', { leaseMs: 15_000 }))
    await time.advance(59_500)
    t.match(await request(replica, key), { kind: 'token', session: { record: { gen: 1 } } })
    t.equal(presentations.length, 0)
    await time.advance(2_000)
    t.equal(presentations.length, 1)
    t.match(await request(replica, key), { kind: 'token', session: { record: { gen: 2 } } })
  },
)

for (const rotatesAtOnce of [true, false]) {
  t.test(
    `a response after two and a half timeouts is used, with rotation at its ${rotatesAtOnce ? 'beginning' : 'end'}, and one presentation`,
    async (t) => {
      const { time, addReplica, addSession, behave, presentations, request, shared, endedFamilies } =
        createVirtualReplicas(t)
      const replicas = [addReplica(), addReplica(), addReplica()]
      const key = await addSession(replicas[0]!, 1, 3_600)
      behave({ kind: 'granted', ms: 2.5 * TIMEOUT_MS, early: rotatesAtOnce })
      await time.advance(3_600_000 - TIMING.aheadSeconds * 1_000)
      while (presentations.length === 0) await time.advance(1_000)
      // Every replica receives requests all the time, and none of them waits.
      for (let second = 0; second < 22; second += 4) {
        for (const replica of replicas) {
          const asked = request(replica, key)
          await time.advance(1_100)
          t.match(await asked, { kind: 'token', session: { record: { gen: 1 } } })
        }
        await time.advance(700)
      }
      t.match(await shared.read(key), { gen: 1, doubts: 1 }, 'in doubt during the wait')
      behave({ kind: 'granted' })
      await time.advance(3_000)
      for (const replica of replicas) {
        const access = await request(replica, key)
        t.ok(access.kind === 'token' && access.session.record.gen >= 2, access.kind)
      }
      t.equal(presentations.filter(({ token }) => token === presentations[0]!.token).length, 1)
      t.strictSame(endedFamilies.size, 0)
      t.match(await shared.read(key), { doubts: 0, leaseUntil: 0 })
      t.strictSame(
        replicas[presentations[0]!.by]!.outcomes.slice(0, 2),
        ['in_doubt', 'granted'],
        'both are counted',
      )
    },
  )
}

for (const [shutdownMs, waitsMs] of [
  [15_000, 12_000],
  [3_000, 2_000],
] as const) {
  t.test(`a stop of ${shutdownMs} ms waits ${waitsMs} for a response, and then resets it`, async (t) => {
    const { time, behave, presentations, request, shared, replica, key } = await oneSession(t, { shutdownMs })
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
    const setup = await oneSession(t, { shutdownMs: 7_500 })
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

/** Whether the promise has been fulfilled. */
function follow(promise: Promise<unknown>): { isOver: boolean } {
  const state = { isOver: false }
  void promise.then(() => Object.assign(state, { isOver: true }))
  return state
}

/** Makes every write of the store fail until the returned function is called. */
function refuseWrites(store: SessionStore): () => void {
  const { replaceTokens, beginRefresh, renewLease, releaseLease, end } = store
  const writes = { replaceTokens, beginRefresh, renewLease, releaseLease, end }
  const refuse = (): Promise<never> => Promise.reject(new StoreUnavailable(new Error('READONLY')))
  for (const name of Object.keys(writes)) Object.assign(store, { [name]: refuse })
  return () => Object.assign(store, writes)
}
