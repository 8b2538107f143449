import { isDeepStrictEqual } from 'node:util'
import t from 'tap'
import {
  type Answered,
  type BeginRefreshRequest,
  END_KEPT_MS,
  type EndRequest,
  type NewRecord,
  RECORD_SLACK_MS,
  type RecordState,
  recordMembers,
  unexpired,
} from '../../../src/vault/store/record.ts'
import { IDLE_MS, leaseRequest, newRecord } from './stores.ts'

// The rules of a record, which every store runs.

const LONG = 60_000
const NOW = 1_800_000_000_000
const KEY = ''

/** The record of one confirmed session, by a clock that only the test moves. */
async function start(changes: Partial<NewRecord> = {}) {
  const server = { now: NOW, history: 'a', idleMs: IDLE_MS }
  let state: RecordState = { record: null, end: null }
  const members = recordMembers(
    async (_key, _member, step) => {
      const [after, reply] = step(unexpired(state, server.now), server)
      state = after
      return reply
    },
    () => server.now,
  )
  await members.create(KEY, newRecord(NOW, changes), 15_000)
  await members.confirm(KEY)
  return {
    ...members,
    server,
    state: () => state,
    /** Gives fields other values, as of a server that has not received the latest writes. */
    set(fields: object) {
      state = { ...state, record: { ...state.record!, ...fields } }
    },
  }
}

type Session = Awaited<ReturnType<typeof start>>
type Call = (session: Session) => unknown
/** A call, and the pattern that its result matches. */
type Step = [call: Call, result?: unknown]

const begin =
  (attempt: string, request: Partial<BeginRefreshRequest> = {}): Call =>
  ({ beginRefresh }) =>
    beginRefresh(KEY, leaseRequest(attempt, request))

/** Releases the lease; with `doubts`, as a presentation in doubt. */
const release =
  (
    attempt: string,
    {
      retryInMs = 0,
      doubts = 0,
      gen = 1,
      answered = null,
    }: { retryInMs?: number; doubts?: number; gen?: number; answered?: Answered | null } = {},
  ): Call =>
  ({ releaseLease }) =>
    releaseLease(KEY, { attempt, inDoubt: doubts === 0 ? null : { gen, doubts }, retryInMs, answered })

const renew =
  (attempt: string, { doubts = 1, gen = 1, leaseMs = LONG } = {}): Call =>
  ({ renewLease }) =>
    renewLease(KEY, { gen, attempt, doubts, leaseMs })

const replace =
  (gen = 1, tokens = `sealed-${gen + 1}`): Call =>
  ({ replaceTokens }) =>
    replaceTokens(KEY, { gen, tokens })

const reseal =
  (was: string, sealed: string): Call =>
  (session) =>
    session.reseal(KEY, was, sealed)

const end =
  (request?: EndRequest): Call =>
  (session) =>
    session.end(KEY, request)

const read: Call = (session) => session.read(KEY)
const readEnd: Call = (session) => session.readEnd(KEY)
const touch: Call = (session) => session.touch(KEY)
const confirm: Call = (session) => session.confirm(KEY)

const pass =
  (ms: number): Call =>
  ({ server }) => {
    server.now += ms
  }

/** Another server takes over, or the same one has restarted. */
const promotion: Call = ({ server }) => {
  server.history += 'x'
}

const set =
  (fields: object): Call =>
  (session) =>
    session.set(fields)

/** The result of a call that changes nothing. */
const unchanged =
  (call: Call): Call =>
  async (session) => {
    const before = session.state()
    const result = await call(session)
    return isDeepStrictEqual(session.state(), before) ? { result } : 'the record has changed'
  }

const granted = (doubts: number) => ({ kind: 'granted', doubts, openForMs: 0 })
const busy = { kind: 'busy', waitMs: LONG }
const backingOff = { kind: 'backing_off', waitMs: LONG }
/** The longest pause of a request that has no valid token. */
const paused = { kind: 'paused', waitMs: 4_000 }
const written = { kind: 'replaced', written: true }
const ended = { kind: 'ended', tokens: 'sealed-1' }
const gone = { kind: 'gone' }
const failed = { kind: 'precondition_failed' }

const FORCED = { forcedWindowMs: LONG }
const SHORT = { leaseMs: 40 }

const NO_ANSWER = { answer: '', times: 0, alone: 0 }
const REJECTED = { answer: '400:empty', times: 2, alone: 1 }

const LEASE: Record<string, Step[]> = {
  'the first doubt has its instant, until it is taken back or there are new tokens': [
    [begin('a'), { kind: 'granted', doubtAgeMs: null }],
    [pass(LONG)],
    [begin('b'), { kind: 'granted', doubts: 1, doubtAgeMs: LONG }],
    [release('b')],
    [pass(1_000)],
    [begin('c'), { kind: 'granted', doubts: 1, doubtAgeMs: LONG + 1_000 }],
    [release('c', { doubts: 2 })],
    [begin('d'), { kind: 'granted', doubts: 2, doubtAgeMs: LONG + 1_000 }],
    [pass(-2 * LONG)],
    [begin('d'), { kind: 'granted', doubts: 2, doubtAgeMs: null }],
    [replace(), written],
    [read, { doubtAt: 0 }],
    [begin('e', { gen: 2 }), { kind: 'granted', doubtAgeMs: null }],
    [release('e')],
    [read, { doubts: 0, doubtAt: 0 }],
  ],
  'what the token endpoint has answered is kept until there are new tokens': [
    [begin('a'), { kind: 'granted', answered: NO_ANSWER, msSinceAnswer: null }],
    [release('a', { retryInMs: 1_000, answered: REJECTED })],
    [begin('b'), { kind: 'backing_off', answered: REJECTED }],
    [pass(1_500)],
    [begin('b'), { kind: 'granted', answered: REJECTED, msSinceAnswer: 1_500 }],
    [release('b')],
    [begin('c'), { kind: 'granted', answered: REJECTED, msSinceAnswer: 0 }],
    [replace(), written],
    [begin('d', { gen: 2 }), { kind: 'granted', answered: NO_ANSWER, msSinceAnswer: null }],
  ],
  'a back-off of five minutes is kept to': [
    [begin('a'), { kind: 'granted' }],
    [release('a', { retryInMs: 300_000 })],
    [pass(299_000)],
    [begin('b', { livesMs: 0 }), { kind: 'backing_off', waitMs: 1_000 }],
  ],
  'the lease is granted to one attempt, again if it asks again, and counts one doubt': [
    [begin('a'), granted(0)],
    [unchanged(begin('a')), { result: granted(0) }],
    [read, { doubts: 1, leaseUntil: NOW + LONG }],
    [begin('b'), busy],
    [begin('c', FORCED), busy],
    [begin('a'), granted(0)],
  ],
  'an expired lease goes to the next attempt, which learns of the doubt': [
    [begin('a', SHORT), granted(0)],
    [pass(60)],
    [begin('b'), granted(1)],
    [begin('a'), busy],
    [read, { doubts: 2 }],
  ],
  'an attempt whose expired lease nobody took is granted again and counted once': [
    [begin('a', SHORT), granted(0)],
    [pass(60)],
    [begin('a'), granted(0)],
    [release('a')],
    [read, { doubts: 0 }],
  ],
  'an attempt that read another generation learns that the tokens were replaced': [
    [replace(), written],
    [begin('b', { gen: 1 }), { kind: 'replaced' }],
    [begin('b', { gen: 3 }), { kind: 'replaced' }],
    [begin('b', { gen: 2 }), granted(0)],
  ],
  'after a failure the next attempt learns how long to wait': [
    [begin('a'), granted(0)],
    [release('a', { retryInMs: LONG })],
    [begin('b'), backingOff],
    [read, { doubts: 0, leaseUntil: 0, retryAt: NOW + LONG }],
    [pass(LONG)],
    [begin('b'), granted(0)],
  ],
  'a forced refresh does not wait for the end of a back-off, a second one does': [
    [begin('a'), granted(0)],
    [release('a', { retryInMs: LONG })],
    [begin('b', FORCED), granted(0)],
    [begin('b', FORCED), granted(0)],
    [release('b', { retryInMs: LONG })],
    [begin('c', FORCED), backingOff],
  ],
  'a forced refresh that brought no new tokens may be made again': [
    [begin('a', FORCED), granted(0)],
    [release('a')],
    [begin('b', FORCED), granted(0)],
  ],
  'a forced refresh that brought new tokens is not made again within the window': [
    [begin('a', FORCED), granted(0)],
    [replace(), written],
    [begin('b', { gen: 2, ...FORCED }), { kind: 'forced_before' }],
    [begin('c', { gen: 2 }), granted(0)],
    [release('c')],
    [pass(LONG)],
    [begin('b', { gen: 2, ...FORCED }), granted(0)],
  ],
  'a refresh that is not forced opens no window': [
    [begin('a'), granted(0)],
    [replace(), written],
    [begin('b', { gen: 2, ...FORCED }), granted(0)],
  ],
  'a presentation without a response leaves a doubt; doubts add up and stay': [
    [begin('a'), granted(0)],
    [release('a', { doubts: 1 })],
    [begin('b'), granted(1)],
    [release('b', { doubts: 2 })],
    [begin('c'), granted(2)],
    [release('c')],
    [read, { doubts: 2 }],
  ],
  'an attempt that does not hold the lease releases nothing': [
    [begin('a', SHORT), granted(0)],
    [release('a')],
    [unchanged(release('a', { retryInMs: LONG })), { result: undefined }],
    [begin('b'), granted(0)],
    [unchanged(release('a', { retryInMs: LONG })), { result: undefined }],
    [unchanged(release('c', { doubts: 1, retryInMs: LONG })), { result: undefined }],
  ],
  'a doubt whose lease the store has lost is written all the same, once, if it is of this generation': [
    [unchanged(release('a', { gen: 2, doubts: 1, retryInMs: LONG })), { result: undefined }],
    [release('a', { doubts: 1, retryInMs: LONG })],
    [read, { doubts: 1 }],
    [begin('b'), backingOff],
    [unchanged(release('a', { doubts: 1, retryInMs: 2 * LONG })), { result: undefined }],
  ],
  'a lost doubt leaves the lease of another to its holder': [
    [begin('b'), granted(0)],
    [release('a', { doubts: 3 })],
    [begin('c'), busy],
    [release('b')],
    [read, { doubts: 2, leaseUntil: 0 }],
  ],
  'a lease is renewed by its holder, and taken again where the store has lost it': [
    [renew('a', { doubts: 2 }), 'held'],
    [begin('b'), busy],
    [renew('b'), 'taken'],
    [renew('a', { gen: 2 }), 'taken'],
    [renew('a'), 'held'],
    [read, { doubts: 2 }],
    [end(), { kind: 'ended' }],
    [renew('a'), 'gone'],
  ],
  'an expired lease is renewed unless another attempt has taken it': [
    [begin('a', SHORT), granted(0)],
    [pass(60)],
    [renew('a', SHORT), 'held'],
    [pass(60)],
    [begin('b', SHORT), granted(1)],
    [pass(60)],
    [renew('a', SHORT), 'taken'],
  ],
}

const TOKENS: Record<string, Step[]> = {
  'new tokens raise the generation and clear lease, wait and doubts': [
    [begin('a'), granted(0)],
    [release('a', { doubts: 1, retryInMs: 1 })],
    [pass(1)],
    [begin('b'), granted(1)],
    [replace(), written],
    [read, { gen: 2, tokens: 'sealed-2', replacedAt: NOW + 1, doubts: 0, leaseUntil: 0, retryAt: 0 }],
  ],
  'the same replacement again writes nothing': [
    [replace(), written],
    [begin('b', { gen: 2 }), granted(0)],
    [unchanged(replace()), { result: { kind: 'replaced', written: false } }],
  ],
  'tokens of another generation are not overwritten': [
    [replace(0, 'sealed-0'), { kind: 'newer' }],
    [replace(), written],
    [replace(1, 'other'), { kind: 'newer' }],
    [replace(2), written],
    [replace(), { kind: 'newer' }],
    [read, { gen: 3, tokens: 'sealed-3' }],
  ],
  'tokens are stored over those of an older generation than was read': [
    [replace(4), written],
    [replace(4), { written: false }],
    [read, { gen: 5, tokens: 'sealed-5' }],
  ],
  'new tokens are stored without a lease, and even while another holds it': [
    [begin('a', SHORT), granted(0)],
    [pass(60)],
    [begin('b'), granted(1)],
    [replace(), written],
    [begin('c', { gen: 2 }), granted(0)],
    [unchanged(release('b', { retryInMs: LONG })), { result: undefined }],
  ],
  'resealed tokens replace the tokens that were read, and change nothing else': [
    [begin('a'), granted(0)],
    [reseal('sealed-1', 'resealed'), true],
    [read, { tokens: 'resealed', gen: 1, doubts: 1, leaseUntil: NOW + LONG, replacedAt: NOW }],
    [reseal('sealed-1', 'other'), false],
    [replace(), written],
    [reseal('resealed', 'other'), false],
    [reseal('sealed-2', 'resealed-2'), true],
    [replace(), { kind: 'newer' }],
    [end(), { kind: 'ended', tokens: 'resealed-2' }],
    [reseal('resealed-2', 'other'), false],
  ],
}

const ENDS: Record<string, Step[]> = {
  'nothing restores a session': [
    [begin('a'), granted(0)],
    [end(), ended],
    [confirm, false],
    [touch, false],
    [begin('b'), { kind: 'gone' }],
    [release('a')],
    [replace(), { kind: 'gone' }],
    [end({ gen: 1 }), gone],
    [read, null],
  ],
  'an end with a generation ends only that one and returns its tokens': [
    [replace(), written],
    [unchanged(end({ gen: 1, reason: 'logout' })), { result: failed }],
    [end({ gen: 2 }), { kind: 'ended', tokens: 'sealed-2' }],
    [read, null],
  ],
  'an attempt ends no session while another attempt holds the lease, or has let it expire': [
    [begin('b', SHORT), granted(0)],
    [unchanged(end({ gen: 1, attempt: 'a', reason: 'refused' })), { result: failed }],
    [pass(60)],
    [end({ attempt: 'a' }), failed],
    [end({ gen: 7, attempt: 'b' }), failed],
    [end({ gen: 1, attempt: 'b', reason: 'refused' }), ended],
    [readEnd, { reason: 'refused', at: NOW + 60 }],
  ],
  'an attempt ends a session whose lease is free': [
    [begin('b'), granted(0)],
    [release('b')],
    [end({ attempt: 'a' }), ended],
  ],
  'a lease does not prevent an end without an attempt': [
    [begin('b'), granted(0)],
    [end({ gen: 1 }), ended],
    [readEnd, null],
  ],
  'the reason of the first end is kept for an hour': [
    [readEnd, null],
    [end({ gen: 1, reason: 'idle' }), ended],
    [end({ reason: 'logout' }), gone],
    [pass(END_KEPT_MS - 1)],
    [readEnd, { reason: 'idle', at: NOW }],
    [pass(1)],
    [readEnd, null],
  ],
  'a limit ends a session once it has passed by the clock of the store, give or take five seconds': [
    [pass(IDLE_MS - 5_001)],
    [unchanged(end({ reason: 'idle', ifLimitPassed: true })), { result: failed }],
    [pass(1)],
    [end({ reason: 'idle', ifLimitPassed: true }), ended],
    [readEnd, { reason: 'idle', at: NOW + IDLE_MS - 5_000 }],
  ],
  'a record outlives its idle limit by the slack': [
    [pass(IDLE_MS + RECORD_SLACK_MS - 1)],
    [read, { gen: 1 }],
    [touch, true],
    [pass(IDLE_MS + RECORD_SLACK_MS - 1)],
    [read, { gen: 1 }],
    [pass(1)],
    [read, null],
  ],
}

const FAILOVERS: Record<string, Step[]> = {
  'while the access token is valid the pause lasts one lease': [
    [promotion],
    [begin('a', { livesMs: 2 * LONG }), { kind: 'paused', waitMs: LONG }],
  ],
  'the pause never lasts past the expiry of the access token': [
    [promotion],
    [begin('a', { livesMs: LONG / 2 }), { kind: 'paused', waitMs: LONG / 2 }],
  ],
  'the pause lasts four seconds at least, and each history causes one': [
    [promotion],
    [begin('a', { livesMs: 1_000 }), paused],
    [begin('a', FORCED), paused],
    [pass(4_000)],
    [begin('a'), granted(0)],
    [release('a')],
    [promotion],
    [begin('b'), paused],
  ],
  'a presentation in doubt whose lease was lost counts, and delays the next refresh after the pause': [
    [begin('a'), granted(0)],
    // As on a replica that had not received the lease.
    [set({ lease: '', leaseUntil: 0, leasedAt: 0, doubts: 0 })],
    [promotion],
    [begin('b'), paused],
    [release('a', { doubts: 1, retryInMs: LONG })],
    [begin('b'), paused],
    [pass(4_000)],
    [begin('b'), { kind: 'backing_off', waitMs: LONG - 4_000 }],
    [read, { doubts: 1 }],
  ],
  'the holder of a lease keeps it, and the pause follows': [
    [begin('a'), granted(0)],
    [promotion],
    [begin('a'), granted(0)],
    [begin('b'), busy],
    [release('a')],
    [begin('b'), paused],
  ],
  'tokens that are written during the pause do not end it, since newer ones may follow': [
    [promotion],
    [begin('a'), paused],
    [replace(1), written],
    [begin('a', { gen: 2 }), paused],
  ],
}

for (const [name, steps] of Object.entries({ ...LEASE, ...TOKENS, ...ENDS, ...FAILOVERS }))
  t.test(name, async (t) => {
    const session = await start()
    for (const [at, [call, expected]] of steps.entries()) {
      const result = await call(session)
      if (expected !== undefined) t.match(result, expected, `step ${at + 1} of ${steps.length}`)
    }
  })

t.test('a new session has these fields and no others, and its state has some of them', async (t) => {
  const session = await start({ flow: 'password', client: 'the app' })
  const state = { gen: 1, seenAt: NOW, idleEndsAt: NOW + IDLE_MS, bound: false }
  t.strictSame(await session.readState(KEY), state)
  t.strictSame(await session.read(KEY), {
    ...state,
    ...{ tokens: 'sealed-1', createdAt: NOW, flow: 'password', client: 'the app', replacedAt: NOW },
    ...{ endsAt: NOW + 43_200_000, doubtAt: 0, answer: '', answerTimes: 0, answerAlone: 0 },
    ...{ doubts: 0, lease: '', leaseUntil: 0, leasedAt: 0, openUntil: 0, retryAt: 0, retrySetAt: 0 },
    ...{ forcedAt: 0, forcedGen: 0, history: 'a', expireAt: NOW + IDLE_MS + RECORD_SLACK_MS },
    device: '',
  })
  const before = session.state()
  await session.create(KEY, newRecord(NOW, { tokens: 'other' }), 15_000)
  t.equal(await session.confirm(KEY), true)
  t.strictSame(session.state(), before, 'it is neither created nor confirmed again')
})

t.test('activity moves the idle limit forward, but never past the absolute limit', async (t) => {
  const touched = async (changes: Partial<NewRecord>) => {
    const session = await start(changes)
    await session.touch(KEY)
    const { seenAt, idleEndsAt } = (await session.read(KEY))!
    return { seenAt, idleEndsAt }
  }
  const createdAt = NOW - 9_000
  t.strictSame(await touched({ createdAt }), { seenAt: NOW, idleEndsAt: NOW + IDLE_MS })
  t.strictSame(await touched({ createdAt, endsAt: NOW + LONG }), { seenAt: NOW, idleEndsAt: NOW + LONG })
  // The clock of the store, or the one that wrote the record, was set.
  t.equal((await touched({ createdAt: NOW - IDLE_MS - 1_000 })).seenAt, NOW)
  t.equal((await touched({ createdAt: NOW + LONG })).seenAt, NOW + LONG)
})

t.test('a record outlives its absolute limit by the slack, whatever its browser does', async (t) => {
  const session = await start({ endsAt: NOW + LONG })
  session.server.now = NOW + LONG + RECORD_SLACK_MS - 1
  t.equal(await session.touch(KEY), true)
  session.server.now += 1
  t.equal(await session.read(KEY), null)
})

t.test('a session takes one device, once, and is bound when that device has proven its key', async (t) => {
  const session = await start()
  const unbound = session.state()
  t.strictSame(await session.bindDevice(KEY, 'one'), { kind: 'refused' }, 'it has no device')
  t.strictSame(session.state(), unbound)
  t.strictSame(await session.registerDevice(KEY, 'one'), { kind: 'registered' })
  t.strictSame(await session.registerDevice(KEY, 'one'), { kind: 'registered' }, 'a repeated registration')
  t.strictSame(await session.registerDevice(KEY, 'two'), { kind: 'refused' }, 'another device')
  t.equal((await session.readState(KEY))?.bound, false, 'a registration alone binds nothing')
  t.strictSame(await session.bindDevice(KEY, 'two'), { kind: 'refused' })
  t.strictSame(await session.bindDevice(KEY, 'one'), { kind: 'bound' })
  const bound = session.state()
  t.strictSame(await session.bindDevice(KEY, 'one'), { kind: 'was_bound' })
  t.strictSame(await session.registerDevice(KEY, 'one'), { kind: 'bound' })
  t.strictSame(await session.registerDevice(KEY, 'two'), { kind: 'refused' })
  t.strictSame(session.state(), bound, 'nothing more is written')
  await session.replaceTokens(KEY, { gen: 1, tokens: 'sealed-2' })
  t.match(await session.read(KEY), { device: 'one', bound: true, gen: 2 }, 'a refresh keeps it')
  await session.end(KEY)
  t.strictSame(await session.registerDevice(KEY, 'one'), { kind: 'gone' })
  t.strictSame(await session.bindDevice(KEY, 'one'), { kind: 'gone' })
})
