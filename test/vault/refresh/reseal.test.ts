import t from 'tap'
import { createKeyring } from '../../../src/keyring.ts'
import { Secret } from '../../../src/secret.ts'
import { openTokens } from '../../../src/vault/session.ts'
import { createVirtualReplicas } from './virtual-replicas.ts'

const A = 'secret-A-of-the-tests-of-32-characters'
const B = 'secret-B-of-the-tests-of-32-characters'
const half = () => 0.5

t.test('a session under an older secret is served without a write to its record', async (t) => {
  const { time, shared, addReplica, addSession, request } = createVirtualReplicas(t)
  const key = await addSession(addReplica(half, [A]), 1, 3_600)
  await time.advance(1_000)
  const after = addReplica(half, [B, A])
  const was = await shared.read(key)
  for (let read = 0; read < 10; read += 1) {
    t.match(await request(after, key), { kind: 'token' })
    await time.advance(100)
  }
  t.strictSame(await shared.read(key), was)
  t.equal(after.commands.get('reseal'), undefined)
})

t.test('a refresh, with no request at all, brings tokens under the newest secret', async (t) => {
  const { time, shared, addReplica, addSession } = createVirtualReplicas(t)
  const before = addReplica(half, [A])
  const keys = await Promise.all([1, 2, 3, 4].map((name) => addSession(before, name)))
  await before.tokens.stop()
  addReplica(half, [B, A])
  await time.advance(60_000)
  const newest = createKeyring([new Secret(B)])
  for (const key of keys) t.ok(openTokens(newest, key, (await shared.read(key))!.tokens))
})
