import t from 'tap'
import { newKey } from '../store/stores.ts'
import { createVirtualReplicas, startSessions } from './virtual-replicas.ts'

const MINUTE = 60_000
/** Sessions without a refresh that is due soon. */
const HOURS = { lifeSeconds: 3_600, idleMs: 36_000_000 }

t.test(
  'sessions without an entry in the due queue get one, and are refreshed before they expire',
  async (t) => {
    // A scan before the loss would put the next one off.
    const options = { ...HOURS, replicas: 3, sessions: 12, upMs: 0 }
    const { time, shared, presentations, keys } = await startSessions(t, options)
    const lost = keys.filter((_, i) => i % 2 === 0)
    for (const key of lost) await shared.schedule(key, null)
    await time.advance(MINUTE)
    t.equal(await shared.queueLength(), keys.length, 'the first scan follows within a minute')
    await time.advance(22 * MINUTE)
    t.equal(presentations.length, 0, 'and no session is refreshed too early')
    await time.advance(37 * MINUTE)
    t.equal(new Set(presentations.map(({ family }) => family)).size, keys.length)
    t.ok(presentations.every(({ at, expiresAt }) => at < expiresAt))
  },
)

t.test('all replicas together start one scan about every ten minutes', async (t) => {
  const { time, replicas } = await startSessions(t, { ...HOURS, replicas: 3 })
  await time.advance(100 * MINUTE)
  const scans = replicas.reduce((sum, { commands }) => sum + (commands.get('keys') ?? 0), 0)
  t.ok(scans >= 8 && scans <= 11, `${scans} in 100 minutes`)
})

t.test('a replica that dies during a scan is followed by another', async (t) => {
  const setup = await startSessions(t, { ...HOURS, random: () => 0 })
  const { time, shared, replica: dies, key } = setup
  await time.advance(10)
  t.equal(dies.commands.get('keys'), 1)
  setup.crash(dies)
  await shared.schedule(key, null)
  setup.addReplica()
  await time.advance(22 * MINUTE)
  t.equal(await shared.queueLength(), 1)
})

t.test('a store failure ends the scan, and the next one follows soon', async (t) => {
  const setup = await startSessions(t, { ...HOURS, random: () => 0.5 })
  const { time, shared, storeDown, request, replica, key } = setup
  await shared.schedule(key, null)
  storeDown(true)
  await time.advance(5 * MINUTE)
  storeDown(false)
  t.equal(await shared.queueLength(), 0)
  await time.advance(2 * MINUTE)
  t.equal(await shared.queueLength(), 1)
  t.match(await request(replica, key), { kind: 'token' })
})

t.test('a scan pauses between batches, spreads what it restores, and ends at once by a stop', async (t) => {
  const { time, shared, addReplica } = createVirtualReplicas(t)
  const batchesAt: number[] = []
  const waits: number[] = []
  let isOver = false
  shared.keys = async function* () {
    try {
      for (;;) {
        batchesAt.push(time.now())
        yield [newKey(), newKey()]
      }
    } finally {
      isOver = true
    }
  }
  shared.scheduleMissing = async (entries) => {
    waits.push(...entries.map(({ inMs }) => inMs))
    return 0
  }
  await addReplica().tokens.stop()
  t.equal(time.waiting(), 1, 'a stop before the first scan leaves the timer of the store alone')
  const replica = addReplica()
  while (batchesAt.length === 0) await time.advance(1_000)
  await time.advance(6_000)
  t.ok(batchesAt.length >= 55 && batchesAt.length <= 71, `${batchesAt.length} batches in six seconds`)
  t.ok(batchesAt.slice(1).every((at, i) => at - batchesAt[i]! >= 100))
  t.ok(Math.min(...waits) >= 0 && Math.max(...waits) <= 10_000)
  t.ok(Math.max(...waits) - Math.min(...waits) > 5_000)
  const { length } = batchesAt
  await replica.tokens.stop()
  t.ok(isOver, 'the iteration over the keys has ended as well')
  await time.advance(60_000)
  t.equal(batchesAt.length, length)
  t.equal(time.waiting(), 1)
})
