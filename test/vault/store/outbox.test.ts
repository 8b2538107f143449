import t, { type Test } from 'tap'
import { createLog } from '../../../src/log.ts'
import { reportWrites } from '../../../src/vault/cache.ts'
import { createMemoryStore } from '../../../src/vault/store/memory/store.ts'
import { createOutbox, type Pending } from '../../../src/vault/store/outbox.ts'
import type { RecordKey } from '../../../src/vault/store/record.ts'
import { type SessionStore, StoreUnavailable } from '../../../src/vault/store/store.ts'
import { elapsed } from '../../helpers/wait.ts'
import { installVirtualTime } from '../refresh/virtual-time.ts'
import { IDLE_MS, leaseRequest, newKey, newRecord } from './stores.ts'

/** `down`: the command does not run. `unanswered`: it runs, and its reply is lost. `broken`: a programming error. */
type Fault = 'down' | 'unanswered' | 'broken'

/** A command takes up to 800 ms to fail. */
const FAILS_AFTER_MS = 800

/** An outbox over a store in memory whose commands fail as the test says. */
function start(t: Test) {
  const time = installVirtualTime(t)
  const memory = createMemoryStore({ now: time.now, idleMs: IDLE_MS })
  t.teardown(() => memory.close())
  const faults = new Map<string, Fault>()
  const calls: { name: string; key: RecordKey; at: number }[] = []
  const retried: string[] = []
  const restored: string[] = []
  const changed: RecordKey[] = []
  const incidentListeners: (() => void)[] = []

  const failing = (name: keyof SessionStore & string) => {
    const member = memory[name] as unknown as (...args: unknown[]) => Promise<unknown>
    return async (...args: unknown[]): Promise<unknown> => {
      calls.push({ name, key: String(args[0]), at: time.now() })
      const fault = faults.get(name) ?? faults.get(String(args[0])) ?? faults.get('all')
      if (fault === undefined) return await member(...args)
      if (fault === 'broken') throw new TypeError('a programming error')
      if (fault === 'unanswered') await member(...args)
      await elapsed(FAILS_AFTER_MS)
      throw new StoreUnavailable(new Error(fault))
    }
  }
  const commands = [
    'read',
    'touch',
    'end',
    'beginRefresh',
    'releaseLease',
    'replaceTokens',
    'schedule',
  ] as const
  const base = {
    ...memory,
    health: { ...memory.health, onIncident: (listener: () => void) => void incidentListeners.push(listener) },
    ...Object.fromEntries(commands.map((name) => [name, failing(name)])),
  } as SessionStore
  const store = createOutbox({
    store: reportWrites(base, (key) => void changed.push(key)),
    clock: time.clock,
    log: createLog('silent'),
    onRetried: (write) => void retried.push(write),
    onRestored: (write) => void restored.push(write),
  })
  return {
    time,
    memory,
    store,
    retried,
    restored,
    changed,
    /** One command, the commands on one session, or all. */
    fail: (what: (typeof commands)[number] | RecordKey, fault: Fault) => void faults.set(what, fault),
    heal: () => faults.clear(),
    incident: () => {
      for (const listener of incidentListeners) listener()
    },
    /** The calls of this command, for one session or all. */
    callsOf: (name: string, key?: RecordKey) =>
      calls.filter((call) => call.name === name && call.key === (key ?? call.key)),
    async session(): Promise<RecordKey> {
      const key = newKey()
      await memory.create(key, newRecord(time.now()), 15_000)
      await memory.confirm(key)
      return key
    },
    /** A promoted server has this session as it was at its start. */
    async loses(key: RecordKey): Promise<void> {
      await memory.end(key)
      await memory.create(key, newRecord(time.now()), 36_000_000)
    },
    /** New tokens of the generation after `gen`. */
    write: (gen: number, endsAt = time.now() + 600_000) => ({ gen, tokens: `sealed-${gen + 1}`, endsAt }),
    /** The result of a promise once `ms` have passed; rejections are errors. */
    async after<T>(ms: number, work: Promise<T>): Promise<T | StoreUnavailable> {
      const result = work.catch((error: unknown) => {
        if (error instanceof StoreUnavailable) return error
        throw error
      })
      await time.advance(ms)
      return await result
    },
  }
}

type Setup = ReturnType<typeof start>

/** The result of a write that the store did not take. */
function resultOf<T extends { kind: string }>(
  written: T | Pending<T> | StoreUnavailable,
): Promise<T | { kind: 'expired' }> {
  if ('result' in written) return written.result
  throw new Error('no write is pending')
}

/** Writes tokens that the store does not take. `result`: how that ends. */
async function refuseTokens(
  { fail, store, write, after }: Setup,
  key: RecordKey,
  { gen = 1, endsAt, fault = 'down' }: { gen?: number; endsAt?: number; fault?: Fault } = {},
) {
  fail('replaceTokens', fault)
  return { result: resultOf(await after(FAILS_AFTER_MS, store.replaceTokens(key, write(gen, endsAt)))) }
}

function sessions({ session }: Setup, count: number): Promise<RecordKey[]> {
  return Promise.all(Array.from({ length: count }, session))
}

/** Only the timer of the memory store is left. */
const IDLE_TIMERS = 1

t.test('tokens that the store refuses are pending, and retried at least every two seconds', async (t) => {
  const setup = start(t)
  const { time, memory, store, retried, heal, callsOf, session } = setup
  const key = await session()
  const { result } = await refuseTokens(setup, key)
  t.equal(store.pendingTokens(), 1)
  t.match(await store.read(key), { gen: 2, tokens: 'sealed-2' }, 'this process reads them')
  t.match(await store.readState(key), { gen: 2 })
  t.match(await memory.read(key), { gen: 1 })
  let drained = false
  const stopped = store.drainPendingTokens().then(() => {
    drained = true
  })
  await time.advance(30_000)
  t.notOk(drained, 'a stop waits for them')
  const tries = callsOf('replaceTokens').map(({ at }) => at)
  for (let at = 1; at < tries.length; at += 1) t.ok(tries[at]! - tries[at - 1]! <= 2_000)
  t.ok(tries.length > 10)
  t.ok(tries[1]! - tries[0]! > FAILS_AFTER_MS, 'after a pause')
  t.strictSame(retried, Array(tries.length - 1).fill('tokens'), 'each retry is reported')
  heal()
  await time.advance(3_000)
  t.strictSame(await result, { kind: 'replaced', written: true })
  t.equal(store.pendingTokens(), 0)
  t.match(await memory.read(key), { gen: 2, tokens: 'sealed-2' })
  await stopped
  t.equal(time.waiting(), IDLE_TIMERS)
})

const ENDS_OF_PENDING_TOKENS: Record<
  string,
  { fault?: Fault; happens?: (setup: Setup, key: RecordKey) => unknown; shows?: string; expected: unknown }
> = {
  'their write had succeeded': {
    fault: 'unanswered',
    happens: ({ heal }) => heal(),
    shows: 'sealed-2',
    expected: { kind: 'replaced', written: false },
  },
  'another replica has stored newer ones': {
    async happens({ memory, heal }, key) {
      await memory.replaceTokens(key, { gen: 1, tokens: 'of-a-sibling' })
      heal()
    },
    shows: 'of-a-sibling',
    expected: { kind: 'newer' },
  },
  'the session has ended': {
    async happens({ memory, heal }, key) {
      await memory.end(key, { reason: 'logout' })
      heal()
    },
    expected: { kind: 'gone' },
  },
  'the absolute limit of the session passes': { shows: 'sealed-2', expected: { kind: 'expired' } },
  'a programming error': {
    happens: ({ fail }) => fail('replaceTokens', 'broken'),
    shows: 'sealed-2',
    expected: 'TypeError',
  },
}

for (const [name, { fault, happens, shows, expected }] of Object.entries(ENDS_OF_PENDING_TOKENS)) {
  t.test(`what becomes of pending tokens: ${name}`, async (t) => {
    const setup = start(t)
    const { time, store, session } = setup
    const key = await session()
    const { result } = await refuseTokens(setup, key, { endsAt: time.now() + 5_000, ...(fault && { fault }) })
    const ended = result.catch((error: Error) => error.name)
    await happens?.(setup, key)
    t.equal((await store.read(key))?.tokens, shows)
    await time.advance(8_000)
    t.strictSame(await ended, expected)
    t.equal(store.pendingTokens(), 0)
    await store.drainPendingTokens()
    t.equal(time.waiting(), IDLE_TIMERS)
  })
}

t.test('of two pending tokens of a session the newer ones stay, in whichever order they come', async (t) => {
  const setup = start(t)
  const { store, session } = setup
  for (const order of [
    [1, 2],
    [2, 1],
  ]) {
    const key = await session()
    const results = []
    for (const gen of order) results.push((await refuseTokens(setup, key, { gen })).result)
    t.match(await store.read(key), { gen: 3, tokens: 'sealed-3' })
    t.strictSame(await results[order.indexOf(1)], { kind: 'newer' })
  }
  t.equal(store.pendingTokens(), 2)
})

t.test('a refresh begins once pending tokens of the session are stored', async (t) => {
  const setup = start(t)
  const { memory, store, heal, session, after, callsOf } = setup
  const key = await session()
  await refuseTokens(setup, key)
  const request = leaseRequest('a', { gen: 2 })
  t.ok((await after(FAILS_AFTER_MS, store.beginRefresh(key, request))) instanceof StoreUnavailable)
  t.strictSame(callsOf('beginRefresh'), [], 'the store is not asked')
  heal()
  t.match(await after(FAILS_AFTER_MS, store.beginRefresh(key, request)), { kind: 'granted' })
  t.match(await memory.read(key), { gen: 2, tokens: 'sealed-2', doubts: 1 })
})

t.test('a session ends at its idle limit although its new tokens are pending', async (t) => {
  const setup = start(t)
  const { time, memory, store, session } = setup
  const key = await session()
  await refuseTokens(setup, key, { endsAt: time.now() + 10 * IDLE_MS })
  await time.advance(IDLE_MS)
  t.equal((await store.read(key))!.gen, 2)
  const ended = await store.end(key, { reason: 'idle', ifLimitPassed: true })
  t.match(ended, { kind: 'ended', tokens: 'sealed-1' })
  t.equal((await memory.readEnd(key))?.reason, 'idle')
})

t.test('a lease that could not be released is released as soon as the store is back', async (t) => {
  const { time, memory, store, retried, fail, heal, callsOf, session, after } = start(t)
  const [key, given] = [await session(), await session()]
  await memory.beginRefresh(key, leaseRequest('a'))
  fail('releaseLease', 'down')
  const release = { attempt: 'a', inDoubt: { gen: 1, doubts: 1 }, retryInMs: 5_000 }
  await after(FAILS_AFTER_MS, store.releaseLease(key, release))
  await time.advance(20_000)
  const tries = callsOf('releaseLease')
  t.ok(tries.length > 10, `${tries.length} tries`)
  t.strictSame(new Set(retried), new Set(['lease']))
  t.not((await memory.read(key))?.leaseUntil, 0)
  heal()
  await time.advance(2_000)
  t.match(await memory.read(key), { doubts: 1, leaseUntil: 0 })
  const { length } = callsOf('releaseLease')
  await time.advance(10_000)
  t.equal(callsOf('releaseLease').length, length)

  fail('releaseLease', 'down')
  await after(FAILS_AFTER_MS, store.releaseLease(key, release))
  await time.advance(600_000)
  t.ok(callsOf('releaseLease').length > length + 100)
  t.equal(time.waiting(), IDLE_TIMERS, 'it is abandoned after ten minutes, long after the lease expired')

  fail('beginRefresh', 'unanswered')
  const begun = await after(FAILS_AFTER_MS, store.beginRefresh(given, leaseRequest('a')))
  t.ok(begun instanceof StoreUnavailable, 'a lease that was granted without a reply')
  t.match(await memory.read(given), { doubts: 1 })
  heal()
  await time.advance(1_000)
  t.match(await memory.read(given), { doubts: 0, leaseUntil: 0 })
})

t.test('a store that refuses refreshes for long fills no memory, and delays no tokens', async (t) => {
  const setup = start(t)
  const { time, memory, store, fail, heal, callsOf, session, after } = setup
  const [key, other] = [await session(), await session()]
  const { result } = await refuseTokens(setup, key)
  fail('beginRefresh', 'down')
  fail('releaseLease', 'down')
  const ATTEMPTS = 3_000
  const refused = Array.from({ length: ATTEMPTS }, (_, at) =>
    store.beginRefresh(other, leaseRequest(`${at}`)),
  )
  await after(FAILS_AFTER_MS, Promise.allSettled(refused))
  const since = time.now()
  await time.advance(20_000)
  const tries = callsOf('replaceTokens', key).filter(({ at }) => at >= since)
  t.ok(tries.length > 10)
  for (const [at, { at: triedAt }] of tries.entries())
    t.ok(triedAt - (tries[at - 1]?.at ?? since) <= 2_000, 'every two seconds')

  heal()
  const before = callsOf('releaseLease').length
  await time.advance(60_000)
  const released = callsOf('releaseLease').length - before
  t.ok(released > 100 && released <= 1_000, `${released} releases`)
  t.match(await memory.read(key), { gen: 2 })
  t.strictSame(await result, { kind: 'replaced', written: true })

  fail('beginRefresh', 'unanswered')
  await after(FAILS_AFTER_MS, store.beginRefresh(other, leaseRequest('late')))
  t.match(await memory.read(other), { doubts: 1 })
  heal()
  await time.advance(1_000)
  t.match(await memory.read(other), { doubts: 0, leaseUntil: 0 }, 'later ones are released again')
})

t.test('an end that waits gives way to the next one of the same session', async (t) => {
  const { time, store, fail, callsOf, session, after } = start(t)
  const [key, other] = [await session(), await session()]
  fail('end', 'down')
  const first = resultOf(await after(FAILS_AFTER_MS, store.endUntilTaken(key, {}, 60_000)))
  const second = resultOf(await after(FAILS_AFTER_MS, store.endUntilTaken(key, {}, 3_000)))
  t.strictSame(await first, { kind: 'expired' })
  void (await after(FAILS_AFTER_MS, store.endUntilTaken(other, {}, 60_000)))
  await time.advance(4_000)
  t.strictSame(await second, { kind: 'expired' }, 'it expires at its own deadline')
  const { length } = callsOf('end', other)
  await time.advance(10_000)
  t.ok(callsOf('end', other).length > length, 'another session is still retried')
})

const GIVES_UP = {
  'after a stop': ({ store }) => store.drainPendingTokens(),
  'after a programming error': async ({ fail }) => fail('all', 'broken'),
} satisfies Record<string, (setup: Setup) => Promise<void>>

for (const [when, happens] of Object.entries(GIVES_UP)) {
  t.test(`${when} neither releases nor ends are retried`, async (t) => {
    const setup = start(t)
    const { time, store, fail, callsOf, session, after } = setup
    const [key, other, late] = [await session(), await session(), await session()]
    const tries = () => callsOf('releaseLease').length + callsOf('end').length
    fail('all', 'down')
    await after(FAILS_AFTER_MS, store.releaseLease(key, { attempt: 'a', inDoubt: null, retryInMs: 0 }))
    const end = resultOf(await after(FAILS_AFTER_MS, store.endUntilTaken(other, {}, 600_000)))
    await happens(setup)
    await time.advance(2_000)
    t.strictSame(await end, { kind: 'expired' })
    let count = tries()
    if (when === 'after a stop') {
      const begun = resultOf(await after(FAILS_AFTER_MS, store.endUntilTaken(late, {}, 600_000)))
      t.strictSame(await begun, { kind: 'expired' }, 'no retry begins')
      count += 1
    }
    await time.advance(60_000)
    t.equal(tries(), count)
    t.equal(time.waiting(), IDLE_TIMERS)
  })
}

t.test('an end that the store does not accept is executed when the store is back', async (t) => {
  const { time, memory, store, retried, fail, heal, session, after } = start(t)
  const key = await session()
  fail('end', 'down')
  const request = { gen: 1, reason: 'refused' }
  const ended = resultOf(await after(FAILS_AFTER_MS, store.endUntilTaken(key, request, 600_000)))
  await time.advance(60_000)
  heal()
  await time.advance(2_000)
  t.strictSame(await ended, { kind: 'ended', tokens: 'sealed-1' })
  t.equal((await memory.readEnd(key))?.reason, 'refused')
  t.strictSame(new Set(retried), new Set(['end']))
  t.strictSame(await store.endUntilTaken(key, {}, 600_000), { kind: 'gone' })
})

t.test('what this process knew of a session is out of date after each of its writes', async (t) => {
  const { time, store, fail, session, loses, write, after, incident, changed } = start(t)
  const key = await session()
  await store.touch(key)
  const condition = { reason: 'idle', ifLimitPassed: true }
  t.strictSame(await store.end(key, condition), { kind: 'precondition_failed' })
  t.strictSame(changed, [], 'not after an activity, nor where nothing was done')
  const writes: Record<string, () => Promise<unknown>> = {
    'new tokens': () => store.replaceTokens(key, write(1)),
    'a repair': async () => {
      await loses(key)
      incident()
      await time.settle()
    },
    'an end': () => store.end(key, { reason: 'logout' }),
    'an end of what Redis has lost': () => store.end(key),
    'an end by a limit': () => store.end(key, condition),
  }
  for (const [name, change] of Object.entries(writes)) {
    changed.length = 0
    await change()
    t.strictSame([...new Set(changed)], [key], name)
  }
  changed.length = 0
  const lives = await session()
  fail('end', 'unanswered')
  t.ok((await after(FAILS_AFTER_MS, store.end(lives))) instanceof StoreUnavailable)
  t.strictSame(changed, [lives], 'an end without a reply')
})

const endLater = async ({ store, heal, time, after }: Setup, key: RecordKey) => {
  await after(FAILS_AFTER_MS, store.endUntilTaken(key, { reason: 'logout' }, 600_000))
  heal()
  await time.advance(2_000)
}
const ENDS = {
  'an end': async ({ store }, key) => void (await store.end(key, { reason: 'logout' })),
  'a retried end': async (setup, key) => {
    setup.fail('end', 'down')
    await endLater(setup, key)
  },
  'a retried end that had succeeded': async (setup, key) => {
    setup.fail('end', 'unanswered')
    await endLater(setup, key)
  },
  'an end that is called again, since the first one had no reply,': async (
    { store, fail, heal, after },
    key,
  ) => {
    fail('end', 'unanswered')
    await after(FAILS_AFTER_MS, store.end(key, { reason: 'logout' }))
    heal()
    await store.end(key, { reason: 'logout' })
  },
  'the end at a limit': async ({ store, time }, key) => {
    await time.advance(IDLE_MS)
    await store.end(key, { reason: 'logout', ifLimitPassed: true })
  },
} satisfies Record<string, (setup: Setup, key: RecordKey) => Promise<void>>

for (const [name, end] of Object.entries(ENDS)) {
  t.test(`${name} that a failover lost is repeated, and this process sees it at once`, async (t) => {
    const setup = start(t)
    const { time, memory, store, restored, incident, session } = setup
    const key = await session()
    const record = newRecord(time.now())
    await end(setup, key)
    // A replica that was promoted has not received the end.
    await memory.create(key, record, 600_000)
    t.strictSame([await store.read(key), await store.readState(key)], [null, null])
    incident()
    await time.advance(1_000)
    t.equal(await memory.read(key), null)
    t.equal((await memory.readEnd(key))?.reason, 'logout')
    t.strictSame(restored, ['end'])
  })
}

t.test('an end whose condition no longer holds is not repeated, and the session is served', async (t) => {
  const setup = start(t)
  const { time, memory, store, restored, incident, loses, callsOf } = setup
  const [active, newer] = (await sessions(setup, 2)) as [RecordKey, RecordKey]
  await time.advance(IDLE_MS)
  t.match(await store.end(active, { reason: 'idle', ifLimitPassed: true }), { kind: 'ended' })
  t.match(await store.endUntilTaken(newer, { gen: 1, reason: 'refused' }, 1_000), { kind: 'ended' })
  // The server that takes over knows of later activity, or of newer tokens.
  for (const key of [active, newer]) await loses(key)
  await memory.replaceTokens(newer, { gen: 1, tokens: 'sealed-2' })
  incident()
  await time.advance(1)
  t.match(await store.read(active), { gen: 1 })
  t.match(await store.read(newer), { gen: 2 })
  t.strictSame(restored, [])
  t.equal(callsOf('schedule', active).length, 1, 'it may have been taken out of the due queue')
})

t.test('an end under a condition that finds no session hides none that another server has', async (t) => {
  const { time, memory, store } = start(t)
  const key = newKey()
  t.match(await store.end(key, { gen: 1, reason: 'refused' }), { kind: 'gone' })
  await memory.create(key, newRecord(time.now()), 600_000)
  t.match(await store.read(key), { gen: 1 })
})

t.test('a sign-out after an end under a condition is repeated without one', async (t) => {
  const { time, memory, store, restored, incident, loses, session } = start(t)
  const key = await session()
  await store.end(key, { gen: 1, reason: 'refused' })
  await loses(key)
  await memory.replaceTokens(key, { gen: 1, tokens: 'sealed-2' })
  await store.end(key, { reason: 'logout' })
  await loses(key)
  incident()
  await time.advance(1)
  t.equal(await memory.read(key), null)
  t.strictSame(restored, ['end'])
})

t.test('a read shows tokens that a failover lost, and they are written again', async (t) => {
  const { time, memory, store, fail, heal, restored, loses, session, write } = start(t)
  const key = await session()
  await store.replaceTokens(key, write(1))
  await loses(key)
  fail('replaceTokens', 'down')
  t.match(await store.read(key), { gen: 2, tokens: 'sealed-2' })
  t.match(await store.readState(key), { gen: 2 })
  heal()
  await time.advance(2_000)
  t.match(await memory.read(key), { gen: 2, tokens: 'sealed-2' })
  t.strictSame(restored, ['tokens'])
})

t.test('after an incident only the writes that the store lacks are written again', async (t) => {
  const setup = start(t)
  const { time, memory, store, restored, incident, loses, callsOf, write } = setup
  const keys = await sessions(setup, 5)
  const [behind, same, ahead, gone, back] = keys as [string, string, string, string, string]
  for (const key of [behind, same, ahead, gone]) await store.replaceTokens(key, write(1))
  await store.end(back, { reason: 'logout' })
  for (const key of [behind, back]) await loses(key)
  await memory.replaceTokens(ahead, { gen: 2, tokens: 'sealed-3' })
  await memory.end(gone)
  incident()
  await time.advance(1)
  t.strictSame([...restored].sort(), ['end', 'tokens'])
  t.equal(callsOf('schedule', behind).length, 1, 'its queue entry may be lost too')
  t.equal((await memory.readEnd(back))?.reason, 'logout')
  const records = await Promise.all(keys.map((key) => memory.read(key)))
  t.strictSame(
    records.map((record) => record?.gen ?? null),
    [2, 2, 3, null, null],
  )
  await time.advance(10_000)
  t.equal(restored.length, 2)
  t.equal(time.waiting(), IDLE_TIMERS)
})

t.test('in an outage the outbox tries at most 64 writes at once, until the store is back', async (t) => {
  const setup = start(t)
  const { time, store, restored, incident, loses, fail, heal, callsOf, write } = setup
  const keys = await sessions(setup, 200)
  for (const key of keys) {
    await store.replaceTokens(key, write(1, time.now() + IDLE_MS))
    await loses(key)
  }
  fail('all', 'down')
  incident()
  await time.advance(90_000)
  const tries = callsOf('replaceTokens').length - keys.length
  t.ok(tries <= (90_000 / FAILS_AFTER_MS) * 64, `${tries} tries`)
  heal()
  await time.advance(FAILS_AFTER_MS + 500)
  t.equal(restored.length, keys.length, 'although more than a minute has passed')
})

t.test('a Cluster node that is away delays no write to the others', async (t) => {
  const setup = start(t)
  const { time, store, restored, incident, loses, fail, heal, session, write } = setup
  const keys = await sessions(setup, 100)
  for (const key of keys) {
    await store.replaceTokens(key, write(1))
    await loses(key)
  }
  for (const key of keys.slice(0, 60)) fail(key, 'down')
  incident()
  await time.advance(2 * FAILS_AFTER_MS)
  t.equal(restored.length, 40)
  const late = await session()
  await store.replaceTokens(late, write(1))
  await loses(late)
  incident()
  await time.advance(3_000)
  t.equal(restored.length, 41, 'nor one of a later incident')
  heal()
  await time.advance(2_000)
  t.equal(restored.length, 101)
})

t.test('incidents that follow each other cost one round a second, and none costs nothing', async (t) => {
  const setup = start(t)
  const { time, store, incident, callsOf, write } = setup
  const keys = await sessions(setup, 10)
  for (const key of keys) await store.replaceTokens(key, write(1))
  await time.advance(30_000)
  t.equal(callsOf('replaceTokens').length, keys.length)
  for (let at = 0; at < 300; at += 1) {
    incident()
    await time.advance(100)
  }
  const tries = callsOf('replaceTokens').length - keys.length
  t.ok(tries >= 290 && tries <= 310, `${tries} tries in 30 s`)
  await time.advance(2_000)
  const { length } = callsOf('replaceTokens')
  incident()
  await time.advance(5_000)
  t.equal(callsOf('replaceTokens').length, length, 'a write is kept for a minute')
})

t.test('a round follows each incident, for the writes before it alone', async (t) => {
  const { time, store, incident, fail, heal, callsOf, session, write } = start(t)
  const [before, after] = [await session(), await session()]
  await store.replaceTokens(before, write(1))
  fail(before, 'unanswered')
  incident()
  await time.settle()
  incident()
  await time.advance(1_000)
  await store.replaceTokens(after, write(1))
  heal()
  await time.advance(5_000)
  const { length } = callsOf('replaceTokens', before)
  t.ok(length >= 3)
  await time.advance(5_000)
  t.equal(callsOf('replaceTokens', before).length, length)
  t.equal(callsOf('replaceTokens', after).length, 1)
})

t.test('the newest 20,000 writes are kept', async (t) => {
  const setup = start(t)
  const { store, incident, time, callsOf, write } = setup
  const keys = await sessions(setup, 20_001)
  for (const key of keys) await store.replaceTokens(key, write(1))
  incident()
  await time.advance(1)
  t.strictSame(
    [0, 1, 20_000].map((at) => callsOf('replaceTokens', keys[at]!).length),
    [1, 2, 2],
  )
})

t.test('a stop writes lost writes last, and does not wait for a store that stays away', async (t) => {
  for (const isBack of [true, false]) {
    const { time, memory, store, fail, heal, incident, loses, callsOf, session, write } = start(t)
    const lost = await session()
    await store.replaceTokens(lost, write(1))
    await loses(lost)
    fail('all', 'down')
    incident()
    await time.advance(500)
    const finished = store.finish()
    if (isBack) heal()
    await time.advance(2_000)
    await finished
    t.equal((await memory.read(lost))?.gen, isBack ? 2 : 1)
    await time.advance(2_000)
    const { length } = callsOf('replaceTokens')
    incident()
    await time.advance(10_000)
    t.equal(callsOf('replaceTokens').length, length, 'no new round begins')
    t.equal(time.waiting(), IDLE_TIMERS)
  }
})

t.test('a confirmed end is known for a minute, and forgotten with one of the next ends', async (t) => {
  const { store, session, callsOf, time } = start(t)
  const key = await session()
  await store.end(key)
  const asksRedis = async (): Promise<boolean> => {
    const before = callsOf('read', key).length
    t.equal(await store.read(key), null)
    return callsOf('read', key).length > before
  }
  await time.advance(59_000)
  await store.end(await session())
  t.equal(await asksRedis(), false)
  await time.advance(2_000)
  await store.end(await session())
  t.equal(await asksRedis(), true)
})
