import t from 'tap'
import { Secret } from '../../../src/secret.ts'
import { createVirtualReplicas, follow, startSessions, type VirtualReplicas } from './virtual-replicas.ts'

const GEN_1 = { kind: 'token', session: { record: { gen: 1 } } }
const GEN_2 = { kind: 'token', session: { record: { gen: 2 } } }

/** Makes the store act as after a change of server: no refresh begins for `ms`. */
function pauseRefreshes({ shared, time }: VirtualReplicas, ms: number): void {
  const begin = shared.beginRefresh
  const until = time.now() + ms
  shared.beginRefresh = async (key, request) => {
    if (time.now() >= until) return await begin(key, request)
    return { kind: 'paused', waitMs: Math.min(4_000, until - time.now()) }
  }
}

t.test('a request with a valid token waits at most one second for a refresh of its process', async (t) => {
  for (const [ms, gets] of [
    [500, GEN_2],
    [2_000, GEN_1],
  ] as const) {
    const setup = await startSessions(t, { lifeSeconds: 90, replicas: 2, random: () => 0.999 })
    const { time, behave, presentations, request, replica, other, key } = setup
    await time.advance(61_000)
    behave({ kind: 'granted', ms })
    const startedAt = time.now()
    const first = [1, 2].map(() => request(replica, key))
    const states = first.map(follow)
    await time.settle()
    t.match(await request(other, key), GEN_1, 'another process does not wait')
    await time.advance(Math.min(ms, 950) - 50)
    t.notOk(states.some(({ isOver }) => isOver))
    await time.advance(150)
    for (const access of await Promise.all(first)) t.match(access, gets)
    t.match(await request(replica, key), gets)
    t.ok(time.now() - startedAt < 1_100, 'later requests do not wait at all')
    await time.advance(1_000)
    t.match(await request(other, key), GEN_2)
    t.equal(presentations.length, 1)
  }
})

t.test('a request without a valid token waits for the refresh, on any replica', async (t) => {
  const { time, behave, presentations, request, replicas, key } = await startSessions(t, { replicas: 3 })
  behave({ kind: 'granted', ms: 8_000 })
  const asked = Array.from({ length: 60 }, (_, at) => request(replicas[at % 3]!, key))
  await time.advance(8_100)
  for (const access of await Promise.all(asked)) t.match(access, GEN_2)
  t.equal(presentations.length, 1)
})

t.test('a token that expires during the wait is not used', async (t) => {
  const { time, behave, request, replica, key } = await startSessions(t, {
    lifeSeconds: 3,
    random: () => 0.999,
  })
  await replica.tokens.stop()
  await time.advance(2_500)
  behave({ kind: 'granted', ms: 2_000 })
  const asked = request(replica, key)
  await time.advance(2_100)
  t.match(await asked, GEN_2)
})

t.test('while the token endpoint is down no request waits for a probe that hangs', async (t) => {
  const setup = await startSessions(t, { replicas: 2, sessions: 4 })
  const { time, behave, request, replica, other, keys } = setup
  behave({ kind: 'unavailable' })
  for (const each of [replica, other]) {
    for (const key of keys.slice(0, 3)) await request(each, key)
    await time.advance(2_100)
  }
  behave({ kind: 'granted', ms: 9_000 })
  const startedAt = time.now()
  let tookMs = 0
  const asked = request(replica, keys[3]!).then((access) => {
    tookMs = time.now() - startedAt
    return access
  })
  await time.advance(100)
  const elsewhere = request(other, keys[3]!)
  await time.advance(9_200)
  t.match(await asked, { kind: 'wait' })
  t.ok(tookMs <= 2_700, `after ${tookMs} ms`)
  await elsewhere
  t.match(await request(replica, keys[3]!), GEN_2, 'its response was used')
})

t.test(
  'sessions that wait for their turn read the store at most a thousand times a second together',
  async (t) => {
    const setup = await startSessions(t, { sessions: 2_000 })
    const { time, behave, request, replica, keys, shared } = setup
    // As after an outage: the token endpoint works, and has more to do than it can.
    behave({ kind: 'granted', ms: 4_000 })
    const states = keys.map((key) => follow(request(replica, key)))
    await time.advance(1_000)
    const before = replica.commands.get('readState') ?? 0
    await time.advance(2_000)
    const reads = (replica.commands.get('readState') ?? 0) - before
    t.ok(reads > 500 && reads <= 2_100, `${reads} reads in two seconds`)
    t.ok(states.every(({ isOver }) => !isOver))
    // The last one, which still waits.
    await shared.end(keys.at(-1)!, { reason: 'logout' })
    await time.advance(2_100)
    t.ok(states.at(-1)!.isOver, 'one that has ended waits no longer')
  },
)

t.test('a caller does not read in a busy loop if the record seems to change each time', async (t) => {
  const { time, request, shared, replica, key } = await startSessions(t)
  // As if a stale copy answered the reads.
  shared.beginRefresh = async () => ({ kind: 'replaced' })
  const before = replica.commands.get('read') ?? 0
  const asked = request(replica, key)
  await time.advance(11_000)
  t.match(await asked, { kind: 'wait' })
  const reads = (replica.commands.get('read') ?? 0) - before
  t.ok(reads < 300, `${reads} reads`)
})

t.test('a request waits for a pause of the store, however short the token timeout is', async (t) => {
  const setup = await startSessions(t, { timeoutMs: 1_000, sessions: 4 })
  const { time, behave, presentations, request, replica, keys } = setup
  // The breaker considers the token endpoint down.
  behave({ kind: 'unavailable' })
  for (const key of keys.slice(0, 3)) await request(replica, key)
  behave({ kind: 'granted' })
  const before = presentations.length
  await time.advance(500)
  pauseRefreshes(setup, 4_000)
  const asked = request(replica, keys[3]!)
  await time.advance(3_900)
  t.equal(presentations.length, before)
  await time.advance(200)
  t.match(await asked, GEN_2)
})

t.test('a request waits for one pause of the store, and with a valid token for none', async (t) => {
  for (const [lifeSeconds, waitsMs, expected] of [
    [0, 4_600, { kind: 'wait', why: 'paused' }],
    [90, 0, GEN_1],
  ] as const) {
    const setup = await startSessions(t, { lifeSeconds, timeoutMs: 1_000, random: () => 0.999 })
    const { time, request, replica, key } = setup
    await time.advance(lifeSeconds === 0 ? 0 : 61_000)
    // Another change of the server follows.
    pauseRefreshes(setup, 20_000)
    const asked = request(replica, key)
    await time.advance(waitsMs)
    t.match(await asked, expected)
  }
})

t.test('a forced refresh is the next one after a plain one that failed', async (t) => {
  const { time, behave, presentations, request, shared, replica, key } = await startSessions(t, {
    lifeSeconds: 90,
    random: () => 0.999,
  })
  await replica.tokens.stop()
  await time.advance(61_000)
  behave({ kind: 'unavailable', ms: 500 })
  const plain = request(replica, key)
  await time.settle()
  const forced = request(replica, key, 1)
  await time.settle()
  // A caller that read now would be behind all requests that begin meanwhile.
  shared.read = async () => await new Promise(() => {})
  behave({ kind: 'granted' })
  await time.advance(600)
  t.match(await plain, GEN_1)
  t.match(await forced, GEN_2)
  t.equal(presentations.length, 2)
})

t.test('a session without a refresh token ends with its access token', async (t) => {
  const { time, addReplica, request, shared } = createVirtualReplicas(t)
  const replica = addReplica()
  const key = 'a'.repeat(64)
  const granted = {
    accessToken: new Secret('at'),
    refreshToken: null,
    lifeSeconds: 60,
    expiresAt: time.now() + 60_000,
  }
  await replica.sessions.begin(key, granted, 'token')
  await shared.confirm(key)
  await time.advance(59_000)
  t.match(await request(replica, key), { kind: 'token' })
  t.match(await request(replica, key, 1), { kind: 'not_refreshable' })
  await time.advance(2_000)
  t.match(await request(replica, key), { kind: 'ended' })
  t.strictSame(replica.ended, ['absolute'])
})

t.test(
  "a request that waits for another replica's refresh reads the record four times a second",
  async (t) => {
    const { time, behave, request, replica: holder, other, key } = await startSessions(t, { replicas: 2 })
    behave({ kind: 'granted', ms: 3_000 })
    const first = request(holder, key)
    await time.settle()
    const second = request(other, key)
    const state = follow(second)
    await time.advance(10)
    const reads = (): number => other.commands.get('read') ?? 0
    const before = reads()
    await time.advance(2_000)
    t.equal(reads() - before, 8)
    await time.advance(989)
    t.notOk(state.isOver)
    await time.advance(252)
    t.ok(state.isOver)
    t.match(await second, GEN_2)
    t.match(await first, GEN_2)
  },
)
