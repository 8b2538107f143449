import t from 'tap'
import { createLog } from '../../src/log.ts'
import type { TokenOutcome } from '../../src/oauth/token-response.ts'
import { createApplicationToken } from '../../src/proxy/application-token.ts'
import { Secret } from '../../src/secret.ts'
import { collectLog } from '../helpers/log-lines.ts'
import { TIMING, UNAVAILABLE } from '../vault/refresh/virtual-replicas.ts'

/** A token endpoint and a clock that the test controls. */
function arrange(log = createLog('silent')) {
  let passed = 0
  let stepped = 0
  // The two clocks start at different values.
  const clock = { monotonic: () => 5_000 + passed, wall: () => 1_000_000 + passed + stepped }
  let issued = 0
  const waiting: ((outcome: TokenOutcome) => void)[] = []
  const token = createApplicationToken({
    authorizationClient: { redeemClient: () => new Promise((resolve) => waiting.push(resolve)) },
    timing: TIMING,
    clock,
    random: () => 0.5,
    log,
  })
  return {
    token,
    pass: (ms: number) => {
      passed += ms
    },
    step: (ms: number) => {
      stepped += ms
    },
    /** How many requests have no response. */
    async waiting(): Promise<number> {
      await new Promise(setImmediate)
      return waiting.length
    },
    /** Responds to the oldest request: with a token that lives so many seconds, or with a failure. */
    async answer(what: number | TokenOutcome): Promise<void> {
      await new Promise(setImmediate)
      const outcome: TokenOutcome =
        typeof what !== 'number'
          ? what
          : {
              kind: 'granted',
              tokens: {
                accessToken: new Secret(`token-${++issued}`),
                refreshToken: null,
                lifeSeconds: what,
                expiresAt: clock.wall() + what * 1_000,
                scope: null,
              },
            }
      waiting.shift()!(outcome)
    },
  }
}

/** One whose first token, which lives so many seconds, is there. */
async function holding(seconds = 3_600) {
  const made = arrange()
  const first = made.token.obtain()
  await made.answer(seconds)
  const { serial } = (await first) as { serial: number }
  return { ...made, serial }
}

/** The result as one word. */
async function word(access: ReturnType<ReturnType<typeof arrange>['token']['obtain']>): Promise<string> {
  const got = await access
  return got.kind === 'token' ? got.token.reveal() : got.kind
}

t.test('concurrent callers share one request, and its token until shortly before expiry', async (t) => {
  const { token, answer, waiting, pass } = arrange()
  const asked = [word(token.obtain()), word(token.obtain()), word(token.obtain())]
  t.equal(await waiting(), 1)
  await answer(3_600)
  t.strictSame(await Promise.all(asked), ['token-1', 'token-1', 'token-1'])
  pass(3_569_000)
  t.equal(await word(token.obtain()), 'token-1')
  t.equal(await waiting(), 0)
})

t.test('a token close to expiry is used while the next one is fetched', async (t) => {
  const { token, answer, waiting, pass } = await holding()
  pass(3_571_000)
  for (const caller of ['the first', 'the second'])
    t.equal(await word(token.obtain()), 'token-1', `${caller} caller does not wait`)
  t.equal(await waiting(), 1)
  await answer(3_600)
  await new Promise(setImmediate)
  t.equal(await word(token.obtain()), 'token-2')
})

t.test(
  'a caller waits if the token has expired; one that expires at once is used for a second',
  async (t) => {
    const { token, answer, waiting, pass } = await holding(60)
    pass(60_000)
    const second = word(token.obtain())
    t.equal(await waiting(), 1)
    await answer(0)
    t.equal(await second, 'token-2')
    t.equal(await word(token.obtain()), 'token-2', 'although the next one is requested')
    t.equal(await waiting(), 1)
    await answer(UNAVAILABLE)
    await new Promise(setImmediate)
    pass(1_000)
    const third = word(token.obtain())
    await answer(3_600)
    t.equal(await third, 'token-3')
  },
)

t.test('while the token endpoint fails it receives one request at a time, by its Retry-After', async (t) => {
  for (const retryAfterSeconds of [null, 30]) {
    const { token, answer, waiting, pass } = arrange()
    for (let failure = 0; failure < 3; failure += 1) {
      const asked = token.obtain()
      await answer({ ...UNAVAILABLE, retryAfterSeconds })
      const ms = retryAfterSeconds === null ? Number : 30_000
      t.match(await asked, { kind: 'wait', why: 'unavailable', ms })
    }
    pass(retryAfterSeconds === null ? 0 : 29_000)
    t.equal(await word(token.obtain()), 'wait')
    t.equal(await waiting(), 0, 'a pause')
    pass(2_000)
    const probe = word(token.obtain())
    t.equal(await waiting(), 1)
    t.equal(await word(token.obtain()), 'wait', 'no caller waits for the probe of another')
    await answer(3_600)
    t.equal(await probe, 'token-1')
  }
})

t.test("a failure is logged with the token endpoint's own description", async (t) => {
  const { sink, lines } = collectLog()
  const { token, answer } = arrange(createLog('info', sink))
  const first = token.obtain()
  const said = { status: 400, code: 'unauthorized_client', isEmpty: false, description: 'no such grant' }
  await answer({ ...UNAVAILABLE, reason: 'the response was 400 unauthorized_client', answer: said })
  await first
  const second = token.obtain()
  await answer(UNAVAILABLE)
  await second
  const [described, ...others] = lines('application_token.failed')
  t.match(described, { reason: /unauthorized_client/, description: 'no such grant' })
  for (const line of others) t.notOk('description' in line)
})

t.test('a refused token is replaced once for all its holders, and at most once a minute', async (t) => {
  const { token, answer, waiting, pass, serial } = await holding()
  const newer = [word(token.requestNewer(serial)), word(token.requestNewer(serial))]
  t.equal(await waiting(), 1)
  await answer(3_600)
  t.strictSame(await Promise.all(newer), ['token-2', 'token-2'])
  t.equal(await word(token.requestNewer(serial)), 'token-2', 'a later caller gets it at once')
  pass(59_000)
  t.match(await token.requestNewer(serial + 1), { kind: 'wait', why: 'forced_before' })
  t.equal(await waiting(), 0)
  pass(1_000)
  const again = word(token.requestNewer(serial + 1))
  await answer(3_600)
  t.equal(await again, 'token-3')
})

t.test('a refused token is not used again: its replacement may fail, or expire at once', async (t) => {
  for (const [outcome, passMs] of [
    [UNAVAILABLE, 0],
    [10, 10_000],
  ] as const) {
    const { token, answer, pass, serial } = await holding()
    const newer = word(token.requestNewer(serial))
    await answer(outcome)
    t.equal(await newer, outcome === UNAVAILABLE ? 'wait' : 'token-2')
    pass(passMs)
    const next = word(outcome === UNAVAILABLE ? token.obtain() : token.requestNewer(serial + 1))
    await answer(3_600)
    t.equal(await next, outcome === UNAVAILABLE ? 'token-2' : 'token-3')
  }
})

for (const hours of [1, -1]) {
  t.test(`a wall clock that steps by ${hours} h neither keeps a token nor delays a request`, async (t) => {
    const { token, answer, waiting, pass, step } = await holding()
    step(hours * 3_600_000)
    pass(3_000_000)
    t.equal(await word(token.obtain()), 'token-1')
    t.equal(await waiting(), 0)
    pass(600_000)
    for (let failure = 0; failure < 3; failure += 1) {
      const asked = word(token.obtain())
      await answer(UNAVAILABLE)
      t.equal(await asked, 'wait')
    }
    step(-hours * 3_600_000)
    pass(2_000)
    const second = word(token.obtain())
    await answer(3_600)
    t.equal(await second, 'token-2')
  })
}
