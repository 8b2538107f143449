import { randomUUID } from 'node:crypto'
import t from 'tap'
import { createKeyring } from '../../src/keyring.ts'
import { createLog } from '../../src/log.ts'
import { Secret } from '../../src/secret.ts'
import { openTokens, sealTokens } from '../../src/session/sealed-tokens.ts'
import { createMemoryStore } from '../../src/store/memory/store.ts'
import type { RecordKey, SessionStore } from '../../src/store/store.ts'
import { StoreUnavailable } from '../../src/store/store.ts'
import { createResealer } from '../../src/tokens/reseal.ts'
import { createVirtualReplicas } from './virtual-replicas.ts'

const A = 'secret-A-of-the-tests-of-32-characters'
const B = 'secret-B-of-the-tests-of-32-characters'
const C = 'secret-C-of-the-tests-of-32-characters'
const half = () => 0.5

type Secrets = readonly string[]
const ring = (secrets: Secrets) => createKeyring(secrets.map((text) => new Secret(text)))

/** Which of the three secrets the tokens of a record are sealed under. */
async function sealOf(store: SessionStore, key: RecordKey): Promise<string> {
  const { tokens } = (await store.read(key))!
  const [name] = Object.entries({ A, B, C }).find(([, secret]) => openTokens(ring([secret]), key, tokens))!
  return name
}

t.test('tokens that are read under an older secret are sealed again, and nothing else changes', async (t) => {
  const setup = createVirtualReplicas(t)
  const before = setup.addReplica(half, [A])
  const key = await setup.addSession(before, 1, 3_600)
  const was = (await setup.shared.read(key))!
  await setup.time.advance(1_000)
  const after = setup.addReplica(half, [B, A])
  const told: RecordKey[] = []
  setup.shared.onChange((changed) => void told.push(changed))
  const found = await after.tokens.find(key)
  await setup.time.settle()
  const is = (await setup.shared.read(key))!
  t.strictSame({ ...is, tokens: was.tokens }, was)
  t.strictSame(told, [], 'nobody has to read it again')
  t.equal(await sealOf(setup.shared, key), 'B')
  t.equal(found.kind, 'live')
  const opened = openTokens(ring([B]), key, is.tokens)
  const first = openTokens(ring([A]), key, was.tokens)
  t.strictSame(opened?.tokens.accessToken.reveal(), first?.tokens.accessToken.reveal())
  t.strictSame(opened?.tokens.refreshToken?.reveal(), first?.tokens.refreshToken?.reveal())
  t.equal(opened?.tokens.expiresAt, first?.tokens.expiresAt)

  await after.tokens.find(key)
  await setup.time.settle()
  t.equal(after.commands.get('reseal'), 1, 'once')
})

t.test('the reader does not wait for it, and does not hear of its failure', async (t) => {
  const setup = createVirtualReplicas(t)
  const key = await setup.addSession(setup.addReplica(half, [A]), 1, 3_600)
  await setup.time.advance(1_000)
  const reseal = setup.shared.reseal.bind(setup.shared)
  let calls = 0
  setup.shared.reseal = (...args) => {
    calls += 1
    if (calls === 1) return Promise.reject(new StoreUnavailable(new Error('down')))
    return new Promise((resolve) => setTimeout(() => resolve(reseal(...args)), 5_000))
  }
  const after = setup.addReplica(half, [B, A])
  t.equal((await after.tokens.find(key)).kind, 'live')
  await setup.time.settle()
  for (let read = 0; read < 10; read += 1) t.equal((await after.tokens.find(key)).kind, 'live')
  t.equal(calls, 2, 'tried again, and one at a time')
  t.equal(await sealOf(setup.shared, key), 'A')
  const stopped = after.tokens.stop()
  await setup.time.advance(5_000)
  await stopped
  t.equal(await sealOf(setup.shared, key), 'B', 'a stop waits for it')
})

t.test('tokens that were replaced meanwhile stay', async (t) => {
  const setup = createVirtualReplicas(t)
  const key = await setup.addSession(setup.addReplica(half, [A]), 1)
  await setup.time.advance(1_000)
  const reseal = setup.shared.reseal.bind(setup.shared)
  let release: () => void = () => {}
  const gate = new Promise<void>((resolve) => {
    release = resolve
  })
  const results: boolean[] = []
  setup.shared.reseal = async (...args) => {
    await gate
    const result = await reseal(...args)
    results.push(result)
    return result
  }
  const after = setup.addReplica(half, [B, A])
  const found = await after.tokens.find(key)
  if (found.kind !== 'live') throw new Error(found.kind)
  t.match(await after.tokens.obtainAccessToken(found.session, 1), { kind: 'token', session: { gen: 2 } })
  const replaced = await setup.shared.read(key)
  release()
  await setup.time.settle()
  t.strictSame(results, [false])
  t.strictSame(await setup.shared.read(key), replaced)
})

t.test('a refresh, with no request at all, brings tokens under the newest secret', async (t) => {
  const setup = createVirtualReplicas(t)
  const keys = []
  const before = setup.addReplica(half, [A])
  for (let name = 0; name < 20; name += 1) keys.push(await setup.addSession(before, name))
  await before.tokens.stop()
  setup.addReplica(half, [B, A])
  await setup.time.advance(60_000)
  for (const key of keys) t.equal(await sealOf(setup.shared, key), 'B')
})

for (const { name, first, second, winner } of [
  { name: 'forward', first: [A, B], second: [B, A], winner: 'B' },
  { name: 'back', first: [B, A], second: [A, B], winner: 'A' },
]) {
  t.test(`two replicas of two opinions do not fight, rolling ${name}: the later one decides`, async (t) => {
    const setup = createVirtualReplicas(t)
    const origin = setup.addReplica(half, first)
    const key = await setup.addSession(origin, 1, 3_600)
    await setup.time.advance(1_000)
    const older = setup.addReplica(half, first)
    await setup.time.advance(1_000)
    const newer = setup.addReplica(half, second)
    for (let read = 0; read < 50; read += 1) {
      for (const replica of [older, newer]) {
        t.equal((await replica.tokens.find(key)).kind, 'live')
        await setup.time.settle()
      }
      await setup.time.advance(100)
    }
    t.equal(await sealOf(setup.shared, key), winner)
    t.equal(newer.commands.get('reseal'), 1)
    t.equal(older.commands.get('reseal'), undefined)

    // What the older one seals now is left to those who come after it.
    const late = await setup.addSession(older, 2, 3_600)
    for (let read = 0; read < 50; read += 1) {
      for (const replica of [older, newer]) await replica.tokens.find(late)
      await setup.time.advance(100)
    }
    t.equal(newer.commands.get('reseal'), 1)
    const last = setup.addReplica(half, second)
    await last.tokens.find(late)
    await setup.time.settle()
    t.equal(await sealOf(setup.shared, late), winner)
  })
}

t.test('no process seals the same tokens again twice, whatever the clocks and the lists say', async (t) => {
  for (let round = 0; round < 200; round += 1) {
    const store = createMemoryStore({ now: Date.now })
    const key = randomUUID().replaceAll('-', '').repeat(2)
    const opinions: Secrets[] = [
      [A, B, C],
      [B, A, C],
      [C, B, A],
    ]
    const processes = Array.from({ length: 5 }, () => {
      const keyring = ring(opinions[Math.floor(Math.random() * 3)]!)
      // Each has a clock of its own, which is set back and forth.
      const now = () => Math.floor(Math.random() * 50)
      let written = 0
      const counting = {
        async reseal(...args: Parameters<SessionStore['reseal']>) {
          const done = await store.reseal(...args)
          if (done) written += 1
          return done
        },
      }
      const resealer = createResealer({ store: counting, keyring, now, log: createLog('silent') })
      return { keyring, resealer, written: () => written }
    })
    const tokens = sealTokens(
      ring([[A, B, C][round % 3]!]),
      key,
      { accessToken: new Secret('a'), refreshToken: null, expiresAt: 1, lifeSeconds: 1, scope: null },
      0,
    )
    const record = { tokens, createdAt: Date.now(), endsAt: Date.now() + 60_000, flow: 'code', client: '' }
    await store.create(key, { ...record, flow: 'code' }, 'a', 60_000)
    for (let read = 0; read < 60; read += 1) {
      const { keyring, resealer } = processes[Math.floor(Math.random() * processes.length)]!
      const sealed = (await store.read(key))!.tokens
      resealer.look(key, sealed, openTokens(keyring, key, sealed)!)
      await resealer.settled()
    }
    const most = Math.max(...processes.map(({ written }) => written()))
    if (most > 1) t.fail(`one wrote ${most} times`)
    await store.close()
  }
  t.pass('in 200 rounds')
})
