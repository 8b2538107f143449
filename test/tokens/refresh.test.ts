import t from 'tap'
import { leaseMs } from '../../src/tokens/timing.ts'
import { createHouse, TIMEOUT_MS, TIMING } from './house.ts'

t.test('a slow answer is waited for after a doubt too, and nothing is presented beside it', async (t) => {
  const { time, addReplica, addSession, behave, presentations, request, shared } = createHouse(t)
  const replica = addReplica()
  const other = addReplica()
  // A process that has just started does not yet count on what it sees of others.
  await time.advance(5_000)
  const key = await addSession(replica, 1, 0)
  behave({ kind: 'in_doubt', rotates: false })
  t.match(await request(replica, key), { kind: 'unavailable' })
  // The access token has expired. A server that is slow after an outage rotates at the first presentation.
  await time.advance(2_000)
  behave({ kind: 'granted', ms: 9_500, early: true })
  const asked = request(replica, key)
  const beside = request(other, key)
  await time.advance(9_600)
  t.match(await asked, { kind: 'token', session: { gen: 2 } })
  t.match(await beside, { kind: 'token', session: { gen: 2 } })
  t.equal((await shared.read(key))?.gen, 2)
  t.equal(presentations.length, 2)
})

t.test('an answer that comes late is kept although another try was made meanwhile', async (t) => {
  const { time, addReplica, addSession, behave, presentations, request, shared } = createHouse(t)
  const replica = addReplica()
  await time.advance(5_000)
  const key = await addSession(replica, 1, 0)
  behave({ kind: 'in_doubt', rotates: false })
  t.match(await request(replica, key), { kind: 'unavailable' })
  await time.advance(2_000)
  behave({ kind: 'granted', ms: 14_000 })
  const asked = request(replica, key)
  await time.advance(10_600)
  t.match(await asked, { kind: 'unavailable', what: 'authorization_server' })
  behave({ kind: 'unavailable' })
  await time.advance(4_000)
  t.equal((await shared.read(key))?.gen, 2, 'the late answer was stored')
  t.match(await request(replica, key), { kind: 'token', session: { gen: 2 } })
  t.ok(presentations.length > 2, 'another try was made meanwhile')
})

t.test('a late refusal does not end a session that a later try has renewed', async (t) => {
  const { time, addReplica, addSession, behave, presentations, request, shared } = createHouse(t)
  const replica = addReplica()
  // A process that has just started does not yet count on what it sees of others.
  await time.advance(5_000)
  const key = await addSession(replica, 1, 0)
  behave({ kind: 'in_doubt', rotates: false })
  await request(replica, key)
  await time.advance(2_000)
  behave({ kind: 'refused', ms: 14_500 })
  const asked = request(replica, key)
  await time.advance(10_600)
  await asked
  behave({ kind: 'granted', ms: 2_400, early: true })
  await time.advance(2_100)
  const again = request(replica, key)
  await time.advance(4_500)
  t.match(await again, { kind: 'token' })
  t.strictSame(
    presentations.map(({ outcome }) => outcome),
    ['in_doubt', 'refused', 'granted'],
  )
  t.not(await shared.read(key), null)
})

t.test('refusals of single grants that end no session hold up nobody else', async (t) => {
  const { addReplica, addSession, behave, request } = createHouse(t)
  const replica = addReplica()
  const keys = await Promise.all(Array.from({ length: 6 }, (_, at) => addSession(replica, at, 0)))
  behave({ kind: 'unavailable', ofThisGrant: true })
  for (const key of keys.slice(0, 5)) t.match(await request(replica, key), { kind: 'unavailable' })
  behave({ kind: 'granted' })
  t.match(await request(replica, keys[5]!), { kind: 'token' })
})

t.test('a first presentation is given its whole time', async (t) => {
  const { time, addReplica, addSession, behave, presentations, request } = createHouse(t)
  const replica = addReplica()
  const key = await addSession(replica, 1, 0)
  behave({ kind: 'granted', ms: 9_500 })
  const asked = request(replica, key)
  await time.advance(9_600)
  t.match(await asked, { kind: 'token' })
  t.equal(presentations.length, 1)
})

t.test('a lease that was taken without an answer is given back, and leaves no doubt', async (t) => {
  const { time, addReplica, addSession, loseAnswer, presentations, request, shared } = createHouse(t)
  const replica = addReplica()
  const key = await addSession(replica, 1, 0)
  loseAnswer('beginRefresh')
  t.match(await request(replica, key), { kind: 'unavailable', what: 'store' })
  t.match(await shared.read(key), { doubts: 1 })
  t.not((await shared.read(key))?.leaseUntil, 0)
  await time.advance(1_100)
  t.match(await shared.read(key), { doubts: 0, leaseUntil: 0 })
  t.match(await request(replica, key), { kind: 'token' })
  t.equal(presentations.length, 1)
})

t.test('what a readable no leaves behind is written although the store was down then', async (t) => {
  const { time, addReplica, addSession, behave, request, shared, storeDown } = createHouse(t)
  const replica = addReplica()
  const key = await addSession(replica, 1, 0)
  behave({ kind: 'unavailable', ms: 500 })
  const asked = request(replica, key)
  await time.settle()
  storeDown(true)
  await time.advance(600)
  t.match(await asked, { kind: 'unavailable', what: 'store' })
  storeDown(false)
  await time.advance(1_200)
  t.match(await shared.read(key), { doubts: 0, leaseUntil: 0 })
})

t.test('a refusal that could not be written ends the session when the store is back, unasked', async (t) => {
  const { time, addReplica, addSession, behave, presentations, request, shared, storeDown } = createHouse(t)
  const replica = addReplica()
  const key = await addSession(replica, 1, 0)
  behave({ kind: 'refused', ms: 500 })
  const asked = request(replica, key)
  await time.settle()
  storeDown(true)
  await time.advance(600)
  t.match(await asked, { kind: 'unavailable', what: 'store' })
  await time.advance(60_000)
  storeDown(false)
  await time.advance(1_200)
  t.equal(await shared.read(key), null)
  t.strictSame(replica.ended, ['refused'])
  t.equal(presentations.length, 1)
})

t.test(
  'tokens that the store does not take are served by their holder alone, and never replayed',
  async (t) => {
    const { time, addReplica, addSession, behave, presentations, request, storeDown } = createHouse(t)
    const [holder, other] = [addReplica(), addReplica()]
    const key = await addSession(holder, 1, 0)
    behave({ kind: 'granted', ms: 500 })
    const asked = request(holder, key)
    await time.settle()
    storeDown(true)
    await time.advance(600)
    t.match(await asked, { kind: 'token' })
    t.equal(holder.tokens.gauges().unsaved, 1)
    // Longer than the lease, and for less than these tokens live.
    for (let waited = 0; waited < 30; waited += 1) {
      await time.advance(1_000)
      t.match(await request(holder, key), { kind: 'token', session: { gen: 2 } })
      t.match(await request(other, key), { kind: 'unavailable', what: 'store' })
    }
    storeDown(false)
    const early = request(other, key)
    await time.advance(2_000)
    await early
    t.match(await request(other, key), { kind: 'token', session: { gen: 2 } })
    t.equal(holder.tokens.gauges().unsaved, 0)
    t.equal(presentations.length, 1)
  },
)

t.test('failures that are no trouble with its server keep no session in doubt waiting', async (t) => {
  const { time, addReplica, addSession, loseAnswer, presentations, request, shared } = createHouse(t)
  const replica = addReplica()
  const key = await addSession(replica, 1, 0)
  await shared.beginRefresh(key, {
    gen: 1,
    attempt: 'of the dead',
    leaseMs: 15_000,
    livesMs: 0,
    forcedWindowMs: 0,
  })
  loseAnswer('claimDue', 1_000)
  await time.advance(15_001)
  t.match(await request(replica, key), { kind: 'token', session: { gen: 2 } })
  t.equal(presentations.length, 1)
})

t.test('trouble with its server keeps a session in doubt waiting for five seconds', async (t) => {
  const { time, addReplica, addSession, presentations, request, shared, storeDown } = createHouse(t)
  const replica = addReplica()
  const key = await addSession(replica, 1, 0)
  await shared.beginRefresh(key, {
    gen: 1,
    attempt: 'of another',
    leaseMs: 15_000,
    livesMs: 0,
    forcedWindowMs: 0,
  })
  await time.advance(10_000)
  storeDown(true)
  await time.advance(6_000)
  storeDown(false)
  t.match(await request(replica, key), { kind: 'unavailable', what: 'authorization_server' })
  await time.advance(4_900)
  t.equal(presentations.length, 0)
  await time.advance(200)
  t.match(await request(replica, key), { kind: 'token', session: { gen: 2 } })
})

t.test('a forced refresh that failed does not leave the session refused for a minute', async (t) => {
  const { time, addReplica, addSession, behave, presentations, request } = createHouse(t)
  const replica = addReplica()
  const key = await addSession(replica, 1, 3_600)
  await time.advance(100_000)
  behave({ kind: 'unavailable' })
  t.match(await request(replica, key, 1), { kind: 'unavailable', what: 'authorization_server' })
  behave({ kind: 'granted' })
  t.match(await request(replica, key, 1), { kind: 'unavailable' }, 'not before its back-off has passed')
  await time.advance(60_000 - 1_000)
  t.match(await request(replica, key, 1), { kind: 'token', session: { gen: 2 } })
  t.equal(presentations.length, 2)
})

t.test('a new token that is refused at once is not refreshed again within a minute', async (t) => {
  const { time, addReplica, addSession, presentations, request } = createHouse(t)
  const replica = addReplica()
  const key = await addSession(replica, 1, 3_600)
  t.match(await request(replica, key, 1), { kind: 'token', session: { gen: 2 } })
  await time.advance(20_000)
  t.match(await request(replica, key, 2), { kind: 'token_refused' })
  t.equal(presentations.length, 1)
})

t.test('tokens that arrive after the session ended are revoked', async (t) => {
  const { time, addReplica, addSession, behave, request, revoked, shared } = createHouse(t)
  const [replica, other] = [addReplica(), addReplica()]
  const key = await addSession(replica, 1, 0)
  behave({ kind: 'granted', ms: 3_000 })
  const asked = request(replica, key)
  await time.advance(100)
  t.ok(await other.tokens.end(key, 'logout'))
  await time.advance(100)
  t.match(await asked, { kind: 'login_required' }, 'long before the answer')
  await time.advance(3_000)
  t.equal(await shared.read(key), null)
  t.strictSame([...revoked].sort(), ['at-1', 'at-2', 'rt-1', 'rt-2'])
})

t.test('a refusal ends nothing where a sibling has replaced the tokens meanwhile', async (t) => {
  const { time, addReplica, addSession, behave, request, shared } = createHouse(t)
  const replica = addReplica()
  const key = await addSession(replica, 1, 0)
  behave({ kind: 'refused', ms: 3_000 })
  const asked = request(replica, key)
  await time.advance(100)
  const record = await shared.read(key)
  await shared.replaceTokens(key, 1, 'of a sibling', record!.tokens)
  await time.advance(3_000)
  t.match(await asked, { kind: 'token', session: { gen: 2 } })
  t.strictSame(replica.ended, [])
})

t.test('a presentation by a replica that died is repeated only shortly before expiry', async (t) => {
  const { time, addReplica, addSession, presentations, request, shared } = createHouse(t)
  const replica = addReplica()
  const key = await addSession(replica, 1)
  await shared.beginRefresh(key, {
    gen: 1,
    attempt: 'of the dead',
    leaseMs: 15_000,
    livesMs: 0,
    forcedWindowMs: 0,
  })
  await time.advance(53_000)
  t.match(await request(replica, key), { kind: 'token', session: { gen: 1 } })
  t.equal(presentations.length, 0)
  await time.advance(1_500)
  t.equal(presentations.length, 1)
  t.match(await request(replica, key), { kind: 'token', session: { gen: 2 } })
})

for (const rotatesAtOnce of [true, false]) {
  t.test(
    `a slow answer of three leases is kept, rotated at its ${rotatesAtOnce ? 'beginning' : 'end'}, and its token presented once`,
    async (t) => {
      const { time, addReplica, addSession, behave, presentations, request, shared, endedFamilies } =
        createHouse(t)
      const replicas = [addReplica(), addReplica(), addReplica()]
      const key = await addSession(replicas[0]!, 1, 3_600)
      behave({ kind: 'granted', ms: 3 * leaseMs(TIMEOUT_MS), early: rotatesAtOnce })
      await time.advance(3_600_000 - TIMING.aheadSeconds * 1_000)
      while (presentations.length === 0) await time.advance(1_000)
      // All the while every replica is asked for, and nobody waits.
      for (let second = 0; second < 44; second += 4) {
        for (const replica of replicas) {
          const asked = request(replica, key)
          await time.advance(1_100)
          t.match(await asked, { kind: 'token', session: { gen: 1 } })
        }
        await time.advance(700)
      }
      t.match(await shared.read(key), { gen: 1, doubts: 1 }, 'in doubt meanwhile')
      behave({ kind: 'granted' })
      await time.advance(3_000)
      for (const replica of replicas) {
        const access = await request(replica, key)
        t.ok(access.kind === 'token' && access.session.gen >= 2, access.kind)
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

t.test(
  'a slow answer of three leases that comes to an expired token follows the rule of doubt',
  async (t) => {
    const { time, addReplica, addSession, behave, presentations, request, shared } = createHouse(t)
    const replica = addReplica(() => 0.5)
    await time.advance(5_000)
    const key = await addSession(replica, 1, 0)
    behave((_by) =>
      presentations.length === 1
        ? { kind: 'granted', ms: 3 * leaseMs(TIMEOUT_MS), early: true }
        : { kind: 'unavailable' },
    )
    const asked = request(replica, key)
    await time.advance(TIMEOUT_MS - 100)
    t.equal(presentations.length, 1, 'not while the first time is within its timeout')
    await time.advance(700)
    t.match(await asked, { kind: 'unavailable', what: 'authorization_server' })
    await time.advance(3 * leaseMs(TIMEOUT_MS) - TIMEOUT_MS)
    const [first, ...later] = presentations
    t.ok(later.length > 3, 'it is asked anew, since nothing is left to lose')
    for (const each of later) t.ok(each.at >= first!.at + TIMEOUT_MS)
    t.match(await shared.read(key), { gen: 2 }, 'and the late answer is what saves the session')
    const count = presentations.length
    t.match(await request(replica, key), { kind: 'token', session: { gen: 2 } })
    await time.advance(10_000)
    t.ok(
      presentations.slice(count).every(({ token }) => token !== first!.token),
      'never again the old one',
    )
  },
)

t.test('a stop waits for an answer as long as its timeout, and no longer', async (t) => {
  const { time, addReplica, addSession, behave, request } = createHouse(t)
  const replica = addReplica()
  const key = await addSession(replica, 1, 0)
  behave({ kind: 'granted', ms: 3 * leaseMs(TIMEOUT_MS) })
  const asked = request(replica, key)
  await time.settle()
  let stopped = false
  void replica.tokens.stop().then(() => {
    stopped = true
  })
  await time.advance(TIMEOUT_MS - 100)
  t.notOk(stopped)
  await time.advance(700)
  t.ok(stopped)
  await asked
})
