import { EventEmitter } from 'node:events'
import type { ServerResponse } from 'node:http'
import t, { type Test } from 'tap'
import { problem } from '../../src/errors.ts'
import { createLog } from '../../src/log.ts'
import { createForward, type ForwardOptions } from '../../src/proxy/forward.ts'
import { ASK_AGAIN_MS, createStoreWait } from '../../src/proxy/store-wait.ts'
import { installVirtualTime } from '../vault/refresh/virtual-time.ts'
import { outgoing } from './resource-client-harness.ts'

const AWAY = problem('store_unavailable')
const FOUND = { found: true }

/** A store that is away until the test says what it shows, in virtual time. */
function start(t: Test, { waitMs = 4_000, most }: { waitMs?: number; most?: number } = {}) {
  const { clock, advance } = installVirtualTime(t)
  let asked = 0
  let shown: () => Promise<object> = () => Promise.reject(AWAY)
  const wait = createStoreWait({ waitMs, clock, ...(most === undefined ? {} : { most }) })
  const ask = () => {
    asked += 1
    return shown()
  }
  return {
    wait,
    ask,
    asked: () => asked,
    shows(next: () => Promise<object>): void {
      shown = next
    },
    /** A question of a read, its response, and its outcome; `waits` until it has one. */
    read(response = new EventEmitter()) {
      const one = { response, outcome: 'waits' as unknown }
      const settle = (outcome: unknown): void => {
        one.outcome = outcome
      }
      wait(response as ServerResponse, ask).then(settle, settle)
      return one
    },
    pass: advance,
  }
}

const turn = () => new Promise((resolve) => setImmediate(resolve))

t.test('a read waits for the store and gets what it shows then', async (t) => {
  const store = start(t)
  const read = store.read()
  await store.pass(3_000)
  t.equal(read.outcome, 'waits')
  store.shows(async () => FOUND)
  await store.pass(ASK_AGAIN_MS)
  t.equal(read.outcome, FOUND)
  const asked = store.asked()
  await store.pass(4_000)
  t.equal(store.asked(), asked, 'and asks no more')
})

t.test('500 reads of a process wait, and no more', async (t) => {
  const store = start(t)
  const reads = Array.from({ length: 501 }, () => store.read())
  await turn()
  t.strictSame([...new Set(reads.slice(0, 500).map(({ outcome }) => outcome))], ['waits'])
  t.equal(reads[500]?.outcome, AWAY)
})

t.test('a read that finds the store away again waits for what is left of its time', async (t) => {
  const store = start(t)
  const read = store.read()
  await store.pass(3_000)
  store.shows(async () => FOUND)
  await store.pass(ASK_AGAIN_MS)
  t.equal(read.outcome, FOUND)
  store.shows(() => Promise.reject(AWAY))
  const again = store.read(read.response)
  await store.pass(500)
  t.equal(again.outcome, 'waits')
  await store.pass(500)
  t.equal(again.outcome, AWAY)
})

t.test('a read waits so long and no longer, also for a store that does not answer', async (t) => {
  const store = start(t)
  const read = store.read()
  await store.pass(1_000)
  store.shows(() => new Promise(() => {}))
  await store.pass(2_999)
  t.equal(read.outcome, 'waits')
  await store.pass(1)
  t.equal(read.outcome, AWAY)
})

t.test('0: a read is refused at once', async (t) => {
  const store = start(t, { waitMs: 0 })
  const read = store.read()
  await turn()
  t.equal(read.outcome, AWAY)
})

t.test('so many wait, and what is more is refused at once', async (t) => {
  const store = start(t, { most: 2 })
  const waiting = [store.read(), store.read()]
  await turn()
  const third = store.read()
  await turn()
  t.equal(third.outcome, AWAY)
  t.strictSame(
    waiting.map(({ outcome }) => outcome),
    ['waits', 'waits'],
  )
  store.shows(async () => FOUND)
  await store.pass(ASK_AGAIN_MS)
  t.strictSame(
    waiting.map(({ outcome }) => outcome),
    [FOUND, FOUND],
  )
  store.shows(() => Promise.reject(AWAY))
  const fourth = store.read()
  await turn()
  t.equal(fourth.outcome, 'waits', 'their places are free again')
})

t.test('what waits leaves when its browser leaves', async (t) => {
  const store = start(t, { most: 1 })
  const gone = store.read()
  await store.pass(500)
  const asked = store.asked()
  gone.response.emit('close')
  await turn()
  t.equal(gone.outcome, AWAY)
  const next = store.read()
  await turn()
  t.equal(next.outcome, 'waits', 'its place is free')
  next.response.emit('close')
  await store.pass(4_000)
  t.equal(store.asked(), asked + 1, 'and it asks no more')
})

t.test('GET and HEAD wait, all else does not', async (t) => {
  const store = start(t)
  const forward = createForward({
    callers: { cached: () => null, find: () => store.ask() } as unknown as ForwardOptions['callers'],
    storeWait: store.wait,
    application: null,
    resourceClient: { send: (call) => void sent.push(call.outgoing.method) },
    accounts: { default: null, allowed: null },
    observe() {},
    log: createLog('silent'),
  })
  const sent: string[] = []
  const replies = new Map<string, unknown>()
  for (const method of ['GET', 'HEAD', 'PUT', 'DELETE']) {
    const request = { id: 'r', method, headers: { 'x-activity': 'none' }, raw: {}, ip: '127.0.0.1' }
    const reply = { raw: new EventEmitter(), send: (error: unknown) => void replies.set(method, error) }
    forward(request as never, reply as never, outgoing())
  }
  await turn()
  t.strictSame([...replies.keys()].sort(), ['DELETE', 'PUT'])
  store.shows(async () => ({ key: 'k', authorization: 'Bearer a' }))
  await store.pass(ASK_AGAIN_MS)
  t.equal(sent.length, 2)
  t.equal(replies.size, 2)
})

t.test('a call that waited for a place waits for the store too', async (t) => {
  const store = start(t)
  const sent: string[] = []
  const forward = createForward({
    callers: {
      cached: () => ({ authorization: 'Bearer old' }),
      current: () => store.ask(),
    } as unknown as ForwardOptions['callers'],
    storeWait: store.wait,
    application: null,
    resourceClient: {
      send(call, onOutcome) {
        sent.push(call.authorization)
        if (sent.length === 1) onOutcome({ kind: 'withdrawn', error: AWAY })
      },
    },
    accounts: { default: null, allowed: null },
    observe() {},
    log: createLog('silent'),
  })
  const request = { id: 'r', method: 'GET', headers: { 'x-activity': 'none' }, raw: {}, ip: '127.0.0.1' }
  const reply = { raw: new EventEmitter(), send: (error: unknown) => t.fail(String(error)) }
  forward(request as never, reply as never, outgoing())
  await store.pass(1_000)
  store.shows(async () => ({ authorization: 'Bearer new' }))
  await store.pass(ASK_AGAIN_MS)
  t.strictSame(sent, ['Bearer old', 'Bearer new'])
})
