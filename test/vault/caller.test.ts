import t, { type Test } from 'tap'
import { createSessionCookies, recordKeyOf } from '../../src/http/cookies.ts'
import { createKeyring } from '../../src/keyring.ts'
import { Secret } from '../../src/secret.ts'
import { createSessionCache, reportWrites } from '../../src/vault/cache.ts'
import { type Caller, createCallers } from '../../src/vault/caller.ts'
import type { Access } from '../../src/vault/refresh/renewals.ts'
import type { Found, LiveSession } from '../../src/vault/session.ts'
import { createMemoryStore } from '../../src/vault/store/memory/store.ts'
import { StoreUnavailable } from '../../src/vault/store/store.ts'
import { newRecord } from './store/stores.ts'

const IDLE_MS = 7_200_000
const HOUR_MS = 3_600_000
const TRUST_MS = 1_000
const REQUEST = { reqId: 'a-request', address: '203.0.113.9' }
const CALLER = { request: REQUEST, skipped: false }

/** A replica with one signed-in browser, over a store in memory that other replicas use as well. */
async function start(t: Test) {
  let wall = 1_800_000_000_000
  let monotonic = 5_000
  /** Clocks that only the test moves. */
  const clock = {
    wall: () => wall,
    monotonic: () => monotonic,
    step(ms: number): void {
      wall += ms
    },
    pass(ms: number): void {
      wall += ms
      monotonic += ms
    },
  }
  const store = createMemoryStore({ now: clock.wall, idleMs: IDLE_MS })
  t.teardown(() => store.close())
  const keyring = createKeyring([new Secret('the-first-secret-of-the-tests-of-32-characters')])
  const cookies = createSessionCookies({ keyring, publicUrl: 'http://localhost', secure: false })
  const sessionId = cookies.newSessionId()
  const key = recordKeyOf(sessionId)
  await store.create(key, newRecord(wall), 15_000)
  await store.confirm(key)
  const counts = { full: 0, small: 0, touches: 0, obtained: 0 }
  const looked: string[] = []
  const state = {
    lifeMs: HOUR_MS,
    refusesWrites: false,
    obtain: async (session: LiveSession): Promise<Access> => ({ kind: 'token', session }),
  }
  const issuedAt = wall
  async function look(): Promise<Found> {
    counts.full += 1
    const record = await store.read(key)
    if (record === null) return { kind: 'ended', reason: 'logout', at: wall }
    const tokens = {
      accessToken: new Secret(`at-${record.gen}`),
      refreshToken: new Secret(`rt-${record.gen}`),
      lifeSeconds: state.lifeMs / 1_000,
      expiresAt: issuedAt + state.lifeMs,
    }
    return { kind: 'live', session: { key, record, tokens } }
  }
  const cache = createSessionCache<Caller>({ max: 10, trustMs: TRUST_MS, monotonic: clock.monotonic })
  const callers = createCallers({
    cookies,
    binding: null,
    cache,
    trustMs: TRUST_MS,
    sessions: {
      look,
      async readState() {
        counts.small += 1
        return await store.readState(key)
      },
      async stay() {
        counts.touches += 1
        if (state.refusesWrites) throw new StoreUnavailable(new Error('no writes'))
        return await store.touch(key)
      },
      end: async () => true,
    },
    tokens: {
      async obtainAccessToken(session) {
        counts.obtained += 1
        return await state.obtain(session)
      },
    },
    timing: { aheadSeconds: 300, thresholdSeconds: 30 },
    idleMs: IDLE_MS,
    clock,
    observe: (result) => void looked.push(result),
  })
  const cookie = `session=${cookies.sign(sessionId)}`
  return {
    ...{ callers, clock, cookie, counts, key, looked, state, store },
    /** The store as this replica writes to it. */
    own: reportWrites(store, cache.drop),
    /** As a route does it: from memory, else from the store. */
    async call() {
      const caller = callers.cached(cookie) ?? (await callers.find(cookie, CALLER))
      callers.noteActivity(caller)
      return caller
    },
    /** Replaces the tokens as another replica does. */
    refresh: () => store.replaceTokens(key, { gen: 1, tokens: 'sealed-2' }),
    end: () => store.end(key, { reason: 'logout' }),
  }
}

t.test('a session is served from memory for SESSION_CACHE_MS, then a small read proves it', async (t) => {
  const { call, callers, clock, cookie, counts, looked } = await start(t)
  t.equal(callers.cached(cookie), null)
  const first = await call()
  t.strictSame([counts.full, counts.small], [1, 0])
  clock.pass(999)
  t.equal(await call(), first)
  clock.pass(1)
  t.equal(callers.cached(cookie), null)
  t.equal(await call(), first, 'its opened token is used again')
  t.strictSame([counts.full, counts.small], [1, 1])
  clock.pass(999)
  t.equal(await call(), first)
  t.strictSame(looked, ['miss', 'hit', 'revalidated', 'hit'])
})

t.test('a sign-out on one replica ends the session on the others within SESSION_CACHE_MS', async (t) => {
  const { call, clock, counts, end } = await start(t)
  await call()
  clock.pass(1)
  await end()
  clock.pass(TRUST_MS - 2)
  await call()
  t.equal(counts.small, 0, 'the read that proves it was sent 999 ms ago')
  clock.pass(1)
  await t.rejects(call(), { code: 'login_required', detail: /signing out/ })
  await t.rejects(call(), { code: 'login_required' }, 'and it stays so')
})

t.test('trust counts from the sending of a read, and not from its reply', async (t) => {
  const { call, callers, clock, cookie, store } = await start(t)
  await call()
  clock.pass(TRUST_MS)
  const { readState } = store
  store.readState = async (key) => {
    const shown = await readState(key)
    clock.pass(700)
    return shown
  }
  await call()
  store.readState = readState
  clock.pass(299)
  t.not(callers.cached(cookie), null)
  clock.pass(1)
  t.equal(callers.cached(cookie), null)
})

t.test('a call that has waited for a new token asks again before it is sent', async (t) => {
  const { call, clock, counts, end, refresh, state } = await start(t)
  state.lifeMs = 20_000
  clock.pass(15_000)
  state.obtain = async (session) => {
    await refresh()
    clock.pass(9_000)
    return { kind: 'token', session: { ...session, record: { ...session.record, gen: 2 } } }
  }
  t.equal((await call()).gen, 2)
  t.strictSame([counts.full, counts.small], [1, 1])
  state.obtain = async (session) => {
    await end()
    return { kind: 'token', session }
  }
  clock.pass(TRUST_MS)
  await t.rejects(call(), { code: 'login_required' }, 'it ended meanwhile')
})

t.test('a caller that has waited elsewhere is proven again, or renewed, or refused', async (t) => {
  const { call, callers, clock, counts, end, refresh } = await start(t)
  const caller = await call()
  t.ok(callers.isProven(caller))
  clock.pass(TRUST_MS)
  t.notOk(callers.isProven(caller))
  t.equal(await callers.prove(caller), true)
  t.ok(callers.isProven(caller))
  t.equal(counts.full, 1)
  await refresh()
  clock.pass(TRUST_MS)
  t.equal(await callers.prove(caller), false)
  t.equal((await callers.current(caller, REQUEST)).gen, 2)
  await end()
  clock.pass(TRUST_MS)
  t.equal(await callers.prove(caller), false)
  await t.rejects(callers.current(caller, REQUEST), { code: 'login_required' })
})

const ENDS = {
  'a sign-out': { reason: 'logout' },
  'a refused grant': { reason: 'refused', gen: 1 },
} as const
for (const [name, end] of Object.entries(ENDS)) {
  t.test(`after ${name} on this replica no call that waits leaves without another look`, async (t) => {
    const { call, callers, counts, key, own } = await start(t)
    const caller = await call()
    await own.touch(key)
    t.ok(callers.isProven(caller), 'activity is no end')
    await own.end(key, end)
    t.notOk(callers.isProven(caller), 'although no time has passed')
    t.equal(await callers.prove(caller), false)
    await t.rejects(callers.current(caller, REQUEST), { code: 'login_required' })
    t.equal(counts.full, 2)
  })
}

t.test(
  'after a limit or a new token on this replica no call that waits leaves without another look',
  async (t) => {
    const { call, callers, clock, key, own } = await start(t)
    const caller = await call()
    await own.replaceTokens(key, { gen: 1, tokens: 'sealed-2' })
    t.notOk(callers.isProven(caller))
    t.equal(await callers.prove(caller), false)
    const renewed = await callers.current(caller, REQUEST)
    t.notOk(callers.isProven(caller), 'nor with the older token once the newer one is known')
    t.ok(callers.isProven(renewed))
    clock.pass(IDLE_MS)
    await callers.prove(renewed)
    t.match(await own.end(key, { reason: 'idle', ifLimitPassed: true }), { kind: 'ended' })
    t.notOk(callers.isProven(renewed))
  },
)

t.test('a token that is due is not served from memory', async (t) => {
  const { call, callers, clock, cookie, counts, state } = await start(t)
  state.lifeMs = 40_000
  await call()
  for (let seconds = 0; seconds < 9; seconds += 1) {
    clock.pass(1_000)
    await call()
  }
  t.equal(counts.obtained, 0)
  clock.pass(999)
  await call()
  clock.pass(21_000)
  t.equal(callers.cached(cookie), null)
  await call()
  t.equal(counts.obtained, 1)
})

t.test('no step of the wall clock changes how long a session or its token is trusted', async (t) => {
  for (const hours of [1, -1]) {
    const { call, callers, clock, cookie, state } = await start(t)
    state.lifeMs = 60_000
    const caller = await call()
    clock.step(hours * HOUR_MS)
    clock.pass(999)
    t.not(callers.cached(cookie), null)
    clock.pass(1)
    t.equal(callers.cached(cookie), null)
    t.notOk(callers.hasExpired(caller))
    clock.pass(59_001)
    t.ok(callers.hasExpired(caller))
  }
})

t.test('activity is noted once a minute, even if the wall clock is set back', async (t) => {
  const { call, clock, counts } = await start(t)
  await call()
  t.equal(counts.touches, 0, 'the record has it')
  clock.pass(59_000)
  await call()
  t.equal(counts.touches, 0)
  clock.step(-HOUR_MS)
  clock.pass(1_000)
  for (let minute = 1; minute <= 5; minute += 1) {
    for (let call_ = 0; call_ < 10; call_ += 1) await call()
    t.equal(counts.touches, minute)
    clock.pass(60_000)
  }
})

t.test('activity that is recorded during a read needs no other read, and ends no session', async (t) => {
  const { call, clock, counts, key, own, store } = await start(t)
  await call()
  clock.pass(60_000)
  const { readState } = store
  store.readState = async () => {
    const shown = await readState(key)
    await own.touch(key)
    return shown
  }
  await call()
  t.equal(counts.small, 1)
  store.readState = readState
  // By what the read has shown, the session is idle now.
  clock.pass(IDLE_MS - 60_000)
  await call()
})

t.test('activity that another replica has recorded is not recorded again', async (t) => {
  const { call, clock, counts, key, store } = await start(t)
  await call()
  clock.pass(59_000)
  await store.touch(key)
  clock.pass(2_000)
  await call()
  t.equal(counts.touches, 0)
})

t.test('activity that the store does not take is lost, and follows after one interval', async (t) => {
  const { call, clock, counts, state } = await start(t)
  await call()
  state.refusesWrites = true
  clock.pass(60_000)
  await call()
  t.equal(counts.touches, 1)
  state.refusesWrites = false
  for (let seconds = 1; seconds < 60; seconds += 1) {
    clock.pass(1_000)
    await call()
  }
  t.equal(counts.touches, 1)
  clock.pass(1_000)
  await call()
  t.equal(counts.touches, 2)
})

t.test('a session that looks idle is found in full, so that the clock of the store decides', async (t) => {
  const { call, clock, counts } = await start(t)
  await call()
  clock.step(IDLE_MS - 1_000)
  clock.pass(TRUST_MS)
  counts.full = 0
  await call()
  t.equal(counts.full, 1)
})
