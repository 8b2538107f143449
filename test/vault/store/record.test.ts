import fc from 'fast-check'
import type { Redis } from 'ioredis'
import t from 'tap'
import {
  type RecordState,
  recordMembers,
  type StoredRecord,
  unexpired,
} from '../../../src/vault/store/record.ts'
import { createRedisKeys } from '../../../src/vault/store/redis/keys.ts'
import { createRedisRecords } from '../../../src/vault/store/redis/records.ts'
import type { NewRecord } from '../../../src/vault/store/store.ts'
import { startRedis } from '../../helpers/redis.ts'
import { scriptsAt } from './scripts-at.ts'
import { newKey, openCommands, PREFIX, singleTarget, untilConnected } from './stores.ts'

const MINUTE = 60_000
const HOUR = 60 * MINUTE
const IDLE_MS = 2 * HOUR
/** Ten years ahead, so that Redis deletes nothing by its own clock. */
const START = Date.now() + 10 * 365 * 24 * HOUR
const NOTHING: RecordState = { record: null, end: null }

/** Sealed tokens may have any byte. */
const SEALED = String.fromCharCode(...Array.from({ length: 256 }, (_, code) => code))
const RECORD: NewRecord = {
  tokens: SEALED,
  createdAt: START,
  endsAt: START + 12 * HOUR,
  flow: 'code',
  client: `quotes " \\ and ü € \u0000 ${'x'.repeat(500)}`,
}

type Members = ReturnType<typeof recordMembers>

/** One request, and the servers's clock and replication id when it comes. `of`: how far from the record's generation. */
interface Request {
  readonly text: string
  readonly passMs: number
  readonly failsOver: boolean
  readonly run: (members: Members, key: string, gen: number) => Promise<unknown>
}

const attempt = fc.constantFrom('a', 'b', 'c')
const why = fc.constantFrom({}, { reason: 'logout' }, { reason: 'replaced' })
/** Mostly the generation of the record. */
const off = fc.constantFrom(0, 0, 0, 0, -1, 1)
const whole = fc.constantFrom(0, 1_000, 15_000, 45_000)
const some = fc.constantFrom(0, 1, 999.5, 1_000, 4_000, 15_000, MINUTE, HOUR)
const lease = fc.constantFrom(1_000, 15_000)

type Run = Request['run']

/** The requests of one member with these arguments. `off`: how far their generation is from that of the record. */
function requestsOf<Args extends object>(
  member: string,
  args: { [Name in keyof Args]: fc.Arbitrary<Args[Name]> },
  run: (to: Members, key: string, args: Args, gen: number) => Promise<unknown>,
): fc.Arbitrary<[string, Run]> {
  return fc
    .record(args)
    .map((made) => [`${member} ${JSON.stringify(made)}`, (to, key, gen) => run(to, key, made as Args, gen)])
}

const beginRefresh = requestsOf(
  'beginRefresh',
  { attempt, off, leaseMs: lease, openMs: whole, livesMs: some, forcedWindowMs: fc.constantFrom(0, MINUTE) },
  (to, key, { off, ...request }, gen) => to.beginRefresh(key, { ...request, gen: gen + off }),
)

const requests: fc.Arbitrary<[string, Run]> = fc.oneof(
  requestsOf('create', { flow: fc.constantFrom('code', 'password') }, (to, key, { flow }) =>
    to.create(key, { ...RECORD, flow }, 15_000.5),
  ),
  requestsOf('confirm', {}, (to, key) => to.confirm(key)),
  requestsOf('read', {}, (to, key) => to.read(key)),
  requestsOf('readState', {}, (to, key) => to.readState(key)),
  requestsOf('readEnd', {}, (to, key) => to.readEnd(key)),
  requestsOf('touch', {}, (to, key) => to.touch(key)),
  ...Array<typeof beginRefresh>(8).fill(beginRefresh),
  requestsOf(
    'renewLease',
    { attempt, off, doubts: fc.nat(3), leaseMs: lease },
    (to, key, { off, ...request }, gen) => to.renewLease(key, { ...request, gen: gen + off }),
  ),
  requestsOf(
    'releaseLease',
    { attempt, off, doubts: fc.option(fc.integer({ min: 1, max: 3 })), retryInMs: some },
    (to, key, { attempt, off, doubts, retryInMs }, gen) => {
      const inDoubt = doubts === null ? null : { gen: gen + off, doubts }
      return to.releaseLease(key, { attempt, inDoubt, retryInMs })
    },
  ),
  requestsOf(
    'replaceTokens',
    { off, tokens: fc.constantFrom('x', '\u00ff\u0000y', 'z') },
    (to, key, { off, tokens }, gen) => to.replaceTokens(key, { tokens, gen: gen + off }),
  ),
  requestsOf('reseal', { was: fc.constantFrom(SEALED, 'x') }, (to, key, { was }) =>
    to.reseal(key, was, 'resealed'),
  ),
  requestsOf(
    'end',
    { off: fc.option(off), attempt: fc.option(attempt), why, ifLimitPassed: fc.boolean() },
    (to, key, { off, attempt, why, ifLimitPassed }, gen) =>
      to.end(key, {
        ...why,
        ifLimitPassed,
        ...(off === null ? {} : { gen: gen + off }),
        ...(attempt === null ? {} : { attempt }),
      }),
  ),
)

/** Each reply that a script has, since each of its return codes needs a test. */
const REPLIES = {
  confirm: [true, false],
  touch: [true, false],
  beginRefresh: ['granted', 'replaced', 'busy', 'paused', 'backing_off', 'forced_before', 'gone'],
  renewLease: ['held', 'taken', 'gone'],
  replaceTokens: ['replaced', 'newer', 'gone'],
  reseal: [true, false],
  end: ['ended', 'precondition_failed', 'gone'],
}

const sequences = fc.array(
  fc
    .record({
      request: requests,
      passMs: fc.constantFrom(0, 0, 0, 1, 1, 500, 1_000, 15_000, MINUTE, HOUR, -1, -1_000, -HOUR),
      failsOver: fc.constantFrom(...Array<boolean>(9).fill(false), true),
    })
    .map(({ request: [text, run], passMs, failsOver }): Request => ({ text, run, passMs, failsOver })),
  { minLength: 1, maxLength: 30 },
)

const NUMBERS = [
  ...['gen', 'createdAt', 'seenAt', 'endsAt', 'doubts', 'leaseUntil', 'leasedAt', 'openUntil'],
  ...['retryAt', 'retrySetAt', 'forcedAt', 'forcedGen', 'replacedAt'],
]

/** What the scripts have left in Redis, as the record machine has it. */
async function stateIn(client: Redis, key: string): Promise<RecordState> {
  const redisKey = `${PREFIX}s:${key}`
  const endKey = `${PREFIX}e:{${redisKey}}`
  const fields = await client.hgetallBuffer(redisKey)
  const textOf = (name: string): string => fields[name]?.toString('latin1') ?? ''
  const numbers = Object.fromEntries(NUMBERS.map((name) => [name, Number(textOf(name))]))
  const [expireAt, endExpireAt] = [await client.pexpiretime(redisKey), await client.pexpiretime(endKey)]
  const kept = (await client.get(endKey))?.split(' ')
  const record = {
    tokens: textOf('tokens'),
    flow: (textOf('flow') || 'code') as StoredRecord['flow'],
    client: fields.client?.toString() ?? '',
    lease: textOf('lease'),
    history: textOf('history'),
    ...numbers,
    expireAt,
  } as StoredRecord
  return {
    record: 'gen' in fields ? record : null,
    end: kept === undefined ? null : { reason: kept[0]!, at: Number(kept[1]), expireAt: endExpireAt },
  }
}

t.test(
  'each script replies and writes what the record machine does, whatever comes in which order',
  async (t) => {
    const client = openCommands(t, singleTarget((await startRedis(t)).port)) as Redis
    await untilConnected(client)
    const seen = { now: START, history: 'aaaaaaaa' }
    let wall = START
    const scripts = createRedisRecords(scriptsAt(client, seen), {
      redisKeys: createRedisKeys(PREFIX),
      idleMs: IDLE_MS,
      wall: () => wall,
    })
    const replies = new Set<string>()

    const property = fc.asyncProperty(
      sequences,
      fc.constantFrom(0, 4_999, -6_000, HOUR),
      async (sequence, wrongBy) => {
        const key = newKey()
        let state = NOTHING
        seen.now = START
        seen.history = 'aaaaaaaa'
        const machine = recordMembers(
          async (_key, _member, step) => {
            const [after, reply] = step(state, { ...seen, idleMs: IDLE_MS })
            state = after
            return reply
          },
          () => wall,
        )
        await scripts.create(key, RECORD, 12 * HOUR)
        await machine.create(key, RECORD, 12 * HOUR)
        for (const { text, run, passMs, failsOver } of sequence) {
          seen.now += passMs
          wall = seen.now + wrongBy
          if (failsOver) seen.history = seen.history === 'aaaaaaaa' ? 'bbbbbbbb' : 'aaaaaaaa'
          const before = state
          state = unexpired(state, seen.now)
          // Redis counts by its own clock.
          if (state.record !== before.record) await client.del(`${PREFIX}s:${key}`)
          if (state.end !== before.end) await client.del(`${PREFIX}e:{${PREFIX}s:${key}}`)
          const gen = state.record?.gen ?? 1
          const expected = await run(machine, key, gen)
          const kind = (expected as { kind?: string } | null)?.kind ?? expected
          replies.add(`${text.split(' ')[0]} ${kind}`)
          const reply = await run(scripts, key, gen)
          if (sorted(reply) !== sorted(expected))
            throw new Error(`${text} at ${seen.now}: ${sorted(reply)} instead of ${sorted(expected)}`)
          const written = await stateIn(client, key)
          const [has, should] = [sorted(written), sorted(state)]
          if (has !== should) throw new Error(`${text} at ${seen.now} leaves\n${has} instead of\n${should}`)
        }
      },
    )
    await fc.assert(property, { seed: 1, numRuns: 1_000 })
    for (const [script, kinds] of Object.entries(REPLIES))
      for (const kind of kinds) t.ok(replies.has(`${script} ${kind}`), `${script} ${kind} was among them`)
  },
)

function sorted(value: unknown): string {
  return JSON.stringify(value ?? null, (_name, one: unknown) =>
    one !== null && typeof one === 'object' ? Object.fromEntries(Object.entries(one).sort()) : one,
  )
}
