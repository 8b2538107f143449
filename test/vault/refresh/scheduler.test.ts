import t from 'tap'
import { POLL_EVERY_MS } from '../../../src/vault/refresh/scheduler.ts'
import {
  createVirtualReplicas,
  follow,
  LIFE_SECONDS,
  type Replica,
  startSessions,
} from './virtual-replicas.ts'

const sum = (replica: Replica, name: string): number => replica.commands.get(name) ?? 0

t.test('tokens are refreshed before they expire, once per lifetime over all replicas', async (t) => {
  const options = { lifeSeconds: LIFE_SECONDS, replicas: 3, sessions: 12 }
  const { time, presentations, shared } = await startSessions(t, options)
  await time.advance(LIFE_SECONDS * 1_000)
  const first = presentations.slice(0, 12).map(({ at }) => at)
  t.ok(
    Math.max(...first) - Math.min(...first) > 1_000,
    'sessions that began together are due at different times',
  )
  await time.advance(9 * LIFE_SECONDS * 1_000)
  t.ok(presentations.every(({ at, expiresAt }) => at < expiresAt))
  t.equal(new Set(presentations.map(({ token }) => token)).size, presentations.length)
  // Two refreshes are two thirds of a lifetime apart, plus up to a fifteenth.
  t.ok(presentations.length >= 12 * 13 && presentations.length <= 12 * 15, `${presentations.length}`)
  t.equal(await shared.queueLength(), 12)
})

for (const { limit, options } of [
  { limit: 'idle', options: { idleMs: 130_000 } },
  { limit: 'absolute', options: { maxMs: 130_000 } },
] as const) {
  t.test(`a session is refreshed until its ${limit} limit, and its end is counted once`, async (t) => {
    const setup = await startSessions(t, {
      lifeSeconds: LIFE_SECONDS,
      ...options,
      replicas: 2,
      random: () => 0.5,
    })
    const { time, presentations, shared, replicas, key } = setup
    await time.advance(129_000)
    t.equal(presentations.length, 3)
    t.not(await shared.read(key), null)
    await time.advance(2_000)
    t.equal(await shared.read(key), null)
    await time.advance(200_000)
    t.strictSame(
      replicas.flatMap(({ ended }) => ended),
      [limit],
    )
    t.equal(presentations.length, 3)
    t.equal(await shared.queueLength(), 0)
  })
}

t.test('the end of a session that waits for its last chance is counted as well', async (t) => {
  const { time, addReplica, addSession, behave, presentations } = createVirtualReplicas(t, {
    idleMs: 600_000,
  })
  const replica = addReplica()
  await addSession(replica, 1, 3_600)
  behave({ kind: 'in_doubt', rotates: false })
  const found = await replica.sessions.look(await addSession(replica, 2, 3_600))
  // Forced early in a long lifetime, so the next refresh is due in an hour.
  if (found.kind === 'live') await replica.tokens.obtainAccessToken(found.session, 1)
  t.equal(presentations.length, 1)
  await time.advance(620_000)
  t.strictSame(replica.ended, ['idle', 'idle'])
})

t.test('an entry without a record is dropped', async (t) => {
  const { time, addReplica, shared } = createVirtualReplicas(t)
  addReplica()
  await shared.schedule('0'.repeat(64), 0)
  await time.advance(10_000)
  t.equal(await shared.queueLength(), 0)
})

t.test('another replica takes over the entries that a dead replica had claimed', async (t) => {
  const { time, addReplica, addSession, behave, crash, presentations, request } = createVirtualReplicas(t)
  const dies = addReplica()
  const key = await addSession(dies, 1)
  behave(() => ({ kind: 'granted', ms: 5_000 }))
  await time.advance(40_000)
  for (let waited = 0; presentations.length === 0 && waited < 50; waited += 1) await time.advance(200)
  t.equal(presentations.length, 1)
  crash(dies)
  const other = addReplica()
  behave({ kind: 'granted' })
  // Its response is lost, so the next attempt is the last chance. The server refuses it, and the session ends
  // once the first presentation can no longer be granted.
  await time.advance(30_000)
  t.equal(presentations.length, 2)
  t.strictSame(other.ended, [])
  await time.advance(30_000)
  t.equal(presentations[1]!.by, other.id)
  t.ok(presentations[1]!.at >= presentations[0]!.expiresAt - 20_000 / 3)
  t.match(await request(other, key), { kind: 'ended' })
  t.strictSame(other.ended, ['refused'])
})

t.test(
  'an outage with many due sessions overloads neither the store nor the authorization server',
  async (t) => {
    const setup = await startSessions(t, { lifeSeconds: LIFE_SECONDS, sessions: 300 })
    const { time, behave, presentations, request, replica, keys } = setup
    behave({ kind: 'unavailable' })
    await time.advance(120_000)
    const [sent, asked] = [presentations.length, [...replica.commands.values()].reduce((a, b) => a + b, 0)]
    await time.advance(60_000)
    const perMinute = presentations.length - sent
    t.ok(perMinute >= 12 && perMinute <= 60, `${perMinute} token requests in a minute`)
    const commands = [...replica.commands.values()].reduce((a, b) => a + b, 0) - asked
    t.ok(commands < 60 * 30, `${commands} commands in a minute`)

    behave({ kind: 'granted' })
    await time.advance(5_000)
    t.ok(replica.outcomes.includes('granted'), 'noticed within five seconds')
    await time.advance(15_000)
    const kinds = await Promise.all(keys.map(async (key) => (await request(replica, key)).kind))
    t.ok(kinds.every((kind) => kind === 'token'))
    t.strictSame(replica.ended, [])
  },
)

t.test('an idle replica asks for due sessions every two seconds, and sends nothing else', async (t) => {
  const { time, addReplica } = createVirtualReplicas(t)
  const replica = addReplica()
  await time.advance(120_000)
  replica.commands.clear()
  await time.advance(100 * POLL_EVERY_MS)
  t.strictSame([...replica.commands], [['claimDue', 100]])
})

t.test('a session that becomes due between two polls is refreshed when it is due', async (t) => {
  const { time, presentations, shared, key } = await startSessions(t, {
    lifeSeconds: LIFE_SECONDS,
    replicas: 2,
    random: () => 0,
  })
  await time.advance(POLL_EVERY_MS)
  await shared.schedule(key, 41_234)
  await time.advance(41_233)
  t.equal(presentations.length, 0)
  await time.advance(20)
  t.equal(presentations.length, 1)
})

t.test('while the store is down the scheduler asks it at a low rate', async (t) => {
  const setup = await startSessions(t, { lifeSeconds: LIFE_SECONDS, sessions: 100 })
  const { time, storeDown, presentations, replica } = setup
  storeDown(true)
  const before = sum(replica, 'claimDue')
  await time.advance(60_000)
  const asked = sum(replica, 'claimDue') - before
  t.ok(asked <= 60, `${asked} times in a minute`)
  t.equal(presentations.length, 0)
  storeDown(false)
  await time.advance(20_000)
  t.equal(presentations.length, 100)
})

t.test('at most `concurrency` refreshes run at once', async (t) => {
  const options = { lifeSeconds: LIFE_SECONDS, sessions: 40, concurrency: 4 }
  const { time, behave } = await startSessions(t, options)
  let most = 0
  let underWay = 0
  behave(() => {
    underWay += 1
    most = Math.max(most, underWay)
    setTimeout(() => {
      underWay -= 1
    }, 200)
    return { kind: 'granted', ms: 200 }
  })
  await time.advance(60_000)
  t.equal(most, 4)
})

t.test('no more sessions are claimed than there is room for, however slowly records are read', async (t) => {
  const options = { lifeSeconds: LIFE_SECONDS, sessions: 40, concurrency: 4 }
  const { time, shared } = await startSessions(t, options)
  const { read } = shared
  let most = 0
  let underWay = 0
  shared.read = async (key) => {
    underWay += 1
    most = Math.max(most, underWay)
    await new Promise((resolve) => setTimeout(resolve, 500))
    underWay -= 1
    return await read(key)
  }
  await time.advance(60_000)
  t.equal(most, 4)
})

t.test('a replica whose clock is behind the store clock does not run a busy loop', async (t) => {
  const { time, shared, replica, key } = await startSessions(t, { lifeSeconds: 3_600, idleMs: 60_000 })
  // Due by the store's clock, and three seconds early by ours.
  const ahead = 3_000
  shared.claimDue = async () => {
    const due = (await shared.queueLength()) > 0 && time.now() + ahead >= endsAt && time.now() < endsAt
    const storeNow = time.now() + ahead
    return due
      ? { entries: [{ key, lateMs: storeNow - endsAt }], nextInMs: 0, storeNow }
      : { entries: [], nextInMs: null, storeNow }
  }
  const endsAt = time.now() + 60_000
  await time.advance(56_000)
  const before = sum(replica, 'read')
  await time.advance(4_500)
  t.ok(sum(replica, 'read') - before < 500, `${sum(replica, 'read') - before} reads in three seconds`)
})

t.test('a stop waits for the current refresh, starts no other and leaves no timer', async (t) => {
  const setup = await startSessions(t, { lifeSeconds: LIFE_SECONDS, sessions: 2 })
  const { time, behave, presentations, shared, replica, keys } = setup
  behave(() => ({ kind: 'granted', ms: 3_000 }))
  await time.advance(40_000)
  for (let waited = 0; presentations.length === 0 && waited < 100; waited += 1) await time.advance(100)
  const stop = follow(replica.tokens.stop())
  await time.settle()
  t.notOk(stop.isOver)
  await time.advance(6_000)
  t.ok(stop.isOver)
  const gens = await Promise.all(keys.map(async (key) => (await shared.read(key))?.gen))
  t.equal(gens.filter((gen) => gen === 2).length, presentations.length)
  await time.advance(300_000)
  t.ok(presentations.length <= 2)
  // The store's own sweeper.
  t.equal(time.waiting(), 1)
})

t.test('a fast clock near the idle limit causes no busy loop', async (t) => {
  const { time, steps, addReplica, addSession, behave } = createVirtualReplicas(t, { idleMs: 120_000 })
  const replica = addReplica()
  await time.advance(6_000)
  await addSession(replica, 1, 15)
  behave({ kind: 'unavailable', ofThisGrant: true })
  await time.advance(40_000)
  steps.wall = 60_000
  await time.advance(22_000)
  const before = sum(replica, 'read')
  await time.advance(30_000)
  t.ok(sum(replica, 'read') - before < 200, `${sum(replica, 'read') - before} reads in 30 s`)
})
