import t from 'tap'
import { createVirtualReplicas } from './virtual-replicas.ts'

t.test('who holds a good token waits for a refresh no longer than it is a second old', async (t) => {
  const { time, addReplica, addSession, behave, request } = createVirtualReplicas(t)
  const [holder, other] = [addReplica(() => 0.999), addReplica(() => 0.999)]
  const key = await addSession(holder, 1, 90)
  await time.advance(61_000)
  behave({ kind: 'in_doubt', ms: 10_000, rotates: false })
  const startedAt = time.now()
  let over = 0
  const count = (): void => {
    over += 1
  }
  const first = [holder, other, holder, other].map((replica) => request(replica, key).finally(count))
  await time.advance(900)
  t.equal(over, 0)
  await time.advance(150)
  for (const access of await Promise.all(first))
    t.match(access, { kind: 'token', session: { record: { gen: 1 } } })
  for (const replica of [holder, other]) t.match(await request(replica, key), { kind: 'token' })
  t.ok(time.now() - startedAt < 1_100, 'those that come later do not wait at all')
})

t.test('who holds none waits for the whole answer, on whichever replica', async (t) => {
  const { time, addReplica, addSession, behave, presentations, request } = createVirtualReplicas(t)
  const replicas = [addReplica(), addReplica(), addReplica()]
  const key = await addSession(replicas[0]!, 1, 0)
  behave({ kind: 'granted', ms: 8_000 })
  const asked = Array.from({ length: 60 }, (_, at) => request(replicas[at % 3]!, key))
  await time.advance(8_100)
  for (const access of await Promise.all(asked))
    t.match(access, { kind: 'token', session: { record: { gen: 2 } } })
  t.equal(presentations.length, 1)
})

t.test('a token that expires while its holder waits is not handed out', async (t) => {
  const { time, addReplica, addSession, behave, request } = createVirtualReplicas(t)
  const replica = addReplica(() => 0.999)
  const key = await addSession(replica, 1, 3)
  await replica.tokens.stop()
  await time.advance(2_500)
  behave({ kind: 'granted', ms: 2_000 })
  const asked = request(replica, key)
  await time.advance(2_100)
  t.match(await asked, { kind: 'token', session: { record: { gen: 2 } } })
})

t.test('while the token endpoint is down nobody waits for a probe that hangs', async (t) => {
  const { time, addReplica, addSession, behave, request } = createVirtualReplicas(t)
  const [replica, other] = [addReplica(), addReplica()]
  const keys = await Promise.all([1, 2, 3, 4].map((name) => addSession(replica, name, 0)))
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
  t.match(await asked, { kind: 'unavailable' })
  t.ok(tookMs <= 2_700, `after ${tookMs} ms`)
  await elsewhere
  t.match(
    await request(replica, keys[3]!),
    { kind: 'token', session: { record: { gen: 2 } } },
    'its answer was kept',
  )
})

t.test('a caller who is told that the record changed does not read it in circles', async (t) => {
  const { time, addReplica, addSession, request, shared } = createVirtualReplicas(t)
  const replica = addReplica()
  const key = await addSession(replica, 1, 0)
  // As where reads are answered by a copy that is behind.
  shared.beginRefresh = async () => ({ kind: 'replaced' })
  const before = replica.commands.get('read') ?? 0
  const asked = request(replica, key)
  await time.advance(11_000)
  t.match(await asked, { kind: 'unavailable' })
  const reads = (replica.commands.get('read') ?? 0) - before
  t.ok(reads < 300, `${reads} reads`)
})

t.test('a lease that nobody gives back is waited for, and not beyond a token request', async (t) => {
  const { time, addReplica, addSession, request, shared, presentations } = createVirtualReplicas(t)
  const replica = addReplica()
  const key = await addSession(replica, 1, 0)
  await shared.beginRefresh(key, {
    gen: 1,
    attempt: 'of the dead',
    leaseMs: 15_000,
    openMs: 0,
    livesMs: 0,
    forcedWindowMs: 0,
  })
  const asked = request(replica, key)
  await time.advance(10_600)
  t.match(await asked, { kind: 'unavailable' })
  await time.advance(5_000)
  t.match(await request(replica, key), { kind: 'token' })
  t.equal(presentations.length, 1)
})

/** As a store whose server is another one since now: nobody begins for so long. */
function pauseRefreshes({ shared, time }: ReturnType<typeof createVirtualReplicas>, ms: number): void {
  const begin = shared.beginRefresh
  const until = time.now() + ms
  shared.beginRefresh = async (key, request) => {
    if (time.now() >= until) return await begin(key, request)
    return { kind: 'paused', waitMs: Math.min(4_000, until - time.now()) }
  }
}

t.test('a pause of the store is waited for, however short a token request may be', async (t) => {
  const setup = createVirtualReplicas(t, { timeoutMs: 1_000 })
  const { time, addReplica, addSession, behave, presentations, request } = setup
  const replica = addReplica()
  const keys = await Promise.all([1, 2, 3, 4].map((name) => addSession(replica, name, 0)))
  // The token endpoint is taken to be down.
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
  t.match(await asked, { kind: 'token', session: { record: { gen: 2 } } })
})

t.test('a pause of the store that is not waited for is told as the store’s', async (t) => {
  const setup = createVirtualReplicas(t, { timeoutMs: 1_000 })
  const { time, addReplica, addSession, request } = setup
  const replica = addReplica()
  const key = await addSession(replica, 1, 0)
  // From one server to the next.
  pauseRefreshes(setup, 20_000)
  const asked = request(replica, key)
  await time.advance(4_600)
  t.match(await asked, { kind: 'store_unavailable' })
})

t.test('a pause of the store holds up nobody who has a good token', async (t) => {
  const setup = createVirtualReplicas(t)
  const { time, addReplica, addSession, request } = setup
  const replica = addReplica(() => 0.999)
  const key = await addSession(replica, 1, 90)
  await time.advance(61_000)
  pauseRefreshes(setup, 4_000)
  t.match(await request(replica, key), { kind: 'token', session: { record: { gen: 1 } } })
})

t.test('a forced refresh is not taken for done by a plain one that came to nothing', async (t) => {
  const { time, addReplica, addSession, behave, presentations, request } = createVirtualReplicas(t)
  const replica = addReplica(() => 0.999)
  const key = await addSession(replica, 1, 90)
  await replica.tokens.stop()
  await time.advance(61_000)
  behave({ kind: 'unavailable', ms: 500 })
  const plain = request(replica, key)
  await time.settle()
  const forced = request(replica, key, 1)
  await time.advance(500)
  behave({ kind: 'granted' })
  await time.advance(600)
  t.match(await plain, { kind: 'token', session: { record: { gen: 1 } } })
  await forced
  t.equal(presentations.length, 2)
})

t.test('a session without a refresh token ends with its access token', async (t) => {
  const { time, addReplica, request, shared } = createVirtualReplicas(t)
  const replica = addReplica()
  const { Secret } = await import('../../src/secret.ts')
  const key = 'a'.repeat(64)
  const granted = {
    accessToken: new Secret('at'),
    refreshToken: null,
    lifeSeconds: 60,
    expiresAt: time.now() + 60_000,
    scope: null,
  }
  await replica.sessions.create(key, granted, 'token')
  await shared.confirm(key)
  await time.advance(59_000)
  t.match(await request(replica, key), { kind: 'token' })
  t.match(await request(replica, key, 1), { kind: 'token_refused' })
  await time.advance(2_000)
  t.match(await request(replica, key), { kind: 'ended' })
  t.strictSame(replica.ended, ['absolute'])
})
