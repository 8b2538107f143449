import fc from 'fast-check'
import t from 'tap'
import type { RecordKey, SessionStore } from '../../src/store/port.ts'
import type { Access } from '../../src/tokens/access.ts'
import { type Behaviour, createHouse, type House, type Presentation, TIMEOUT_MS, TIMING } from './house.ts'

/** Of the first tokens of each session, in seconds: some are due from the start. */
const LIVES = [0, 60, 60]
const SESSIONS = LIVES.length
const REPLICAS = 2
/** More of them on demand: `INTERLEAVINGS=5000`. */
const DEMANDED = process.env.INTERLEAVINGS
const RUNS = Number(DEMANDED ?? 250)

/** Commands whose answer can get lost. */
const LOSABLE = ['beginRefresh', 'settleRefresh', 'replaceTokens', 'end', 'schedule', 'claimDue'] as const

type Step =
  | { do: 'request'; replica: number; session: number }
  | { do: 'pass'; ms: number }
  | { do: 'behave'; how: Behaviour }
  | { do: 'store'; down: boolean }
  | { do: 'lose'; command: keyof SessionStore }
  | { do: 'crash'; replica: number }
  | { do: 'logout'; replica: number; session: number }

const replica = fc.nat(REPLICAS - 1)
const session = fc.nat(SESSIONS - 1)
const delay = fc.constantFrom(0, 300, 2_000, 4_000, 9_000, 20_000)
const behaviour: fc.Arbitrary<Behaviour> = fc.oneof(
  { weight: 4, arbitrary: delay.map((ms) => ({ kind: 'granted' as const, ms })) },
  { weight: 2, arbitrary: delay.map((ms) => ({ kind: 'unavailable' as const, ms })) },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant('in_doubt' as const), ms: delay, rotates: fc.boolean() }),
  },
)
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 5, arbitrary: fc.record({ do: fc.constant('request' as const), replica, session }) },
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('pass' as const),
      ms: fc.constantFrom(50, 500, 2_000, 6_000, 15_000, 40_000),
    }),
  },
  { weight: 4, arbitrary: behaviour.map((how) => ({ do: 'behave' as const, how })) },
  { weight: 2, arbitrary: fc.boolean().map((down) => ({ do: 'store' as const, down })) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('lose' as const),
      command: fc.constantFrom(
        'beginRefresh',
        'settleRefresh',
        'replaceTokens',
        'end',
        'schedule',
        'claimDue',
      ),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('crash' as const), replica }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('logout' as const), replica, session }) },
)

/** Steps that together lead to where the dangers are, and that chance would seldom put in this order. */
const scene: fc.Arbitrary<Step[]> = fc
  .record({
    kind: fc.constantFrom('store' as const, 'crash' as const, 'expiry' as const, 'elsewhere' as const),
    how: behaviour,
    by: replica,
    of: session,
    ms: fc.constantFrom(500, 2_500, 6_000, 20_000),
  })
  .map(({ kind, how, by, of, ms }): Step[] => {
    const behave: Step = { do: 'behave', how }
    const asked: Step = { do: 'request', replica: by, session: of }
    const pass: Step = { do: 'pass', ms }
    const scenes: Record<typeof kind, Step[]> = {
      store: [behave, asked, { do: 'store', down: true }, pass, { do: 'store', down: false }],
      crash: [behave, asked, { do: 'crash', replica: by }, pass],
      expiry: [behave, { do: 'pass', ms: 45_000 }, pass],
      elsewhere: [behave, asked, pass, { do: 'request', replica: 1 - by, session: of }],
    }
    return scenes[kind]
  })

const script = fc
  .array(fc.oneof({ weight: 3, arbitrary: step.map((each) => [each]) }, { weight: 1, arbitrary: scene }), {
    minLength: 4,
    maxLength: 20,
  })
  .map((parts) => parts.flat())

interface Model {
  house: House
  keys: RecordKey[]
  loggedOut: Set<number>
  /** The store did not answer a sign-out, which may have been done all the same. */
  perhapsOut: Set<number>
  running: Promise<unknown>[]
}

t.test(
  'whatever happens in whatever order, no session is lost, none comes back, no token is replayed',
  async (t) => {
    let runs = 0
    await fc.assert(
      fc.asyncProperty(script, async (steps) => {
        const teardowns: (() => unknown)[] = []
        try {
          const model = await begin({ teardown: (handler) => teardowns.push(handler) })
          for (const each of steps) {
            await take(model, each)
            await neverBack(model)
          }
          noReplay(model.house)
          noneLost(model, await heal(model))
          noReplay(model.house)
          runs += 1
        } finally {
          for (const handler of teardowns.reverse()) await handler()
        }
      }),
      { numRuns: RUNS, interruptAfterTimeLimit: DEMANDED === undefined ? 12_000 : 3_600_000 },
    )
    t.ok(runs >= 5, `${runs} scripts`)
  },
)

async function begin(t: { teardown(handler: () => unknown): unknown }): Promise<Model> {
  const house = createHouse(t)
  const replicas = Array.from({ length: REPLICAS }, () => house.addReplica(() => 0.5))
  const keys = []
  for (let name = 0; name < SESSIONS; name += 1)
    keys.push(await house.addSession(replicas[0]!, name, LIVES[name]))
  return { house, keys, loggedOut: new Set(), perhapsOut: new Set(), running: [] }
}

async function take({ house, keys, loggedOut, perhapsOut, running }: Model, step: Step): Promise<void> {
  const living = house.replicas.filter(({ alive }) => alive)
  switch (step.do) {
    case 'request':
      running.push(house.request(living[step.replica]!, keys[step.session]!))
      return await house.time.settle()
    case 'pass':
      return await house.time.advance(step.ms)
    case 'behave':
      return house.behave(step.how)
    case 'store':
      return house.storeDown(step.down)
    case 'lose':
      return house.loseAnswer(step.command)
    case 'crash':
      house.crash(living[step.replica]!)
      house.addReplica(() => 0.5)
      return
    case 'logout': {
      const ended = living[step.replica]!.tokens.end(keys[step.session]!, 'logout')
      running.push(
        ended.then(
          () => loggedOut.add(step.session),
          () => perhapsOut.add(step.session),
        ),
      )
      return await house.time.settle()
    }
  }
}

/** A session that ended has no record any more, and gets no token. */
async function neverBack({ house, keys, loggedOut }: Model): Promise<void> {
  for (const name of loggedOut) {
    if ((await house.shared.read(keys[name]!)) !== null) throw new Error(`session ${name} is back`)
  }
}

/** What must never be seen at the token endpoint. */
function noReplay({ presentations, diedAt, strayIntents }: House): void {
  const byToken = new Map<string, Presentation[]>()
  for (const each of presentations) byToken.set(each.token, [...(byToken.get(each.token) ?? []), each])
  for (const all of byToken.values()) {
    for (const [at, each] of all.entries()) {
      const fault = faultOf(each, all.slice(0, at), { strayIntents, diedAt })
      if (fault !== null)
        throw new Error(`${each.token}, ${each.at - each.expiresAt} ms from expiry, presented ${fault}`)
    }
  }
}

function faultOf(
  each: Presentation,
  before: Presentation[],
  { strayIntents, diedAt }: Pick<House, 'strayIntents' | 'diedAt'>,
): string | null {
  const isHeld = ({ by }: Presentation): boolean => each.at < diedAt(by)
  const unanswered = before.filter(({ answeredAt }) => answeredAt > each.at)
  const doubtful = before.findIndex(
    ({ outcome, answeredAt }) => outcome !== 'unavailable' || answeredAt > each.at,
  )
  const replaced = before.some((one) => one.outcome === 'granted' && one.answeredAt <= each.at && isHeld(one))
  if (replaced) return 'though somebody holds newer tokens'
  const [first] = unanswered
  if (before.length === 1 && first && !strayIntents() && each.at < first.at + TIMEOUT_MS)
    return 'while the first time was under way'
  if (doubtful < 0 || each.at >= each.expiresAt) return null
  const marginMs = Math.min(TIMING.thresholdSeconds, each.lifeSeconds / 3) * 1_000
  if (each.at < each.expiresAt - marginMs / 3) return 'in doubt, long before expiry'
  return before.length - doubtful > 1 ? 'in doubt, and not for the first time' : null
}

/** Everything works again, and time enough passes for it to be noticed; then each session is asked for. */
async function heal({ house, keys, running }: Model): Promise<Access[]> {
  house.behave({ kind: 'granted' })
  house.storeDown(false)
  for (const command of LOSABLE) house.loseAnswer(command, 0)
  await house.time.advance(60_000)
  await Promise.all(running)
  const living = house.replicas.find(({ alive }) => alive)!
  const asked = Promise.all(keys.map((key) => house.request(living, key)))
  await house.time.advance(12_000)
  return await asked
}

/** A session lives on unless it was signed out, or its tokens were lost on the way from the authorization server. */
function noneLost({ house, loggedOut, perhapsOut }: Model, answers: Access[]): void {
  for (const [name, { kind }] of answers.entries()) {
    const lost = house.presentations.some(
      ({ family, rotated, outcome, by }) =>
        family === name && rotated && (outcome !== 'granted' || house.diedAt(by) < Number.POSITIVE_INFINITY),
    )
    // A presentation in doubt that the server takes up after another one looks like theft to it.
    const mayBeOver = lost || house.endedFamilies.has(name) || loggedOut.has(name) || perhapsOut.has(name)
    if (kind === 'login_required' ? mayBeOver : kind === 'token' && !loggedOut.has(name)) continue
    throw new Error(`session ${name} has ${kind}; signed out: ${loggedOut.has(name)}, lost: ${lost}`)
  }
}
