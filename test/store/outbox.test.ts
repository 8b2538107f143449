import { randomUUID } from 'node:crypto'
import t, { type Test } from 'tap'
import { createLog } from '../../src/log.ts'
import { createMemoryStore } from '../../src/store/memory/store.ts'
import { createOutbox, type Pending } from '../../src/store/outbox.ts'
import { reportWrites } from '../../src/store/report-writes.ts'
import { type RecordKey, type SessionStore, StoreUnavailable } from '../../src/store/store.ts'
import { elapsed } from '../helpers/wait.ts'
import { installVirtualTime } from '../tokens/virtual-time.ts'
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
  const touched: RecordKey[] = []
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
    health: {
      ...memory.health,
      onIncident: (listener: () => void) => void incidentListeners.push(listener),
    },
    ...Object.fromEntries(commands.map((name) => [name, failing(name)])),
  } as SessionStore
  const store = createOutbox({
    store: reportWrites(base, {
      onTouched: (key) => void touched.push(key),
      onChanged: (key) => void changed.push(key),
    }),
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
    touched,
    changed,
    /** One command, the commands on one session, or all. */
    fail: (what: (typeof commands)[number] | RecordKey, fault: Fault) => void faults.set(what, fault),
    heal: () => faults.clear(),
    incident: () => {
      for (const listener of incidentListeners) listener()
    },
    /** The time of each call of this command. */
    callsOf: (name: string) => calls.filter((call) => call.name === name).map(({ at }) => at),
    /** How often this command was called for a session. */
    callsFor: (name: string, key: RecordKey) =>
      calls.filter((call) => call.name === name && call.key === key).length,
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
    write: (gen: number, endsAt = time.now() + 600_000) => ({
      gen,
      attempt: randomUUID(),
      tokens: `sealed-${gen + 1}`,
      endsAt,
    }),
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

function resultOf<T extends { kind: string }>(
  result: T | Pending<T> | StoreUnavailable,
): Promise<T | { kind: 'expired' }> {
  if ('result' in result) return result.result
  throw new Error('no write is pending')
}

/** Only the timer of the memory store is left. */
const IDLE_TIMERS = 1

t.test('tokens that the store refuses are pending, and retried at least every two seconds', async (t) => {
  const { time, memory, store, retried, fail, heal, callsOf, session, write, after } = start(t)
  const key = await session()
  fail('replaceTokens', 'down')
  const result = resultOf(await after(FAILS_AFTER_MS, store.replaceTokens(key, write(1))))
  t.equal(store.pendingTokens(), 1)
  t.match(await store.read(key), { gen: 2, tokens: 'sealed-2' }, 'this process reads them')
  t.match(await memory.read(key), { gen: 1 })
  await time.advance(30_000)
  const tries = callsOf('replaceTokens')
  for (let at = 1; at < tries.length; at += 1) t.ok(tries[at]! - tries[at - 1]! <= 2_000)
  t.ok(tries.length > 10)
  t.strictSame(retried, Array(tries.length - 1).fill('tokens'), 'each retry is reported')
  heal()
  await time.advance(3_000)
  t.strictSame(await result, { kind: 'replaced', written: true })
  t.equal(store.pendingTokens(), 0)
  t.match(await memory.read(key), { gen: 2, tokens: 'sealed-2' })
  await store.drainPendingTokens()
  t.equal(time.waiting(), IDLE_TIMERS)
})

t.test('tokens that the store accepts at once are not pending', async (t) => {
  const { store, retried, session, write } = start(t)
  const key = await session()
  t.strictSame(await store.replaceTokens(key, write(1)), { kind: 'replaced', written: true })
  t.strictSame(await store.replaceTokens(key, write(1)), { kind: 'newer' })
  t.strictSame(await store.replaceTokens(newKey(), write(1)), { kind: 'gone' })
  t.equal(store.pendingTokens(), 0)
  t.strictSame(retried, [])
})

t.test('pending tokens whose write had succeeded resolve as replaced', async (t) => {
  const { time, store, fail, heal, session, write, after } = start(t)
  const key = await session()
  fail('replaceTokens', 'unanswered')
  const result = resultOf(await after(FAILS_AFTER_MS, store.replaceTokens(key, write(1))))
  heal()
  await time.advance(2_000)
  t.strictSame(await result, { kind: 'replaced', written: false })
})

t.test('pending tokens are dropped at the absolute limit of the session', async (t) => {
  const { time, store, fail, session, write, after } = start(t)
  const key = await session()
  fail('replaceTokens', 'down')
  const endsAt = time.now() + 5_000
  const result = resultOf(await after(FAILS_AFTER_MS, store.replaceTokens(key, write(1, endsAt))))
  await time.advance(8_000)
  t.strictSame(await result, { kind: 'expired' })
  t.equal(store.pendingTokens(), 0)
  t.equal(time.waiting(), IDLE_TIMERS)
})

t.test('pending tokens of an ended session resolve as gone', async (t) => {
  const { time, memory, store, fail, heal, session, write, after } = start(t)
  const key = await session()
  fail('replaceTokens', 'down')
  const result = resultOf(await after(FAILS_AFTER_MS, store.replaceTokens(key, write(1))))
  await memory.end(key, { reason: 'logout' })
  t.equal(await store.read(key), null, 'pending tokens do not create a session')
  heal()
  await time.advance(2_000)
  t.strictSame(await result, { kind: 'gone' })
  t.equal(store.pendingTokens(), 0)
})

t.test('of two pending tokens of a session the newer ones stay, in whichever order they come', async (t) => {
  const { store, fail, session, write, after } = start(t)
  for (const order of [
    [1, 2],
    [2, 1],
  ]) {
    const key = await session()
    fail('replaceTokens', 'down')
    const results = []
    for (const gen of order)
      results.push(resultOf(await after(FAILS_AFTER_MS, store.replaceTokens(key, write(gen)))))
    t.match(await store.read(key), { gen: 3, tokens: 'sealed-3' })
    t.strictSame(await results[order.indexOf(1)], { kind: 'newer' })
  }
  t.equal(store.pendingTokens(), 2)
})

t.test('newer tokens in the store take precedence over pending ones', async (t) => {
  const { memory, store, fail, session, write, after } = start(t)
  const key = await session()
  fail('replaceTokens', 'down')
  await after(FAILS_AFTER_MS, store.replaceTokens(key, write(1)))
  await memory.replaceTokens(key, { gen: 1, attempt: 'of another replica', tokens: 'of-a-sibling' })
  t.match(await store.read(key), { gen: 2, tokens: 'of-a-sibling' })
})

t.test('a refresh begins once pending tokens of the session are stored', async (t) => {
  const { memory, store, fail, heal, session, write, after, callsOf } = start(t)
  const key = await session()
  fail('replaceTokens', 'down')
  await after(FAILS_AFTER_MS, store.replaceTokens(key, write(1)))
  const request = leaseRequest('a', { gen: 2 })
  t.ok((await after(FAILS_AFTER_MS, store.beginRefresh(key, request))) instanceof StoreUnavailable)
  t.strictSame(callsOf('beginRefresh'), [], 'the store is not asked')
  heal()
  t.match(await after(FAILS_AFTER_MS, store.beginRefresh(key, request)), { kind: 'granted' })
  t.match(await memory.read(key), { gen: 2, tokens: 'sealed-2', doubts: 1 })
})

t.test('a programming error drops pending tokens and is reported', async (t) => {
  const { time, store, fail, session, write, after } = start(t)
  const key = await session()
  fail('replaceTokens', 'down')
  const result = resultOf(await after(FAILS_AFTER_MS, store.replaceTokens(key, write(1))))
  const rejected = t.rejects(result, TypeError)
  fail('replaceTokens', 'broken')
  await time.advance(2_000)
  await rejected
  t.equal(store.pendingTokens(), 0)
  await store.drainPendingTokens()
})

t.test('a stop waits until no tokens are pending', async (t) => {
  const { time, store, fail, heal, session, write, after } = start(t)
  const key = await session()
  fail('replaceTokens', 'down')
  await after(FAILS_AFTER_MS, store.replaceTokens(key, write(1)))
  let drained = false
  const stopped = store.drainPendingTokens().then(() => {
    drained = true
  })
  await time.advance(20_000)
  t.notOk(drained)
  heal()
  await time.advance(2_000)
  await stopped
  t.match(await store.read(key), { gen: 2 })
})

t.test('a lease that could not be released is released as soon as the store is back', async (t) => {
  const { time, memory, store, retried, fail, heal, callsOf, session, after } = start(t)
  const key = await session()
  await memory.beginRefresh(key, leaseRequest('a'))
  fail('releaseLease', 'down')
  await after(
    FAILS_AFTER_MS,
    store.releaseLease(key, { attempt: 'a', inDoubt: { gen: 1, doubts: 1 }, retryInMs: 5_000 }),
  )
  await time.advance(20_000)
  const tries = callsOf('releaseLease')
  t.ok(tries.length > 10, `${tries.length} tries`)
  t.strictSame(new Set(retried), new Set(['lease']))
  t.not((await memory.read(key))?.leaseUntil, 0)
  heal()
  await time.advance(2_000)
  t.match(await memory.read(key), { doubts: 1, leaseUntil: 0 })
  const count = callsOf('releaseLease').length
  await time.advance(10_000)
  t.equal(callsOf('releaseLease').length, count)
  t.equal(time.waiting(), IDLE_TIMERS)
})

t.test('a release is abandoned after ten minutes, long after the lease expired', async (t) => {
  const { time, store, fail, callsOf, session, after } = start(t)
  const key = await session()
  fail('releaseLease', 'down')
  await after(FAILS_AFTER_MS, store.releaseLease(key, { attempt: 'a', inDoubt: null, retryInMs: 0 }))
  await time.advance(599_000)
  const count = callsOf('releaseLease').length
  await time.advance(600_000)
  t.ok(callsOf('releaseLease').length <= count + 1)
  t.equal(time.waiting(), IDLE_TIMERS)
})

t.test('a lease that was granted without a reply is released', async (t) => {
  const { time, memory, store, fail, heal, session, after } = start(t)
  const key = await session()
  fail('beginRefresh', 'unanswered')
  t.ok((await after(FAILS_AFTER_MS, store.beginRefresh(key, leaseRequest('a')))) instanceof StoreUnavailable)
  t.match(await memory.read(key), { doubts: 1 })
  heal()
  await time.advance(1_000)
  t.match(await memory.read(key), { doubts: 0, leaseUntil: 0 })
})

t.test('an end that waits gives way to the next one of the same session', async (t) => {
  const { time, store, fail, callsFor, session, after } = start(t)
  const [key, other] = [await session(), await session()]
  fail('end', 'down')
  const first = resultOf(await after(FAILS_AFTER_MS, store.endUntilTaken(key, {}, 60_000)))
  const second = resultOf(await after(FAILS_AFTER_MS, store.endUntilTaken(key, {}, 3_000)))
  t.strictSame(await first, { kind: 'expired' })
  void (await after(FAILS_AFTER_MS, store.endUntilTaken(other, {}, 60_000)))
  await time.advance(4_000)
  t.strictSame(await second, { kind: 'expired' }, 'it expires at its own deadline')
  const count = callsFor('end', other)
  await time.advance(10_000)
  t.ok(callsFor('end', other) > count, 'another session is still retried')
})

t.test('after a stop neither releases nor ends are retried', async (t) => {
  const { time, store, fail, callsOf, session, after } = start(t)
  const [key, other, late] = [await session(), await session(), await session()]
  fail('all', 'down')
  await after(FAILS_AFTER_MS, store.releaseLease(key, { attempt: 'a', inDoubt: null, retryInMs: 0 }))
  const end = resultOf(await after(FAILS_AFTER_MS, store.endUntilTaken(other, {}, 600_000)))
  await store.drainPendingTokens()
  await time.advance(2_000)
  const count = callsOf('releaseLease').length + callsOf('end').length
  t.strictSame(await end, { kind: 'expired' })
  t.strictSame(
    await resultOf(await after(FAILS_AFTER_MS, store.endUntilTaken(late, {}, 600_000))),
    { kind: 'expired' },
    'no retry begins',
  )
  await time.advance(60_000)
  t.equal(callsOf('releaseLease').length + callsOf('end').length, count + 1)
  t.equal(time.waiting(), IDLE_TIMERS)
})

t.test('a programming error does not retry a release or an end', async (t) => {
  const { time, store, fail, callsOf, session, after } = start(t)
  const key = await session()
  fail('releaseLease', 'down')
  fail('end', 'down')
  await after(FAILS_AFTER_MS, store.releaseLease(key, { attempt: 'a', inDoubt: null, retryInMs: 0 }))
  const end = resultOf(await after(FAILS_AFTER_MS, store.endUntilTaken(key, {}, 600_000)))
  fail('releaseLease', 'broken')
  fail('end', 'broken')
  await time.advance(2_000)
  t.strictSame(await end, { kind: 'expired' })
  const count = callsOf('releaseLease').length + callsOf('end').length
  await time.advance(10_000)
  t.equal(callsOf('releaseLease').length + callsOf('end').length, count)
})

t.test('an end that the store does not accept is executed when the store is back', async (t) => {
  const { time, memory, store, retried, fail, heal, session, after } = start(t)
  const key = await session()
  fail('end', 'down')
  const ended = resultOf(
    await after(FAILS_AFTER_MS, store.endUntilTaken(key, { gen: 1, reason: 'refused' }, 600_000)),
  )
  await time.advance(60_000)
  heal()
  await time.advance(2_000)
  t.strictSame(await ended, { kind: 'ended', tokens: 'sealed-1' })
  t.equal((await memory.readEnd(key))?.reason, 'refused')
  t.strictSame(new Set(retried), new Set(['end']))
  t.strictSame(await store.endUntilTaken(key, {}, 600_000), { kind: 'gone', successor: null })
})

t.test('after a failover an end is repeated only where its condition still holds', async (t) => {
  const { time, memory, store, incident, session } = start(t)
  const [active, newer] = [await session(), await session()]
  await time.advance(IDLE_MS)
  t.match(await store.end(active, { reason: 'idle', ifLimitPassed: true }), { kind: 'ended' })
  t.match(await store.endUntilTaken(newer, { gen: 1, reason: 'refused' }, 1_000), { kind: 'ended' })
  // The server that takes over knows of later activity, or of newer tokens.
  for (const key of [active, newer]) await memory.create(key, newRecord(time.now()), 600_000)
  await memory.replaceTokens(newer, { gen: 1, attempt: 'another process', tokens: 'sealed-2' })
  incident()
  await time.settle()
  t.match(await store.read(active), { gen: 1 })
  t.match(await store.read(newer), { gen: 2 })
})

t.test('what this process knew of a session is out of date after each of its writes', async (t) => {
  const { time, memory, store, fail, heal, session, write, after, incident, changed, touched } = start(t)
  const key = await session()
  await store.touch(key)
  t.strictSame([touched, changed], [[key], []])
  fail('touch', 'down')
  t.ok((await after(FAILS_AFTER_MS, store.touch(key))) instanceof StoreUnavailable)
  t.strictSame([touched, changed], [[key], []], 'a touch that failed changes nothing')
  heal()
  const writes: Record<string, () => Promise<unknown>> = {
    'new tokens': () => store.replaceTokens(key, write(1)),
    'a repair': async () => {
      await memory.end(key)
      await memory.create(key, newRecord(time.now()), 600_000)
      incident()
      await time.settle()
    },
    'an end': () => store.end(key, { reason: 'logout' }),
    'an end of what Redis has lost': () => store.end(key),
    'an end by a limit': () => store.end(key, { reason: 'idle', ifLimitPassed: true }),
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

t.test('an end whose condition fails changes nothing that this process knows', async (t) => {
  const { store, session, changed } = start(t)
  const key = await session()
  t.strictSame(await store.end(key, { reason: 'idle', ifLimitPassed: true }), { kind: 'precondition_failed' })
  t.strictSame(changed, [])
})

t.test(
  'a small read shows what a read shows: pending tokens, and no session that has ended here',
  async (t) => {
    const { time, memory, store, fail, heal, session, write, after } = start(t)
    const [key, ended] = [await session(), await session()]
    fail('replaceTokens', 'down')
    await after(FAILS_AFTER_MS, store.replaceTokens(key, write(1, time.now() + IDLE_MS)))
    t.equal((await memory.readState(key))?.gen, 1)
    t.equal((await store.readState(key))?.gen, 2)
    heal()
    await store.end(ended)
    await memory.create(ended, newRecord(time.now()), 600_000)
    t.equal(await store.readState(ended), null, 'a failover has brought it back')
  },
)

const ENDS = {
  'an end': async ({ store }, key) => void (await store.end(key, { reason: 'logout' })),
  'a retried end': async ({ store, fail, heal, time, after }, key) => {
    fail('end', 'down')
    await after(FAILS_AFTER_MS, store.endUntilTaken(key, { reason: 'logout' }, 600_000))
    heal()
    await time.advance(2_000)
  },
  'a retried end that had succeeded': async ({ store, fail, heal, time, after }, key) => {
    fail('end', 'unanswered')
    await after(FAILS_AFTER_MS, store.endUntilTaken(key, { reason: 'logout' }, 600_000))
    heal()
    await time.advance(2_000)
  },
  'the end at a limit': async ({ store, time }, key) => {
    await time.advance(IDLE_MS)
    await store.end(key, { reason: 'logout', ifLimitPassed: true })
  },
} satisfies Record<string, (setup: ReturnType<typeof start>, key: RecordKey) => Promise<void>>

for (const [name, end] of Object.entries(ENDS)) {
  t.test(`${name} that a failover lost is repeated, and this process sees it at once`, async (t) => {
    const setup = start(t)
    const { time, memory, store, restored, incident, session } = setup
    const key = await session()
    const record = newRecord(time.now())
    await end(setup, key)
    // A replica that was promoted has not received the end.
    await memory.create(key, record, 600_000)
    t.equal(await store.read(key), null)
    incident()
    await time.advance(1_000)
    t.equal(await memory.read(key), null)
    t.equal((await memory.readEnd(key))?.reason, 'logout')
    t.strictSame(restored, ['end'])
  })
}

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

t.test('a session ends at its idle limit although its new tokens are pending', async (t) => {
  const { time, memory, store, fail, session, write, after } = start(t)
  const key = await session()
  fail('replaceTokens', 'down')
  await after(FAILS_AFTER_MS, store.replaceTokens(key, write(1, time.now() + 10 * IDLE_MS)))
  await time.advance(IDLE_MS)
  t.equal((await store.read(key))!.gen, 2)
  t.match(await store.end(key, { reason: 'idle', ifLimitPassed: true }), {
    kind: 'ended',
    tokens: 'sealed-1',
  })
  t.equal((await memory.readEnd(key))?.reason, 'idle')
})

t.test('a stop writes lost writes last', async (t) => {
  const { time, memory, store, fail, heal, incident, session, write } = start(t)
  const lost = await session()
  await store.replaceTokens(lost, write(1))
  await memory.end(lost)
  await memory.create(lost, newRecord(time.now()), 600_000)
  fail('all', 'down')
  incident()
  await time.advance(500)
  const finished = store.finish()
  heal()
  await time.advance(2_000)
  await finished
  t.equal((await memory.read(lost))?.gen, 2)
  t.equal(time.waiting(), IDLE_TIMERS)
})

t.test('after an incident only the writes that the store lacks are written again', async (t) => {
  const { time, memory, store, restored, incident, loses, callsFor, session, write } = start(t)
  const [behind, same, ahead, gone, back] = await sessions(session, 5)
  for (const key of [behind!, same!, ahead!, gone!]) await store.replaceTokens(key, write(1))
  await store.end(back!, { reason: 'logout' })
  for (const key of [behind!, back!]) await loses(key)
  await memory.replaceTokens(ahead!, { gen: 2, attempt: 'of another', tokens: 'sealed-3' })
  await memory.end(gone!)
  incident()
  await time.advance(1)
  t.strictSame([...restored].sort(), ['end', 'tokens'])
  t.equal(callsFor('schedule', behind!), 1, 'its queue entry may be lost too')
  t.equal((await memory.readEnd(back!))?.reason, 'logout')
  const gens = await Promise.all([behind!, same!, ahead!, gone!, back!].map((key) => memory.read(key)))
  t.strictSame(
    gens.map((record) => record?.gen ?? null),
    [2, 2, 3, null, null],
  )
  await time.advance(10_000)
  t.equal(restored.length, 2)
  t.equal(time.waiting(), IDLE_TIMERS)
})

t.test('without an incident nothing is written again', async (t) => {
  const { time, store, callsOf, session, write } = start(t)
  await store.replaceTokens(await session(), write(1))
  await time.advance(120_000)
  t.equal(callsOf('replaceTokens').length, 1)
})

t.test('in an outage the outbox tries at most 64 writes at once, until the store is back', async (t) => {
  const { time, store, restored, incident, loses, fail, heal, callsOf, session, write } = start(t)
  const keys = await sessions(session, 200)
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
  const { time, store, restored, incident, loses, fail, heal, session, write } = start(t)
  const keys = await sessions(session, 100)
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

t.test('incidents that follow each other cost one round a second', async (t) => {
  const { time, store, incident, callsOf, session, write } = start(t)
  const keys = await sessions(session, 10)
  for (const key of keys) await store.replaceTokens(key, write(1))
  for (let at = 0; at < 300; at += 1) {
    incident()
    await time.advance(100)
  }
  const tries = callsOf('replaceTokens').length - keys.length
  t.ok(tries >= 290 && tries <= 310, `${tries} tries in 30 s`)
  await time.advance(32_000)
  const count = callsOf('replaceTokens').length
  incident()
  await time.advance(5_000)
  t.equal(callsOf('replaceTokens').length, count, 'a write is kept for a minute')
})

t.test('a failover during a round is followed by another round', async (t) => {
  const { time, store, incident, fail, heal, callsFor, session, write } = start(t)
  const key = await session()
  await store.replaceTokens(key, write(1))
  fail(key, 'unanswered')
  incident()
  await time.settle()
  incident()
  heal()
  await time.advance(5_000)
  t.ok(callsFor('replaceTokens', key) >= 3)
  const count = callsFor('replaceTokens', key)
  await time.advance(5_000)
  t.equal(callsFor('replaceTokens', key), count)
})

t.test('a write that follows the incident is not repeated', async (t) => {
  const { time, store, incident, fail, heal, callsFor, session, write } = start(t)
  const [before, after] = [await session(), await session()]
  await store.replaceTokens(before, write(1))
  fail(before, 'down')
  incident()
  await time.advance(1_000)
  await store.replaceTokens(after, write(1))
  heal()
  await time.advance(5_000)
  t.equal(callsFor('replaceTokens', after), 1)
  t.ok(callsFor('replaceTokens', before) > 1)
})

t.test('the newest 20,000 writes are kept', async (t) => {
  const { store, incident, time, callsFor, session, write } = start(t)
  const keys = await sessions(session, 20_001)
  for (const key of keys) await store.replaceTokens(key, write(1))
  incident()
  await time.advance(1)
  t.strictSame(
    [0, 1, 20_000].map((at) => callsFor('replaceTokens', keys[at]!)),
    [1, 2, 2],
  )
})

t.test('an end whose condition no longer holds is not repeated, and the session is served', async (t) => {
  const { time, store, restored, incident, loses, callsFor, session } = start(t)
  const key = await session()
  await time.advance(IDLE_MS)
  t.match(await store.end(key, { reason: 'idle', ifLimitPassed: true }), { kind: 'ended' })
  await loses(key)
  incident()
  await time.advance(1)
  t.match(await store.read(key), { gen: 1 })
  t.strictSame(restored, [])
  t.equal(callsFor('schedule', key), 1, 'it may have been taken out of the due queue')
})

t.test('a sign-out after an end under a condition is repeated without one', async (t) => {
  const { time, memory, store, restored, incident, loses, session } = start(t)
  const key = await session()
  await store.end(key, { gen: 1, reason: 'refused' })
  await loses(key)
  await memory.replaceTokens(key, { gen: 1, attempt: 'of another', tokens: 'sealed-2' })
  await store.end(key, { reason: 'logout' })
  await loses(key)
  incident()
  await time.advance(1)
  t.equal(await memory.read(key), null)
  t.strictSame(restored, ['end'])
})

t.test('a stop does not wait for a store that stays away', async (t) => {
  const { time, store, incident, fail, callsOf, session, write } = start(t)
  await store.replaceTokens(await session(), write(1))
  fail('all', 'down')
  incident()
  const finished = store.finish()
  await time.advance(2_000)
  await finished
  await time.advance(2_000)
  const count = callsOf('replaceTokens').length
  incident()
  await time.advance(10_000)
  t.equal(callsOf('replaceTokens').length, count, 'no new round begins')
})

function sessions(session: () => Promise<RecordKey>, count: number): Promise<RecordKey[]> {
  return Promise.all(Array.from({ length: count }, session))
}
