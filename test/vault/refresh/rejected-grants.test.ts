import t from 'tap'
import { type Behaviour, type Presentation, startSessions, type VirtualReplicas } from './virtual-replicas.ts'

const LIFE_SECONDS = 10

/** Of these families the refresh tokens are dead, in words that are not known. */
function deadIn(how: Behaviour, isDead: (family: number) => boolean) {
  return ({ family }: Presentation): Behaviour => (isDead(family) ? how : { kind: 'granted' })
}

/** Calls of healthy sessions, each of one replica, every second; how many had no token. */
async function callAll(
  { time, request, replicas }: Pick<VirtualReplicas, 'time' | 'request' | 'replicas'>,
  keys: readonly string[],
  seconds: number,
): Promise<{ calls: number; failed: number }> {
  let [calls, failed] = [0, 0]
  for (let round = 0; round < seconds; round += 1) {
    for (const [at, key] of keys.entries()) {
      calls += 1
      void request(replicas[(at + round) % replicas.length]!, key).then((access) => {
        if (access.kind !== 'token') failed += 1
      })
    }
    await time.advance(1_000)
  }
  return { calls, failed }
}

for (const [dead, healthy, how] of [
  [60, 4, { kind: 'answers', status: 400, code: null }],
  [60, 4, { kind: 'answers', status: 400, code: 'invalid_request' }],
  [60, 4, { kind: 'answers', status: 401, code: 'invalid_token' }],
  [60, 4, { kind: 'answers', status: 500, code: 'invalid_request' }],
  // GitHub.
  [60, 4, { kind: 'answers', status: 200, code: 'bad_refresh_token' }],
  [6, 1, { kind: 'answers', status: 200, code: null }],
  [6, 1, { kind: 'answers', status: 400, code: null }],
  [6, 1, { kind: 'answers', status: 401, code: null }],
  [6, 1, { kind: 'answers', status: 500, code: null }],
] as const) {
  t.test(
    `${dead} sessions that are dead in ${how.status} ${how.code ?? 'without a body'} beside ${healthy} healthy: no call of these fails, and each dead one is presented once in five minutes`,
    async (t) => {
      const setup = await startSessions(t, {
        lifeSeconds: LIFE_SECONDS,
        replicas: 2,
        sessions: dead + healthy,
      })
      const { time, behave, presentations, keys } = setup
      setup.issueFor(LIFE_SECONDS)
      // Each process has seen a grant: before it has, an answer in unknown words may be an outage.
      await callAll(setup, keys, 2 * LIFE_SECONDS)
      behave(deadIn(how, (family) => family <= dead))
      const { calls, failed } = await callAll(setup, keys.slice(dead), 75)
      t.equal(failed, 0, `of ${calls} calls`)
      const { failed: later } = await callAll(setup, keys.slice(dead), 625)
      t.equal(later, 0)
      const since = time.now()
      await callAll(setup, keys.slice(dead), 300)
      for (let family = 1; family <= dead; family += 1) {
        const times = presentations.filter((one) => one.family === family && one.at >= since).length
        t.ok(times <= 1, `${times} presentations of ${family}`)
      }
    },
  )
}

for (const [status, code] of [
  [500, null],
  // As where the secret was rolled out wrongly.
  [401, null],
  [401, 'invalid_token'],
  [401, 'invalid_client'],
] as const)
  t.test(
    `an outage with ${status} ${code ?? 'without a body'} is over for every session within five seconds`,
    async (t) => {
      const setup = await startSessions(t, { lifeSeconds: LIFE_SECONDS, replicas: 2, sessions: 20 })
      const { time, behave, keys, request, replica } = setup
      setup.issueFor(LIFE_SECONDS)
      await time.advance(20_000)
      // As measured, refreshes of others had just been granted.
      behave({ kind: 'answers', status, code })
      for (const seconds of [30, 40, 90]) {
        await time.advance(seconds * 1_000)
        behave({ kind: 'granted' })
        await time.advance(5_000)
        const answers = await Promise.all(keys.map((key) => request(replica, key)))
        t.strictSame(
          answers.map(({ kind }) => kind),
          keys.map(() => 'token'),
          `after ${seconds} seconds`,
        )
        behave({ kind: 'answers', status, code })
      }
    },
  )

t.test('a session that alone is rejected offers a new sign-in, and an outage does not', async (t) => {
  const { behave, request, replica, keys, time, issueFor } = await startSessions(t, { sessions: 3 })
  const [dead, other, third] = keys as [string, string, string]
  behave({ kind: 'answers', status: 400, code: null })
  t.match(await request(replica, dead), { kind: 'wait', why: 'rejected' })
  t.match(await request(replica, dead), { kind: 'wait', why: 'rejected' }, 'while it backs off, too')
  behave({ kind: 'answers', status: 500, code: null })
  t.match(await request(replica, other), { kind: 'wait', why: 'unavailable' })
  // Beside one that is granted.
  issueFor(0)
  behave(({ family }) => (family === 2 ? { kind: 'answers', status: 500, code: null } : { kind: 'granted' }))
  for (let round = 0; round < 3; round += 1) {
    t.match(await request(replica, third), { kind: 'token' })
    await time.advance(4_100)
    t.match(await request(replica, other), { kind: 'wait', why: round < 2 ? 'unavailable' : 'rejected' })
    await time.advance(4_100)
  }
})

t.test('a session that is dead in a 401 with a code offers a new sign-in and is warned of', async (t) => {
  const { behave, request, replica, keys, issueFor, time, warnings } = await startSessions(t, { sessions: 2 })
  const [dead, other] = keys as [string, string]
  issueFor(0)
  behave(({ family }) =>
    family === 1 ? { kind: 'answers', status: 401, code: 'invalid_token' } : { kind: 'granted' },
  )
  t.match(await request(replica, dead), { kind: 'wait', why: 'rejected' })
  for (let round = 0; round < 6; round += 1) {
    t.match(await request(replica, other), { kind: 'token' })
    await time.advance(10_000)
    t.match(await request(replica, dead), { kind: 'wait', why: 'rejected' })
  }
  t.match(
    warnings.filter(({ event }) => event === 'refresh.unknown_answer'),
    [
      { status: 401, error: 'invalid_token', setting: undefined },
      { status: 401, error: 'invalid_token', setting: 'OAUTH_REFUSED_GRANT=401:invalid_token' },
    ],
  )
})

t.test('one warning an hour names an answer in unknown words, and one its setting', async (t) => {
  const setup = await startSessions(t, { sessions: 5 })
  const { time, behave, warnings } = setup
  behave({ kind: 'answers', status: 400, code: 'invalid_request' })
  await time.advance(600_000)
  const unknown = warnings.filter(({ event }) => event === 'refresh.unknown_answer')
  t.match(unknown, [
    { status: 400, error: 'invalid_request', setting: undefined },
    { status: 400, error: 'invalid_request', setting: 'OAUTH_REFUSED_GRANT=400:invalid_request' },
  ])
  t.equal(unknown.length, 2)
})
