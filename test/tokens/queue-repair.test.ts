import t from 'tap'
import type { RecordKey } from '../../src/store/store.ts'
import { newKey } from '../store/stores.ts'
import { createVirtualReplicas, type VirtualReplicas } from './virtual-replicas.ts'

const MINUTE = 60_000
const HOUR_SECONDS = 3_600

async function addSessions(setup: VirtualReplicas, count: number): Promise<RecordKey[]> {
  const keys = []
  for (let name = 0; name < count; name += 1)
    keys.push(await setup.addSession(setup.replicas[0]!, name, HOUR_SECONDS))
  return keys
}

t.test(
  'sessions without an entry in the due queue get one, and are refreshed before they expire',
  async (t) => {
    const setup = createVirtualReplicas(t, { idleMs: 7_200_000 })
    for (let count = 0; count < 3; count += 1) setup.addReplica()
    const keys = await addSessions(setup, 12)
    const lost = keys.filter((_, i) => i % 2 === 0)
    for (const key of lost) await setup.shared.schedule(key, null)
    await setup.time.advance(MINUTE)
    t.equal(await setup.shared.queueLength(), keys.length, 'the first scan follows within a minute')
    await setup.time.advance(22 * MINUTE)
    t.equal(setup.presentations.length, 0, 'and no session is refreshed too early')
    await setup.time.advance(37 * MINUTE)
    t.equal(new Set(setup.presentations.map(({ family }) => family)).size, keys.length)
    t.ok(setup.presentations.every(({ at, expiresAt }) => at < expiresAt))
  },
)

t.test('all replicas together start one scan about every ten minutes', async (t) => {
  const setup = createVirtualReplicas(t, { idleMs: 36_000_000 })
  for (let count = 0; count < 3; count += 1) setup.addReplica()
  await addSessions(setup, 1)
  await setup.time.advance(100 * MINUTE)
  const scans = setup.replicas.reduce((sum, { commands }) => sum + (commands.get('keys') ?? 0), 0)
  t.ok(scans >= 8 && scans <= 11, `${scans} in 100 minutes`)
})

t.test('a replica that dies during a scan is followed by another', async (t) => {
  const setup = createVirtualReplicas(t, { idleMs: 7_200_000 })
  const dies = setup.addReplica(() => 0)
  const [key] = await addSessions(setup, 1)
  await setup.time.advance(10)
  t.equal(dies.commands.get('keys'), 1)
  setup.crash(dies)
  await setup.shared.schedule(key!, null)
  setup.addReplica()
  await setup.time.advance(22 * MINUTE)
  t.equal(await setup.shared.queueLength(), 1)
})

t.test('a store failure ends the scan, and the next one follows soon', async (t) => {
  const setup = createVirtualReplicas(t, { idleMs: 7_200_000 })
  const replica = setup.addReplica(() => 0.5)
  const [key] = await addSessions(setup, 1)
  await setup.shared.schedule(key!, null)
  setup.storeDown(true)
  await setup.time.advance(5 * MINUTE)
  setup.storeDown(false)
  t.equal(await setup.shared.queueLength(), 0)
  await setup.time.advance(2 * MINUTE)
  t.equal(await setup.shared.queueLength(), 1)
  t.match(await setup.request(replica, key!), { kind: 'token' })
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
