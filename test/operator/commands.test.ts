import { Writable } from 'node:stream'
import t, { type Test } from 'tap'
import { type Command, createTerminal } from '../../operator/cli.ts'
import { runCommand } from '../../operator/commands.ts'
import { countRevocation } from '../../operator/end.ts'
import { createKeyring } from '../../src/keyring.ts'
import { Secret } from '../../src/secret.ts'
import { openTokens, sealTokens } from '../../src/vault/session.ts'
import type { RecordKey } from '../../src/vault/store/record.ts'
import type { SessionStore } from '../../src/vault/store/store.ts'
import type { User } from '../../src/vault/user.ts'
import { revealed } from '../config/environment.ts'
import {
  IDLE_MS,
  leaseRequest,
  memoryStore,
  newKey,
  newRecord,
  startSession,
  type TestStore,
} from '../vault/store/stores.ts'

const [A, B, C] = ['A', 'B', 'C'].map((name) => new Secret(`secret-${name}-of-the-tests-of-32-characters`))

type RunnableCommand = Exclude<Command, { kind: 'help' | 'version' | 'wrong' }>

/** An operator of a store in memory, whose clock moves by 300 ms each time it is read. */
function createOperator(t: Test, { hasIdentity = true, clientId = null as string | null } = {}) {
  const made = memoryStore(t)
  const [out, err] = [[], []] as [string[], string[]]
  const into = (lines: string[]) =>
    new Writable({
      highWaterMark: 64,
      write(chunk: Buffer, _encoding, done) {
        lines.push(...chunk.toString().split('\n').slice(0, -1))
        setImmediate(done)
      },
    })
  let clock = 0
  const elapsed = () => {
    clock += 300
    return clock
  }
  return {
    made,
    out,
    err,
    async run(command: RunnableCommand, sessionSecrets = [A!], store: SessionStore = made.store) {
      out.length = 0
      err.length = 0
      // These commands do not ask where the store is.
      const idleSeconds = IDLE_MS / 1_000
      const config = { idleSeconds, sessionSecrets, hasIdentity, clientId, platform: null } as never
      const streams = [into(out), into(err)] as const
      const terminal = createTerminal(...streams, elapsed)
      const clock = { wall: made.now, monotonic: () => performance.now() }
      try {
        return await runCommand(command, { store, config, terminal, clock })
      } finally {
        for (const stream of streams) await new Promise<void>((resolve) => stream.end(resolve))
      }
    },
  }
}

function sealFor(made: TestStore, key: RecordKey, secret: Secret, user: User | null): string {
  const tokens = {
    user,
    accessToken: new Secret('an-access-token'),
    refreshToken: new Secret('a-refresh-token'),
    expiresAt: made.now() + 3_600_000,
    lifeSeconds: 3_600,
  }
  return sealTokens(createKeyring([secret]), key, tokens)
}

async function sealedSession(made: TestStore, secret: Secret, user: User | null = null): Promise<RecordKey> {
  const key = newKey()
  const sealed = sealFor(made, key, secret, user)
  await made.store.create(key, newRecord(made.now(), { tokens: sealed }), 15_000)
  await made.store.confirm(key)
  return key
}

t.test('a session that a scan yields twice is counted once', async (t) => {
  const { made, run, out } = createOperator(t)
  for (let count = 0; count < 120; count += 1) await startSession(made)
  const twice: SessionStore = {
    ...made.store,
    async *keys() {
      for await (const keys of made.store.keys()) yield [...keys, ...keys.slice(0, 100)]
      yield* made.store.keys()
    },
  }
  t.ok(await run({ kind: 'count', json: false }, [], twice))
  t.strictSame(out, ['120'])
  await run({ kind: 'count', json: true }, [], twice)
  t.strictSame(out, ['{"sessions":120}'])
  await run({ kind: 'list', json: false, user: null }, [], twice)
  t.equal(out.length, 120)
})

t.test('a line shows the public facts of a session, in printable ASCII', async (t) => {
  const { made, run, out, err } = createOperator(t)
  const createdAt = made.now()
  const iso = (at: number) => new Date(at).toISOString()
  const key = await startSession(made, { client: 'the\u001b[31m \u009b31m app' })
  await made.pass(60_000)
  await made.store.touch(key)
  await run({ kind: 'list', json: false, user: null })
  const seenAt = made.now()
  const times = [createdAt, seenAt, seenAt + IDLE_MS].map(iso)
  t.strictSame(out, [[key, ...times, 'code', '1', 'the?[31m ?31m app', 'unbound'].join('  ')])
  t.strictSame(err, ['id  sign-in  last activity  idle end  flow  generation  client  device'])
  await run({ kind: 'list', json: true, user: null })
  t.strictSame(err, [])
  t.match(out[0], /^[\x20-\x7e]+$/, 'nothing that moves a terminal')
  t.strictSame(JSON.parse(out[0]!), {
    id: key,
    createdAt: iso(createdAt),
    lastSeenAt: iso(seenAt),
    idleExpiresAt: iso(seenAt + IDLE_MS),
    expiresAt: iso(createdAt + 43_200_000),
    flow: 'code',
    client: 'the\u001b[31m \u009b31m app',
    generation: 1,
    bound: false,
  })
})

t.test(
  'explain says that a refresh failed only after it has, and what follows only while the session lives',
  async (t) => {
    const { made, run, out } = createOperator(t)
    const key = await sealedSession(made, A!)
    const explained = async () => {
      await run({ kind: 'explain', id: key, json: false })
      return out.join('\n')
    }
    const begin = async (attempt: string) =>
      t.match(await made.store.beginRefresh(key, leaseRequest(attempt)), { kind: 'granted' })
    await begin('a')
    t.match(await explained(), /is refreshed before\.\nA refresh may be under way/)
    await made.pass(60_000)
    const lapsed = await explained()
    t.match(lapsed, /newest try to refresh failed/, 'its replica was killed')
    t.match(lapsed, /presented once without an answer.*a replica that was killed logged nothing/)
    await begin('b')
    t.match(await explained(), /newest try to refresh failed/, 'and one of another replica is under way')
    await made.store.releaseLease(key, { attempt: 'b', inDoubt: null, retryInMs: 5_000 })
    t.match(await explained(), /no refresh is tried before/)
    await made.pass(IDLE_MS)
    t.match(await explained(), /passed its idle limit/)
    t.notMatch(await explained(), /access token|refresh token/)
  },
)

t.test('list and explain say whether a session is bound to a device', async (t) => {
  const { made, run, out } = createOperator(t)
  const key = await startSession(made)
  const device = 'd'.repeat(86)
  const explained = async (json: boolean) => {
    await run({ kind: 'explain', id: key, json })
    return out.join('\n')
  }
  t.match(await explained(false), /not bound to a device: its browser has registered none/)
  await made.store.registerDevice(key, device)
  t.match(await explained(false), /registered a device and is yet to prove it/)
  t.match(JSON.parse(await explained(true)), { device: 'registered' })
  await made.store.bindDevice(key, device)
  t.match(await explained(false), /It is bound to the device of its browser/)
  t.match(JSON.parse(await explained(true)), { device: 'bound' })
  await run({ kind: 'list', json: false, user: null })
  t.match(out[0], / {2}bound$/)
  await run({ kind: 'list', json: true, user: null })
  t.match(JSON.parse(out[0]!), { bound: true })
  t.notOk(out.join().includes(device), 'and show no key')
})

t.test('the beginning of an id ends a session if no other id begins so', async (t) => {
  const { made, run, out, err } = createOperator(t)
  const keys = ['aa00', 'aa01', 'bb00'].map((beginning) => beginning + newKey().slice(4))
  for (const key of keys) await made.store.create(key, newRecord(made.now()), 15_000)
  const end = (id: string) => run({ kind: 'end', id, revokes: true })
  t.equal(await end('aa0'), false)
  t.match(err.join(), /2 sessions begin with aa0/)
  t.equal(await end('cc'), false)
  t.match(err.join(), /no session whose id begins with cc/)
  t.equal(await end('b'), true)
  t.strictSame(out, [`ended ${keys[2]}`])
  t.equal(await end(keys[0]!), true)
  t.equal(await end(keys[0]!), false)
  t.match(err.join(), /no session with the id/)
  t.not(await made.store.read(keys[1]!), null, 'and nobody else is ended')
})

t.test('end-all ends every session and reports its progress', async (t) => {
  const { made, run, out, err } = createOperator(t)
  for (let count = 0; count < 3_000; count += 1) await startSession(made)
  t.ok(await run({ kind: 'end_all', confirmed: true, revokes: true }))
  t.strictSame(out, ['ended 3000'])
  const notes = err.filter((line) => !line.startsWith('{'))
  t.equal(err.length - notes.length, 3_000, 'one line of the log for each session')
  t.ok(notes.length >= 2 && notes.length <= 4, `${notes.length} notes in about four seconds`)
  t.match(notes[0], /^\d+ sessions ended so far$/)
  await run({ kind: 'count', json: false })
  t.strictSame(out, ['0'])
})

t.test('older and unreadable seals are counted separately, and reseal replaces the older ones', async (t) => {
  const { made, run, out } = createOperator(t)
  const keys = { old: [] as RecordKey[], other: '' as RecordKey }
  for (let count = 0; count < 30; count += 1) keys.old.push(await sealedSession(made, A!))
  for (let count = 0; count < 20; count += 1) await sealedSession(made, B!)
  keys.other = await sealedSession(made, C!)
  const before = await made.store.read(keys.old[0]!)
  const other = await made.store.read(keys.other)

  await run({ kind: 'count_seals', json: false }, [B!, A!])
  t.strictSame(out, ['older 30', 'unreadable 1', 'newest 20'])
  await run({ kind: 'count_seals', json: true }, [A!, B!])
  t.strictSame(out, ['{"older":20,"unreadable":1,"newest":30}'])

  t.ok(await run({ kind: 'reseal', json: false }, [B!, A!]))
  t.strictSame(out, ['resealed 30', 'older 0', 'unreadable 1', 'newest 20'])
  await run({ kind: 'count_seals', json: true }, [B!])
  t.strictSame(out, ['{"older":0,"unreadable":1,"newest":50}'])
  const after = await made.store.read(keys.old[0]!)
  t.strictSame({ ...after, tokens: before!.tokens }, before, 'nothing else of the record changes')
  const opened = (secret: Secret, sealed: string) =>
    revealed(openTokens(createKeyring([secret]), keys.old[0]!, sealed)!.tokens)
  t.strictSame(opened(B!, after!.tokens), opened(A!, before!.tokens))
  t.strictSame(await made.store.read(keys.other), other, 'what cannot be read is left alone')
})

t.test('tokens that are replaced during reseal stay, and are read again', async (t) => {
  const { made, run, out } = createOperator(t)
  const key = await sealedSession(made, A!)
  const newer = sealFor(made, key, B!, null)
  const racing: SessionStore = {
    ...made.store,
    async reseal(...args) {
      await made.store.replaceTokens(key, { gen: 1, tokens: newer })
      return await made.store.reseal(...args)
    },
  }
  t.ok(await run({ kind: 'reseal', json: true }, [B!, A!], racing))
  t.match(JSON.parse(out[0]!), { resealed: 0, older: 0, newest: 1 })
  t.match(await made.store.read(key), { gen: 2, tokens: newer })
  const tries: RecordKey[] = []
  const gone = newKey()
  const never: SessionStore = {
    ...made.store,
    async *keys() {
      yield* made.store.keys()
      // It ends between the scan and the read.
      yield [gone]
    },
    async reseal(key) {
      tries.push(key)
      return false
    },
  }
  const faster = await sealedSession(made, A!)
  t.equal(await run({ kind: 'reseal', json: true }, [B!, A!], never), false, 'it says where some stay')
  t.match(JSON.parse(out[0]!), { resealed: 0, older: 1, unreadable: 0 })
  t.strictSame(tries, [faster, faster, faster], 'those that are replaced faster are given up')
})

t.test('after 20 failures in a row no further revocation is sent, and the rest is counted', async (t) => {
  let asked = 0
  let failure: { reason: string; isDefinite: boolean } | null = { reason: 'down', isDefinite: false }
  const down = failure
  const revoke = async () => {
    asked += 1
    return failure
  }
  const counted = countRevocation({ revoke })
  for (let count = 0; count < 100; count += 1)
    await counted.authorizationClient.revoke(new Secret('token'), 'access_token')
  t.equal(asked, 20)
  t.equal(counted.unrevoked(), 100)

  const mixed = countRevocation({ revoke })
  for (let count = 0; count < 100; count += 1) {
    failure = count % 10 === 0 ? null : down
    await mixed.authorizationClient.revoke(new Secret('token'), 'access_token')
  }
  t.equal(mixed.unrevoked(), 90)
  t.equal(asked, 120, 'one that works now and then is asked each time')
})

t.test('the sessions of a user are listed and ended by the whole id', async (t) => {
  const { made, run, out, err } = createOperator(t)
  const user = (id: string): User => ({ id, name: 'Alice' })
  const ofAlice = [await sealedSession(made, A!, user('alice')), await sealedSession(made, A!, user('alice'))]
  const others = [await sealedSession(made, A!, user('alice2')), await sealedSession(made, A!, user('bob'))]

  t.notOk(await run({ kind: 'list', json: false, user: 'ali' }), 'nobody has this id')
  t.match(err, ['There is no session of the user ali.'])
  t.ok(await run({ kind: 'list', json: true, user: 'alice' }))
  t.strictSame(out.map((line) => (JSON.parse(line) as { id: string }).id).sort(), [...ofAlice].sort())

  t.ok(await run({ kind: 'end_user', user: 'alice', revokes: false }))
  t.strictSame(out, ['ended 2'])
  for (const key of ofAlice) t.equal(await made.store.read(key), null)
  for (const key of others) t.ok(await made.store.read(key))
})

t.test('explain says whose a session is, and when it ends without activity', async (t) => {
  const { made, run, out } = createOperator(t)
  const iso = (at: number) => new Date(at).toISOString()
  for (const [name, words] of [
    ['Alice', 'It belongs to the user a-1 (Alice).'],
    [null, 'It belongs to the user a-1.'],
  ] as const) {
    const id = await sealedSession(made, A!, { id: 'a-1', name })
    await made.pass(60_000)
    await made.store.touch(id)
    const idleEnd = iso(made.now() + IDLE_MS)
    t.ok(await run({ kind: 'explain', json: false, id }))
    const text = out.join('\n')
    t.match(text, words)
    t.match(
      text,
      `last active at ${iso(made.now())}. Without activity it ends at ${idleEnd}, in any case at `,
    )
    t.ok(await run({ kind: 'explain', json: true, id }))
    t.match(JSON.parse(out[0]!), { user: { id: 'a-1', name }, idleExpiresAt: idleEnd })
  }
})

t.test('explain says that a session of another CLIENT_ID ends with its access token', async (t) => {
  for (const [clientId, says, otherClient] of [
    [
      'another',
      /CLIENT_ID is now another client, which cannot refresh it, so the session ends then\.$/,
      true,
    ],
    ['app', /and is refreshed before\.$/, false],
    [null, /and is refreshed before\.$/, false],
  ] as const) {
    const { made, run, out } = createOperator(t, { clientId })
    const id = await sealedSession(made, A!)
    const tokenEnd = new Date(made.now() + 3_600_000).toISOString()
    t.ok(await run({ kind: 'explain', json: false, id }))
    t.match(out.at(-1), says)
    t.ok(await run({ kind: 'explain', json: true, id }))
    const facts = JSON.parse(out[0]!)
    t.match(facts, { otherClient, refreshable: !otherClient, accessTokenExpiresAt: tokenEnd })
    t.equal(facts.expiresAt === tokenEnd, otherClient, 'its absolute limit')
  }
})

t.test('a session of no known user may be of the user, so the command is not done', async (t) => {
  const { made, run, out, err } = createOperator(t)
  await sealedSession(made, A!, { id: 'alice', name: null })
  const unknown = await sealedSession(made, A!)
  t.notOk(await run({ kind: 'list', json: false, user: 'alice' }))
  t.equal(out.length, 1)
  t.notOk(await run({ kind: 'end_user', user: 'alice', revokes: false }))
  t.strictSame(out, ['ended 1'])
  t.strictSame(err.at(-1), "1 sessions have no known user: they may be this user's.")
  t.ok(await made.store.read(unknown), 'it goes on')
})

t.test('without an identity the users in the records count, and the command says so', async (t) => {
  const { made, run, out, err } = createOperator(t, { hasIdentity: false })
  await sealedSession(made, A!, { id: 'alice', name: null })
  t.ok(await run({ kind: 'list', json: false, user: 'alice' }))
  out.length = 0
  await sealedSession(made, A!)
  t.notOk(await run({ kind: 'end_user', user: 'alice', revokes: false }))
  t.strictSame(out, ['ended 1'])
  t.match(err.join('\n'), /OPERATIONS_FILE has no identity/)
  t.match(err.at(-1), '1 sessions have no known user')
})

t.test('a session that no secret opens may be of the user, so the command is not done', async (t) => {
  const { made, run, out, err } = createOperator(t)
  await sealedSession(made, A!, { id: 'alice', name: null })
  await sealedSession(made, B!, { id: 'alice', name: null })
  t.notOk(await run({ kind: 'list', json: false, user: 'alice' }))
  t.equal(out.length, 1)
  t.match(err, [/^id {2}sign-in/, /^1 sessions cannot be opened/])
  t.notOk(await run({ kind: 'list', json: false, user: 'bob' }))
  t.notOk(await run({ kind: 'end_user', user: 'alice', revokes: false }))
  t.strictSame(out, ['ended 1'])
})
