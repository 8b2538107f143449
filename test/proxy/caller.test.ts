import t, { type Test } from 'tap'
import { problem } from '../../src/errors.ts'
import { createKeyring } from '../../src/keyring.ts'
import { type Caller, createCallers } from '../../src/proxy/caller.ts'
import { Secret } from '../../src/secret.ts'
import { createSessionCache } from '../../src/session/cache.ts'
import { createSessionCookies } from '../../src/session/cookies.ts'
import type { LiveSession } from '../../src/session/session.ts'
import { createMemoryStore } from '../../src/store/memory/store.ts'
import { createMovableClock } from '../helpers/clock.ts'
import { newRecord } from '../store/stores.ts'

const IDLE_MS = 7_200_000
const HOUR_MS = 3_600_000
const REQUEST = { reqId: 'a-request', address: '203.0.113.9' }

/** One signed-in browser, whose session is always found as it was at the start. */
function start(t: Test) {
  const clock = createMovableClock()
  const store = createMemoryStore({ now: clock.wall, idleMs: IDLE_MS })
  t.teardown(() => store.close())
  const keyring = createKeyring([new Secret('the-first-secret-of-the-tests-of-32-characters')])
  const cookies = createSessionCookies({ keyring, publicUrl: 'http://localhost', secure: false })
  const now = clock.wall()
  const counters = { gen: 1, doubts: 0, leaseUntil: 0, retryAt: 0, replacedAt: now }
  const record = { ...newRecord(now), ...counters, seenAt: now, idleEndsAt: now + IDLE_MS }
  let touches = 0
  let obtained = 0
  let lifeMs = HOUR_MS
  const session = (key: string): LiveSession => ({
    key,
    record,
    tokens: {
      accessToken: new Secret('at-1'),
      refreshToken: new Secret('rt-1'),
      lifeSeconds: lifeMs / 1_000,
      expiresAt: clock.wall() + lifeMs,
      scope: null,
    },
  })
  const callers = createCallers({
    cookies,
    cache: createSessionCache<Caller>({ store, max: 10 }),
    store,
    sessions: {
      find: async (key) => ({ kind: 'live', session: session(key) }),
      touch() {
        touches += 1
      },
      end: async () => true,
    },
    tokens: {
      async obtainAccessToken(found) {
        obtained += 1
        return { kind: 'token', session: found }
      },
    },
    timing: { aheadSeconds: 300, thresholdSeconds: 30 },
    idleMs: IDLE_MS,
    clock,
    observe: () => {},
  })
  const cookie = `session=${cookies.sign(cookies.newSessionId())}`
  return {
    callers,
    clock,
    cookie,
    touches: () => touches,
    obtained: () => obtained,
    /** Tokens found from now on live so long. */
    liveFor(ms: number): void {
      lifeMs = ms
    },
    find: () => callers.find(cookie, () => {}, REQUEST),
  }
}

t.test('a caller stays cached until its token is needed, and for a minute at most', async (t) => {
  const { callers, clock, cookie, find, liveFor } = start(t)
  t.equal(callers.cached(cookie), null)
  await find()
  clock.pass(59_000)
  t.not(callers.cached(cookie), null)
  clock.pass(1_000)
  t.equal(callers.cached(cookie), null)
  liveFor(40_000)
  await find()
  clock.pass(9_000)
  t.not(callers.cached(cookie), null)
  clock.pass(21_000)
  t.equal(callers.cached(cookie), null)
})

for (const hours of [1, -1]) {
  t.test(`a step of the wall clock by ${hours} h does not change that`, async (t) => {
    const { callers, clock, cookie, find } = start(t)
    await find()
    clock.step(hours * HOUR_MS)
    clock.pass(59_000)
    t.not(callers.cached(cookie), null)
    clock.pass(1_000)
    t.equal(callers.cached(cookie), null)
  })
}

t.test('activity is noted once a minute, even if the wall clock is set back', async (t) => {
  const { callers, clock, cookie, find, touches } = start(t)
  await find()
  t.equal(touches(), 0, 'the record has it')
  clock.pass(59_000)
  t.not(callers.cached(cookie), null)
  t.equal(touches(), 0)
  clock.step(-HOUR_MS)
  for (let minute = 1; minute <= 5; minute += 1) {
    await find()
    for (let call = 0; call < 10; call += 1) callers.cached(cookie)
    t.equal(touches(), minute)
    clock.pass(60_000)
  }
})

t.test('a session that the request may not use obtains no token', async (t) => {
  const { callers, cookie, obtained } = start(t)
  const refuse = () => {
    throw problem('wac_not_allowed')
  }
  await t.rejects(callers.find(cookie, refuse, REQUEST), { code: 'wac_not_allowed' })
  t.equal(obtained(), 0)
  await t.rejects(callers.find(undefined, refuse, REQUEST), { code: 'login_required' }, 'without a session')
})

t.test('a token expires by the monotonic clock, whatever the wall clock says', async (t) => {
  const { callers, clock, find, liveFor } = start(t)
  liveFor(10_000)
  const caller = await find()
  clock.step(HOUR_MS)
  t.notOk(callers.hasExpired(caller))
  clock.step(-2 * HOUR_MS)
  clock.pass(10_001)
  t.ok(callers.hasExpired(caller))
})
