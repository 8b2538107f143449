import t from 'tap'
import type { TokenOutcome } from '../../../src/oauth/token-response.ts'
import { Secret } from '../../../src/secret.ts'
import {
  dueAt,
  judge,
  leaseMs,
  mayPresent,
  neededAt,
  resetAfterMs,
} from '../../../src/vault/refresh/rules.ts'
import type { BeginRefreshResult } from '../../../src/vault/store/record.ts'
import { answered, TIMING, UNAVAILABLE } from './virtual-replicas.ts'

const HOUR = { expiresAt: 3_600_000, lifeSeconds: 3_600 }
const SHORT = { expiresAt: 6_000, lifeSeconds: 6 }
const ALWAYS = { expiresAt: 1_000, lifeSeconds: 0 }
/** The refresh token ends first, later, or with the issue. */
const REFRESH_ENDS = (refreshExpiresAt: number) => ({ ...HOUR, refreshExpiresAt })

t.test('when a session is due, and how long a lease and a presentation last', async (t) => {
  const rows: [string, number, number][] = [
    ['a request refreshes within the threshold', neededAt(HOUR, TIMING), 3_570_000],
    ['which is at most a third of the lifetime', neededAt(SHORT, TIMING), 4_000],
    ['the background refresh is ahead of expiry', dueAt(HOUR, TIMING, 0), 3_300_000],
    ['and delayed by up to a fifth of that lead time', dueAt(HOUR, TIMING, 0.5), 3_330_000],
    ['also for a short life', dueAt(SHORT, TIMING, 0), 4_000],
    [
      'ahead of the end of the refresh token if that is earlier',
      dueAt(REFRESH_ENDS(1_800_000), TIMING, 0),
      1_500_000,
    ],
    ['also by a request', neededAt(REFRESH_ENDS(1_800_000), TIMING), 1_770_000],
    ['a third of what is left of it at most', dueAt(REFRESH_ENDS(60_000), TIMING, 0), 40_000],
    ['a refresh token that ends later changes nothing', dueAt(REFRESH_ENDS(7_200_000), TIMING, 0), 3_300_000],
    ['one that ends at once is presented after a pause', dueAt(REFRESH_ENDS(0), TIMING, 0), 10_000],
    ['refreshes of a token that is always due have a pause', dueAt(ALWAYS, TIMING, 0.9), 11_000],
    ['a presentation may have no response for 30 s', resetAfterMs(10_000), 30_000],
    ['or for three timeouts, if that is longer', resetAfterMs(20_000), 60_000],
  ]
  for (const [name, is, expected] of rows) t.equal(is, expected, name)
  t.ok(dueAt(SHORT, TIMING, 0.999) < 4_400)
  t.ok(leaseMs(10_000) >= 13_000, 'the lease outlives the token request')
})

const NO_ANSWER = { answer: '', times: 0, alone: 0 }

const LEASE_FACTS = {
  tokens: HOUR,
  leftMs: 60_000,
  timeoutMs: 10_000,
  reuseMs: 0,
  msSinceIncident: Number.POSITIVE_INFINITY,
  msSinceStart: Number.POSITIVE_INFINITY,
  endpointIsLate: false,
  stopping: false,
}

t.test('whether a refresh token may be presented', async (t) => {
  const lease = (
    doubts: number,
    ageMs: number | null = null,
    doubtAgeMs: number | null = doubts === 0 ? null : 20_000,
  ): BeginRefreshResult => ({
    kind: 'granted',
    doubts,
    openForMs: 7_000,
    ageMs,
    doubtAgeMs,
    answered: NO_ANSWER,
    msSinceAnswer: null,
  })
  const wait = (why: string, ms: number) => ({ kind: 'wait', why, ms })
  const present = (doubts: number, leftMs: number) => ({
    kind: 'present',
    doubts,
    answered: NO_ANSWER,
    msSinceAnswer: null,
    leftMs,
    earlierOpenMs: 7_000,
  })
  const rows: [string, BeginRefreshResult, Partial<typeof LEASE_FACTS>, object][] = [
    // the case, the reply of the store, the facts, what follows
    ['the session has ended', { kind: 'gone' }, {}, { kind: 'ended' }],
    ['the tokens were replaced', { kind: 'replaced' }, {}, { kind: 'changed' }],
    ['newer tokens may be missing', { kind: 'paused', waitMs: 4_000 }, {}, wait('paused', 4_000)],
    ['another holds the lease', { kind: 'busy', waitMs: 15_000, ageMs: 0 }, {}, wait('busy', 15_000)],
    [
      'another has held the lease for longer than a response may take',
      { kind: 'busy', waitMs: 14_000, ageMs: 10_500 },
      {},
      wait('unanswered', 14_000),
    ],
    [
      'the last attempt failed',
      { kind: 'backing_off', waitMs: 900, answered: NO_ANSWER },
      {},
      wait('unavailable', 900),
    ],
    [
      'this grant alone is rejected',
      { kind: 'backing_off', waitMs: 900, answered: { answer: '400:empty', times: 1, alone: 0 } },
      {},
      wait('rejected', 900),
    ],
    ['forced within the last minute', { kind: 'forced_before' }, {}, wait('forced_before', 1_000)],
    ['no doubt', lease(0), {}, present(0, 60_000)],
    ['no doubt, by the clock that shows less', lease(0, 3_590_000), {}, present(0, 11_000)],
    ['no doubt, just after an incident', lease(0), { msSinceIncident: 0 }, present(0, 60_000)],
    ['in doubt, the access token is valid', lease(1), {}, wait('unavailable', 60_000)],
    [
      'in doubt, it is valid by the other clock for less',
      lease(1, 3_590_000),
      {},
      wait('unavailable', 11_000),
    ],
    [
      'in doubt, the store had replied late when it took the tokens',
      lease(1, 3_599_700),
      { leftMs: 500 },
      wait('unavailable', 500),
    ],
    ['in doubt, it is granted again', lease(1), { reuseMs: 60_000 }, present(1, 60_000)],
    [
      'in doubt, it is granted again for too short',
      lease(1),
      { reuseMs: 21_000 },
      wait('unavailable', 60_000),
    ],
    [
      'in doubt, nobody knows since when',
      lease(1, null, null),
      { reuseMs: 60_000 },
      wait('unavailable', 60_000),
    ],
    ['in doubt twice, it is granted again once', lease(2), { reuseMs: 60_000 }, wait('unavailable', 60_000)],
    [
      'in doubt, it is granted again, an incident',
      lease(1),
      { reuseMs: 60_000, msSinceIncident: 2_000 },
      wait('unavailable', 3_000),
    ],
    ['in doubt, it has expired', lease(1), { leftMs: -1 }, present(1, -1)],
    ['in doubt nine times, it has expired', lease(9), { leftMs: 0 }, present(9, 0)],
    ['in doubt, an incident', lease(1), { leftMs: 0, msSinceIncident: 2_000 }, wait('unavailable', 3_000)],
    [
      'in doubt, this process is new',
      lease(1),
      { leftMs: 0, msSinceStart: 1_000 },
      wait('unavailable', 4_000),
    ],
    [
      'in doubt, others are answered late',
      lease(1),
      { leftMs: 0, endpointIsLate: true },
      wait('unavailable', 2_000),
    ],
    ['no doubt, others are answered late', lease(0), { endpointIsLate: true }, present(0, 60_000)],
    ['this process stops', lease(0), { stopping: true }, wait('stopping', 0)],
  ]
  for (const [name, begun, facts, follows] of rows)
    t.strictSame(mayPresent(begun, { ...LEASE_FACTS, ...facts }), follows, name)
})

const TOKENS = {
  accessToken: new Secret('at'),
  refreshToken: new Secret('rt'),
  lifeSeconds: 3_600,
  expiresAt: 0,
  scope: null,
}
const GRANTED: TokenOutcome = { kind: 'granted', tokens: TOKENS }
const REFUSED: TokenOutcome = { kind: 'refused', reason: 'invalid_grant' }
const DOUBT: TokenOutcome = { kind: 'in_doubt', reason: '', timedOut: true }
const UNSENT: TokenOutcome = { ...UNAVAILABLE, timedOut: true }
const OF_THIS_GRANT = answered(400, 'invalid_request')
const EMPTY = answered(400, null)
const FAILED = answered(500, null)
const INVALID_TOKEN = answered(401, 'invalid_token')
const NO_RESPONSE = null

/** Of a first presentation whose access token has expired. */
const FACTS = {
  doubts: 0,
  leftMs: 0,
  earlierOpenMs: 0,
  overtaken: false,
  stalled: false,
  endpointIsLate: false,
  answered: NO_ANSWER,
  msSinceAnswer: null,
  msSinceGranted: Number.POSITIVE_INFINITY,
  reuseMs: 0,
  random: 0,
}

t.test('what follows from one presentation', async (t) => {
  const released = (doubts: number | null, retryInMs: number) => ({ kind: 'release', doubts, retryInMs })
  const nothing = { kind: 'nothing' }
  const tokens = { kind: 'tokens', tokens: TOKENS }
  const end = { kind: 'end' }
  const changed = { kind: 'changed' }
  const wait = (ms: number, why = 'unavailable') => ({ kind: 'wait', ms, why })
  const rows: [string, TokenOutcome | null, Partial<typeof FACTS>, object, object, boolean | null][] = [
    // the case, the outcome, the facts; what is written, what callers get, whether the token endpoint works
    ['granted', GRANTED, {}, tokens, changed, true],
    ['granted, overtaken', GRANTED, { overtaken: true }, tokens, changed, true],
    ['refused', REFUSED, {}, end, changed, true],
    [
      'refused, an earlier one is open',
      REFUSED,
      { doubts: 1, earlierOpenMs: 9 },
      released(2, 9),
      wait(9),
      true,
    ],
    ['refused, overtaken', REFUSED, { overtaken: true }, nothing, changed, null],
    ['unavailable', UNAVAILABLE, {}, released(null, 1_000), wait(1_000), false],
    ['unavailable, a doubt before', UNAVAILABLE, { doubts: 1 }, released(2, 1_000), wait(1_000), false],
    [
      'unavailable, the token is valid',
      UNAVAILABLE,
      { leftMs: 40_000 },
      released(null, 7_500),
      wait(7_500),
      false,
    ],
    [
      'unavailable to this grant alone',
      OF_THIS_GRANT,
      {},
      released(null, 2_000),
      wait(2_000, 'rejected'),
      true,
    ],
    ['not sent in time', UNSENT, {}, released(null, 1_000), wait(1_000), false],
    ['not sent in time, stalled', UNSENT, { stalled: true }, released(null, 0), changed, null],
    [
      'not sent, stalled, a doubt before',
      UNSENT,
      { stalled: true, doubts: 1 },
      released(null, 0),
      changed,
      null,
    ],
    ['in doubt', DOUBT, {}, released(1, 1_000), wait(1_000), false],
    ['in doubt, the token is valid', DOUBT, { leftMs: 90_000 }, released(1, 90_000), wait(90_000), false],
    ['in doubt, overtaken', DOUBT, { overtaken: true }, nothing, changed, null],
    ['no response in time', NO_RESPONSE, {}, nothing, wait(2_000, 'unanswered'), false],
    [
      'no response in time, others are answered late',
      NO_RESPONSE,
      { endpointIsLate: true },
      nothing,
      wait(2_000, 'unanswered'),
      null,
    ],
  ]
  for (const [name, outcome, facts, write, callers, works] of rows)
    t.match(judge(outcome, { ...FACTS, ...facts }), { write, callers, works }, name)
})

function backOff(leftMs: number, outcome: TokenOutcome = UNAVAILABLE, random = 0.5): number {
  const { write } = judge(outcome, { ...FACTS, leftMs, random })
  return write.kind === 'release' ? write.retryInMs : Number.NaN
}

t.test(
  'the back-off is long while the access token is valid, and one to two seconds after expiry',
  async (t) => {
    t.ok(backOff(3_000_000) <= 60_000)
    t.ok(backOff(3_000_000, UNAVAILABLE, 0) >= 45_000)
    t.ok(backOff(40_000) <= 10_000)
    t.ok(backOff(2_000) <= 1_000 && backOff(2_000) >= 500, 'never past the expiry')
    t.equal(backOff(0, UNAVAILABLE, 0), 1_000)
    t.ok(backOff(-100_000, UNAVAILABLE, 0.999) < 2_000)
    t.equal(backOff(0, OF_THIS_GRANT, 0), 2_000, 'a failure of this grant only is retried half as often')
    t.ok(backOff(0, OF_THIS_GRANT, 0.999) < 4_000, 'and recovery is detected within five seconds')
    const later = { ...UNAVAILABLE, retryAfterSeconds: 60 }
    for (const leftMs of [-1, 3_000_000])
      t.equal(backOff(leftMs, later), 60_000, 'a Retry-After is a lower bound')
  },
)

t.test('an answer in unknown words concerns one grant alone while others are granted', async (t) => {
  const before = (answer: string, times: number, alone: number) => ({ answered: { answer, times, alone } })
  const LATELY = { msSinceGranted: 59_000 }
  /** Another session was granted between the last answer and this one. */
  const BETWEEN = { msSinceAnswer: 3_000, msSinceGranted: 2_000 }
  const OUTAGE = { msSinceAnswer: 3_000, msSinceGranted: 4_000 }
  const rows: [string, TokenOutcome, Partial<typeof FACTS>, object][] = [
    // the case, the answer, the facts; times and alone, back-off, whether the endpoint works, what callers get
    ['400 empty, none granted', EMPTY, {}, [1, 0, 1_000, false, 'rejected']],
    ['400 empty, others granted lately', EMPTY, LATELY, [1, 1, 2_000, null, 'rejected']],
    ['401 with a code, none granted', INVALID_TOKEN, {}, [1, 0, 1_000, false, 'rejected']],
    ['401 with a code, others granted lately', INVALID_TOKEN, LATELY, [1, 1, 2_000, null, 'rejected']],
    ['401 empty, others granted lately', answered(401, null), LATELY, [1, 1, 2_000, null, 'rejected']],
    [
      '401 again, others granted between',
      INVALID_TOKEN,
      { ...before('401:invalid_token', 1, 1), ...BETWEEN },
      [2, 2, 4_000, null, 'rejected'],
    ],
    [
      '401 again, none granted between',
      INVALID_TOKEN,
      { ...before('401:invalid_token', 1, 1), ...OUTAGE },
      [2, 1, 2_000, null, 'rejected'],
    ],
    ['500, none granted', FAILED, {}, [1, 0, 1_000, false, 'unavailable']],
    ['500, others granted lately', FAILED, LATELY, [1, 1, 2_000, null, 'unavailable']],
    [
      '500 again, none granted between',
      FAILED,
      { ...before('500:empty', 1, 1), ...OUTAGE },
      [2, 1, 2_000, null, 'unavailable'],
    ],
    [
      '500 again, others granted between',
      FAILED,
      { ...before('500:empty', 1, 1), ...BETWEEN },
      [2, 2, 4_000, null, 'rejected'],
    ],
    ['another answer', EMPTY, { ...before('500:empty', 7, 7), ...BETWEEN }, [1, 1, 2_000, null, 'rejected']],
    [
      'a code of its own, alone',
      OF_THIS_GRANT,
      before('400:invalid_request', 3, 3),
      [4, 4, 16_000, true, 'rejected'],
    ],
    [
      'once it is known, also while the endpoint may be down',
      EMPTY,
      { ...before('400:empty', 9, 9), msSinceAnswer: 3_000, msSinceGranted: 600_000 },
      [10, 9, 300_000, null, 'rejected'],
    ],
    [
      'at most five minutes',
      EMPTY,
      { ...before('400:empty', 90, 90), ...BETWEEN },
      [91, 91, 300_000, null, 'rejected'],
    ],
  ]
  for (const [name, outcome, facts, expected] of rows) {
    const { write, callers, works } = judge(outcome, { ...FACTS, ...facts })
    if (write.kind !== 'release' || callers.kind !== 'wait') throw new Error(name)
    const { times, alone } = write.answered!
    t.strictSame([times, alone, write.retryInMs, works, callers.why], expected, name)
  }
  for (const [status, code] of [
    [429, null],
    [401, 'invalid_client'],
    [400, 'unauthorized_client'],
    [401, 'unauthorized_client'],
    [500, 'invalid_client'],
  ] as const)
    t.match(judge(answered(status, code), { ...FACTS, ...LATELY }), {
      write: { answered: null },
      works: false,
    })
})

t.test(
  'the value for OAUTH_REFUSED_GRANT is named from the third equal answer on, where there is one',
  async (t) => {
    const rows: [TokenOutcome, string, number, object | null][] = [
      [EMPTY, '', 0, { answer: '400:empty', refusedGrant: null }],
      [EMPTY, '400:empty', 1, { answer: '400:empty', refusedGrant: null }],
      [EMPTY, '400:empty', 2, { answer: '400:empty', refusedGrant: '400:empty' }],
      [OF_THIS_GRANT, '400:invalid_request', 2, { refusedGrant: '400:invalid_request' }],
      [answered(400, 'Odd-Code'), '400:Odd-Code', 2, { answer: '400:Odd-Code', refusedGrant: null }],
      [INVALID_TOKEN, '401:invalid_token', 2, { refusedGrant: '401:invalid_token' }],
      [answered(401, null), '401:empty', 2, { refusedGrant: '401:empty' }],
      [FAILED, '500:empty', 1, null],
      [FAILED, '500:empty', 2, { answer: '500:empty', refusedGrant: null }],
    ]
    for (const [outcome, answer, times, expected] of rows) {
      const facts = { ...FACTS, msSinceAnswer: 3_000, msSinceGranted: 2_000 }
      const alone = Math.max(0, times - 1)
      const { unknown } = judge(outcome, { ...facts, answered: { answer, times, alone } })
      t.match(unknown, expected, `${answer} ${times + 1} times`)
    }
    const outage = { ...FACTS, msSinceAnswer: 3_000, msSinceGranted: 600_000 }
    const { unknown } = judge(INVALID_TOKEN, {
      ...outage,
      answered: { answer: '401:invalid_token', times: 9, alone: 1 },
    })
    t.match(unknown, { refusedGrant: null }, 'a 401 that all get may be the word for a wrong secret')
  },
)
