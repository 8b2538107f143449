import t from 'tap'
import { startSessions } from './virtual-replicas.ts'

const HOUR = 3_600_000

for (const [hours, whose] of [
  [-1, 'wall'],
  [1, 'wall'],
  [-1, 'store'],
  [1, 'store'],
] as const) {
  t.test(`a ${whose} clock that steps by ${hours} h delays no background refresh`, async (t) => {
    const setup = await startSessions(t, { lifeSeconds: 600, idleMs: 6 * HOUR })
    const { time, steps, presentations, shared, request, replica, key } = setup
    await time.advance(60_000)
    steps[whose] = hours * HOUR
    await time.advance(540_000)
    t.ok((await shared.read(key))!.gen >= 2)
    await time.advance(600_000)
    t.ok((await shared.read(key))!.gen >= 3)
    t.ok(presentations.length < 100, `${presentations.length} refreshes of tokens that live a minute`)
    t.match(await request(replica, key), { kind: 'token' })
  })
}

t.test('a process clock that steps back by an hour keeps the breaker open no longer', async (t) => {
  const { time, steps, behave, request, replica, keys } = await startSessions(t, { sessions: 4 })
  behave({ kind: 'unavailable' })
  for (const key of keys) await request(replica, key)
  steps.wall = -HOUR
  behave({ kind: 'granted' })
  await time.advance(5_000)
  // By the clock that was set back this token is valid for another hour, but the resource server refuses it.
  t.match(await request(replica, keys[0]!, 1), { kind: 'token', session: { record: { gen: 2 } } })
})

t.test('a replica with a slow clock writes no wait that prevents others from refreshing', async (t) => {
  const { time, steps, behave, request, replica, other, key } = await startSessions(t, {
    lifeSeconds: 30,
    replicas: 2,
  })
  await replica.tokens.stop()
  behave({ kind: 'in_doubt', rotates: false })
  await time.advance(31_000)
  steps.wall = -HOUR
  void request(other, key, 1)
  await time.advance(5_000)
  steps.wall = 0
  behave({ kind: 'granted' })
  await time.advance(5_000)
  t.match(await request(other, key), { kind: 'token' })
})

t.test('a store clock that steps back by an hour extends no lease', async (t) => {
  const { time, steps, crash, behave, request, replica, other, key } = await startSessions(t, { replicas: 2 })
  behave({ kind: 'unavailable', ms: 60_000 })
  void request(replica, key)
  await time.advance(500)
  crash(replica)
  steps.store = -HOUR
  behave({ kind: 'granted' })
  // The first read finds a lease that would last for another hour.
  void request(other, key)
  await time.advance(15_500)
  t.match(await request(other, key), { kind: 'token' })
})

t.test(
  'a process whose clock is past both limits ends no session that the store clock keeps alive',
  async (t) => {
    const setup = await startSessions(t, { lifeSeconds: 600, idleMs: 2 * HOUR, maxMs: 3 * HOUR })
    const { time, steps, request, replica, key } = setup
    await time.advance(6_000)
    for (const hours of [2, 4]) {
      steps.wall = hours * HOUR
      t.match(await replica.sessions.look(key), { kind: 'live' })
      t.match(await request(replica, key, 1), { kind: 'token' })
    }
    t.strictSame(replica.ended, [])
    steps.store = 2 * HOUR
    t.match(await replica.sessions.look(key), { kind: 'ended', reason: 'absolute' }, 'the store decides')
  },
)

t.test('a step of the store clock by an hour ends no session that is in use', async (t) => {
  const { time, steps, shared, replica, key } = await startSessions(t, { lifeSeconds: 600, idleMs: HOUR / 2 })
  await time.advance(60_000)
  steps.store = HOUR
  for (let minute = 0; minute < 90; minute += 1) {
    t.match(await replica.sessions.look(key), { kind: 'live' })
    await shared.touch(key)
    await time.advance(60_000)
  }
})
