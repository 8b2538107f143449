import t from 'tap'
import { startSessions, TIMEOUT_MS } from './virtual-replicas.ts'

const LIFE_SECONDS = 3_600
const LONG = { lifeSeconds: LIFE_SECONDS, idleMs: 10 * 3_600_000 }
/** When a session of this life is due in the background, at the latest. */
const DUE_MS = (LIFE_SECONDS - 240) * 1_000

for (const reuseMs of [60_000, 0]) {
  t.test(
    reuseMs > 0
      ? 'where a used refresh token is granted again, a killed replica costs a quiet session nothing'
      : 'else a refresh token in doubt is presented when the access token has expired',
    async (t) => {
      const setup = await startSessions(t, { ...LONG, replicas: 2, reuseMs })
      const { time, behave, presentations, replicas, crash, shared, key } = setup
      behave({ kind: 'granted', ms: 5_000 })
      for (let ms = 0; presentations.length === 0 && ms < DUE_MS; ms += 1_000) await time.advance(1_000)
      const [first] = presentations
      crash(replicas[first!.by]!)
      behave({ kind: 'granted' })
      await time.advance(TIMEOUT_MS + 10_000)
      t.equal(presentations.length, reuseMs > 0 ? 2 : 1)
      t.equal((await shared.read(key))?.gen, reuseMs > 0 ? 2 : 1)
      if (reuseMs > 0) return
      await time.advance(first!.expiresAt - time.now() + 5_000)
      t.equal(presentations.length, 2)
      t.ok(presentations[1]!.at >= first!.expiresAt)
    },
  )
}

t.test(
  'a refresh token in doubt is presented again once, and then when the access token has expired',
  async (t) => {
    const setup = await startSessions(t, { ...LONG, reuseMs: 60_000, upMs: 6_000 })
    const { time, behave, presentations } = setup
    behave({ kind: 'in_doubt', rotates: false })
    await time.advance(DUE_MS + 60_000)
    const [first, second, ...more] = presentations
    t.ok(second!.at - first!.at <= 3_000, 'its connection is closed, so nothing has to be waited for')
    t.strictSame(more, [])
    await time.advance(first!.expiresAt - time.now() + 5_000)
    t.ok(presentations[2]!.at >= first!.expiresAt)
  },
)

t.test('a refresh that was forced long before the token is due is presented again, too', async (t) => {
  const setup = await startSessions(t, { ...LONG, replicas: 2, reuseMs: 60_000 })
  const { time, behave, presentations, replica, crash, request, shared, key } = setup
  behave({ kind: 'granted', ms: 5_000 })
  void request(replica, key, 1)
  await time.advance(100)
  t.equal(presentations.length, 1)
  crash(replica)
  behave({ kind: 'granted' })
  await time.advance(TIMEOUT_MS + 10_000)
  t.equal(presentations.length, 2)
  t.equal((await shared.read(key))?.gen, 2)
})

t.test(
  'after the time in which it is granted again a refresh token in doubt waits for the expiry',
  async (t) => {
    const setup = await startSessions(t, { ...LONG, reuseMs: 20_000, upMs: 6_000 })
    const { time, behave, presentations } = setup
    behave({ kind: 'granted', ms: 600_000 })
    await time.advance(DUE_MS + 60_000)
    t.equal(presentations.length, 1, 'its connection was closed after 30 seconds')
  },
)
