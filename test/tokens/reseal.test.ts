import t, { type Test } from 'tap'
import { createKeyring } from '../../src/keyring.ts'
import { reseal, sealOf } from '../../src/operator/reseal.ts'
import { Secret } from '../../src/secret.ts'
import { openTokens } from '../../src/session/sealed-tokens.ts'
import type { RecordKey, SessionStore } from '../../src/store/store.ts'
import { createVirtualReplicas } from './virtual-replicas.ts'

const A = 'secret-A-of-the-tests-of-32-characters'
const B = 'secret-B-of-the-tests-of-32-characters'
const C = 'secret-C-of-the-tests-of-32-characters'
const half = () => 0.5

type Secrets = readonly string[]
const ring = (secrets: Secrets) => createKeyring(secrets.map((text) => new Secret(text)))

/** Which of the three secrets the tokens of a record are sealed under. */
async function secretOf(store: SessionStore, key: RecordKey): Promise<string> {
  const { tokens } = (await store.read(key))!
  const [name] = Object.entries({ A, B, C }).find(([, secret]) => openTokens(ring([secret]), key, tokens))!
  return name
}

/** One session that was sealed under the first of these secrets, and the seals as a process with others sees them. */
async function start(t: Test, { sealedUnder, secrets }: { sealedUnder: Secrets; secrets: Secrets }) {
  const setup = createVirtualReplicas(t)
  const key = await setup.addSession(setup.addReplica(half, [...sealedUnder]), 1, 3_600)
  await setup.time.advance(1_000)
  const seals = { store: setup.shared, keyring: ring(secrets) }
  return { ...setup, key, seals }
}

t.test('tokens under an older secret are sealed again, and nothing else changes', async (t) => {
  const { key, seals, shared } = await start(t, { sealedUnder: [A], secrets: [B, A] })
  const was = (await shared.read(key))!
  t.equal(await sealOf(key, seals), 'older')
  t.equal(await reseal(key, seals), 'resealed')
  const is = (await shared.read(key))!
  t.strictSame({ ...is, tokens: was.tokens }, was)
  t.equal(await secretOf(shared, key), 'B')
  const opened = openTokens(ring([B]), key, is.tokens)
  const first = openTokens(ring([A]), key, was.tokens)
  t.strictSame(opened?.tokens.accessToken.reveal(), first?.tokens.accessToken.reveal())
  t.strictSame(opened?.tokens.refreshToken?.reveal(), first?.tokens.refreshToken?.reveal())
  t.equal(opened?.tokens.expiresAt, first?.tokens.expiresAt)
  t.equal(await sealOf(key, seals), 'newest')
  t.equal(await reseal(key, seals), 'newest', 'they are not sealed a second time')
  t.strictSame(await shared.read(key), is)
})

t.test('tokens that were replaced meanwhile stay, and are looked at again', async (t) => {
  const { key, seals, shared, addReplica, request } = await start(t, { sealedUnder: [A], secrets: [B, A] })
  const after = addReplica(half, [B, A])
  const write = shared.reseal
  const results: boolean[] = []
  shared.reseal = async (...args) => {
    t.match(await request(after, key, 1), { kind: 'token', session: { record: { gen: 2 } } })
    const result = await write(...args)
    results.push(result)
    return result
  }
  t.equal(await reseal(key, seals), 'newest')
  t.strictSame(results, [false])
  t.equal((await shared.read(key))?.gen, 2)
})

t.test('tokens that are replaced faster than they are sealed again are given up as older', async (t) => {
  const { key, seals, shared } = await start(t, { sealedUnder: [A], secrets: [B, A] })
  let tries = 0
  shared.reseal = async () => {
    tries += 1
    return false
  }
  t.equal(await reseal(key, seals), 'older')
  t.equal(tries, 3)
  t.equal(await secretOf(shared, key), 'A')
})

t.test('tokens that no known secret opens are left in place', async (t) => {
  const { key, seals, shared } = await start(t, { sealedUnder: [A], secrets: [B, C] })
  t.equal(await sealOf(key, seals), 'unreadable')
  t.equal(await reseal(key, seals), 'unreadable')
  t.equal(await secretOf(shared, key), 'A')
})

t.test('a session without a record has no seal', async (t) => {
  const { seals } = await start(t, { sealedUnder: [A], secrets: [B, A] })
  t.equal(await sealOf('0'.repeat(64), seals), null)
  t.equal(await reseal('0'.repeat(64), seals), null)
})

t.test('a session under an older secret is served without a write to its record', async (t) => {
  const { key, shared, time, addReplica, request } = await start(t, { sealedUnder: [A], secrets: [B, A] })
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
  const setup = createVirtualReplicas(t)
  const keys = []
  const before = setup.addReplica(half, [A])
  for (let name = 0; name < 20; name += 1) keys.push(await setup.addSession(before, name))
  await before.tokens.stop()
  setup.addReplica(half, [B, A])
  await setup.time.advance(60_000)
  for (const key of keys) t.equal(await secretOf(setup.shared, key), 'B')
})
