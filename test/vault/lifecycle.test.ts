import t, { type Test } from 'tap'
import { createKeyring } from '../../src/keyring.ts'
import { createLog } from '../../src/log.ts'
import { Secret } from '../../src/secret.ts'
import { createEndSession, createSessions } from '../../src/vault/lifecycle.ts'
import { type EndReason, sealTokens, type TokenSet } from '../../src/vault/session.ts'
import { createMemoryStore } from '../../src/vault/store/memory/store.ts'
import { createOutbox } from '../../src/vault/store/outbox.ts'
import type { RecordKey, SessionRecord } from '../../src/vault/store/record.ts'
import { type SessionStore, StoreUnavailable } from '../../src/vault/store/store.ts'
import { createMovableClock } from '../helpers/clock.ts'
import { until } from '../helpers/wait.ts'
import { leaseRequest, newKey, newRecord } from './store/stores.ts'

const IDLE_MS = 60_000
const MAX_MS = 600_000

/** The sessions of one process over a store in memory whose failures the test controls. */
function start(t: Test) {
  const clock = createMovableClock()
  const memory = createMemoryStore({ now: clock.wall, idleMs: IDLE_MS })
  t.teardown(() => memory.close())
  const state = { isDown: false }
  const failing = <Args extends unknown[], Result>(run: (...args: Args) => Promise<Result>) => {
    return async (...args: Args): Promise<Result> => {
      if (state.isDown) throw new StoreUnavailable(new Error('down'))
      return await run(...args)
    }
  }
  const base: SessionStore = {
    ...memory,
    create: failing(memory.create),
    end: failing(memory.end),
    readEnd: failing(memory.readEnd),
  }
  const lines: string[] = []
  const log = createLog('info', { write: (line: string) => void lines.push(line) })
  const store = createOutbox({
    store: base,
    clock,
    log,
    onRetried() {},
    onRestored() {},
  })
  t.teardown(() => store.drainPendingTokens())
  const ended: EndReason[] = []
  const revoked: TokenSet[] = []
  const keyring = createKeyring([new Secret('a-secret-of-this-test-of-32-characters')])
  const sessionsOf = (clientId: string) =>
    createSessions({
      store,
      keyring,
      idleMs: IDLE_MS,
      maxMs: MAX_MS,
      clientId,
      clock,
      log,
      schedule: async (key) => await memory.schedule(key, 1_000),
      revoke: (tokens) => void revoked.push(tokens),
      onEnded: ({ reason }) => void ended.push(reason),
    })
  return {
    sessionsOf,
    clock,
    memory,
    base,
    keyring,
    state,
    sessions: sessionsOf('the app'),
    ended,
    lines,
    revoked,
    granted: (lifeMs = 300_000) => ({
      accessToken: new Secret('at'),
      refreshToken: new Secret('rt'),
      lifeSeconds: lifeMs / 1_000,
      expiresAt: clock.wall() + lifeMs,
      scope: null,
    }),
    async idle(): Promise<RecordKey> {
      const key = newKey()
      await memory.create(key, newRecord(clock.wall() - IDLE_MS), 15_000)
      await memory.confirm(key)
      return key
    },
  }
}

t.test('an end by a limit is logged with the request that found it, if one did', async (t) => {
  const { clock, sessions, lines, idle } = start(t)
  clock.pass(10_000)
  const [asked, noticed] = [await idle(), await idle()]
  await sessions.look(asked, { reqId: 'request-1', address: '203.0.113.9' })
  await sessions.look(noticed)
  const [first, second] = lines.map((line) => JSON.parse(line) as Record<string, unknown>)
  t.match(first, {
    event: 'session.ended',
    reason: 'idle',
    recordKey: asked.slice(0, 12),
    reqId: 'request-1',
    address: '203.0.113.9',
  })
  t.match(second, { event: 'session.ended', reason: 'idle', recordKey: noticed.slice(0, 12) })
  t.notMatch(second, { reqId: /./ })
})

t.test(
  'a new session is in the due queue before it has a record, and lives 15 seconds unless confirmed',
  async (t) => {
    const { clock, memory, sessions, granted } = start(t)
    const [kept, dropped] = [newKey(), newKey()]
    const at = clock.wall()
    const made = await sessions.begin(kept, granted(), 'code')
    await sessions.begin(dropped, granted(), 'password')
    t.equal(await memory.queueLength(), 2)
    const { createdAt, idleEndsAt, endsAt, flow } = made.record
    t.ok(createdAt >= at && createdAt <= clock.wall())
    t.strictSame([idleEndsAt, endsAt, flow], [createdAt + IDLE_MS, createdAt + MAX_MS, 'code'])
    t.match(await memory.read(kept), { createdAt, idleEndsAt, endsAt, client: 'the app' })
    t.equal(await memory.confirm(kept), true)
    clock.pass(15_000)
    t.equal((await sessions.look(kept)).kind, 'live')
    t.strictSame(await sessions.look(dropped), { kind: 'ended', reason: null, at: null })
  },
)

t.test('the end of the refresh token is kept with it, and replaced with it', async (t) => {
  const { clock, memory, sessions, granted } = start(t)
  const key = newKey()
  const [first, second, third] = [20_000, 40_000, 60_000].map((ms) => clock.wall() + ms)
  await sessions.begin(key, { ...granted(), refreshExpiresAt: first! }, 'code')
  await memory.confirm(key)
  const kept = async () => {
    const found = await sessions.look(key)
    if (found.kind !== 'live') throw new Error(found.kind)
    const { refreshToken, refreshExpiresAt } = found.session.tokens
    return { found: found.session, kept: [refreshToken?.reveal(), refreshExpiresAt] }
  }
  t.strictSame((await kept()).kept, ['rt', first])
  const answers = [
    { answer: { refreshToken: null, refreshExpiresAt: null }, expected: ['rt', first] },
    { answer: { refreshToken: null }, expected: ['rt', first] },
    { answer: { refreshToken: null, refreshExpiresAt: second! }, expected: ['rt', second] },
    { answer: { refreshToken: new Secret('rt-2'), refreshExpiresAt: third! }, expected: ['rt-2', third] },
    { answer: { refreshToken: new Secret('rt-3') }, expected: ['rt-3', null] },
  ]
  for (const { answer, expected } of answers) {
    await sessions.replaceTokens((await kept()).found, { ...granted(), ...answer })
    t.strictSame((await kept()).kept, expected)
  }
})

t.test(
  'after a change of CLIENT_ID a session lasts as long as its access token, and presents nothing',
  async (t) => {
    const { clock, memory, sessions, sessionsOf, ended, revoked, granted } = start(t)
    const key = newKey()
    const tokens = granted(30_000)
    await sessions.begin(key, tokens, 'code')
    await memory.confirm(key)
    const others = sessionsOf('another client')
    t.match(await others.look(key), {
      kind: 'live',
      session: { tokens: { refreshToken: null }, record: { endsAt: tokens.expiresAt } },
    })
    t.match(await sessions.look(key), { kind: 'live', session: { tokens: { refreshToken: {} } } })
    clock.pass(30_000)
    t.match(await others.look(key), { kind: 'ended', reason: 'absolute', at: tokens.expiresAt })
    t.equal((await sessions.look(key)).kind, 'ended')
    t.strictSame([ended, revoked], [['absolute'], []])
  },
)

t.test(
  'a replica with another CLIENT_ID does not end a session that an earlier replica has just refreshed',
  async (t) => {
    const { base, clock, memory, keyring, sessions, sessionsOf, ended, granted } = start(t)
    const key = newKey()
    await sessions.begin(key, granted(30_000), 'code')
    await memory.confirm(key)
    clock.pass(30_000)
    const newer = granted(30_000)
    base.read = async (key) => {
      const record = await memory.read(key)
      const refresh = { gen: 1, tokens: sealTokens(keyring, key, newer) }
      await memory.replaceTokens(key, refresh)
      return record
    }
    t.match(await sessionsOf('another client').look(key), {
      kind: 'live',
      session: { record: { gen: 2, endsAt: newer.expiresAt } },
    })
    t.strictSame(ended, [])
  },
)

t.test(
  'an abandoned session ends as soon as the store accepts it, and is not counted as an end',
  async (t) => {
    const { base, memory, state, sessions, ended, revoked, granted } = start(t)
    const key = newKey()
    await sessions.begin(key, granted(), 'code')
    state.isDown = true
    sessions.abandon(key)
    await new Promise((resolve) => setImmediate(resolve))
    t.not(await memory.read(key), null)
    state.isDown = false
    await until('it has ended', async () => (await memory.read(key)) === null)
    t.strictSame(ended, [])
    t.strictSame(revoked, [], 'the caller revokes its tokens')
    // A programming error leaves no unhandled rejection.
    base.end = () => Promise.reject(new TypeError())
    sessions.abandon(newKey())
    await new Promise((resolve) => setImmediate(resolve))
  },
)

t.test('the end of a session is counted once, revokes its tokens and removes its queue entry', async (t) => {
  const { memory, state, sessions, ended, revoked, granted } = start(t)
  const key = newKey()
  await sessions.begin(key, granted(), 'code')
  t.equal(await sessions.end(key, 'logout', { gen: 7 }), false, 'the tokens are of another generation')
  t.equal(await sessions.end(key, 'logout'), true)
  t.equal(await sessions.end(key, 'logout'), false)
  t.strictSame(ended, ['logout'])
  t.strictSame(
    revoked.map(({ accessToken, refreshToken }) => [accessToken.reveal(), refreshToken?.reveal()]),
    [['at', 'rt']],
  )
  t.equal(await memory.queueLength(), 0)
  t.match(await sessions.look(key), { kind: 'ended', reason: 'logout', at: Number })
  state.isDown = true
  t.strictSame(await sessions.look(key), { kind: 'ended', reason: null, at: null }, 'the reason is not known')
})

t.test('a session whose tokens no configured secret opens is kept', async (t) => {
  const { memory, clock, keyring, sessions, ended } = start(t)
  const key = newKey()
  await memory.create(key, newRecord(clock.wall()), 15_000)
  t.strictSame(await sessions.look(key), { kind: 'unreadable' })
  t.not(await memory.read(key), null)
  t.equal(await sessions.end(key, 'logout'), true, 'it can be ended')
  t.strictSame(ended, ['logout'])

  const seen: string[] = []
  const end = createEndSession({
    store: memory,
    keyring,
    log: createLog('silent'),
    revoke: () => void seen.push('revoked'),
    onEnded: () => void seen.push('ended'),
    onUnreadable: () => void seen.push('unreadable'),
  })
  await memory.create(key, newRecord(clock.wall()), 15_000)
  t.equal(await end(key, 'operator'), true)
  t.strictSame(seen, ['ended', 'unreadable'], 'an operator is told')
})

t.test('a refused session ends unless its tokens or its lease are of another attempt', async (t) => {
  const { memory, sessions, ended, revoked, granted } = start(t)
  const [replaced, held, free, gone] = [newKey(), newKey(), newKey(), newKey()]
  for (const key of [replaced, held, free, gone]) await sessions.begin(key, granted(), 'code')
  const record = async (key: RecordKey) => (await memory.read(key))!
  const refuse = (key: RecordKey, record: SessionRecord) =>
    sessions.endRefused({ key, record, tokens: granted() }, { attempt: 'mine', reason: 'invalid_grant' })

  const before = await record(replaced)
  await memory.replaceTokens(replaced, { gen: 1, tokens: before.tokens })
  t.equal(await refuse(replaced, before), 'precondition_failed')
  await memory.beginRefresh(held, leaseRequest('of another replica'))
  t.equal(await refuse(held, await record(held)), 'precondition_failed')
  const last = await record(gone)
  await memory.end(gone)
  t.equal(await refuse(gone, last), 'gone')
  t.strictSame(ended, [])

  await memory.beginRefresh(free, leaseRequest('mine'))
  t.equal(await refuse(free, await record(free)), 'ended')
  t.strictSame(ended, ['refused'])
  t.equal((await memory.readEnd(free))?.reason, 'refused')
  t.strictSame(revoked, [], 'the authorization server already refused them')
})
