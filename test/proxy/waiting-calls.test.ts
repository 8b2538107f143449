import type { Socket } from 'node:net'
import t, { type Test } from 'tap'
import { problem } from '../../src/errors.ts'
import { createLog } from '../../src/log.ts'
import { createForward, type ForwardOptions } from '../../src/proxy/forward.ts'
import type { Call } from '../../src/proxy/outgoing-request.ts'
import type { Outcome } from '../../src/proxy/resource-client.ts'
import { until } from '../helpers/wait.ts'
import { browse, get, OK, outgoing, type Received, start } from './resource-client-harness.ts'

/** The store as calls ask it: it shows what the test lets it show, when the test lets it. */
function gatedStore() {
  const asked: { resolve: (goesOn: boolean) => void; reject: (error: Error) => void }[] = []
  const state = { proven: true }
  return {
    state,
    asked,
    call: {
      isProven: () => state.proven,
      prove: () => new Promise<boolean>((resolve, reject) => void asked.push({ resolve, reject })),
    },
    /** Resolves when a call has asked for the nth time. */
    async question(index: number) {
      await until('a question', () => asked.length > index)
      return asked[index]!
    },
  }
}

/** An upstream whose one place, of a kind, the first request holds until it is released. */
async function busy(t: Test, limit: { share: number } | { connections: number } = { connections: 1 }) {
  const store = gatedStore()
  const answer = (socket: Socket, { path }: Received) => {
    if (path !== '/first') socket.write(OK)
  }
  const { upstream, ...server } = await start(t, answer, limit, store.call)
  const first = get(t, server.port, '/first')
  const { socket } = await upstream.request(0)
  store.state.proven = false
  return {
    store,
    upstream,
    server,
    async release(): Promise<void> {
      socket.write(OK)
      await first
    },
  }
}

t.test('a call that has waited asks the store, and is not sent if its session has ended', async (t) => {
  const { store, upstream, server, release } = await busy(t)
  const second = get(t, server.port, '/second')
  await server.sends(2)
  const third = get(t, server.port, '/third')
  await server.sends(3)
  t.equal(store.asked.length, 0, 'not while it waits')
  await release()
  ;(await store.question(0)).resolve(false)
  t.equal((await second).status, 599)
  const question = await store.question(1)
  t.strictSame(upstream.paths(), ['/first'])
  question.resolve(true)
  t.equal((await third).status, 200)
  t.strictSame(upstream.paths(), ['/first', '/third'])
  t.equal(store.asked.length, 2, 'each once')
  t.strictSame(await server.outcome(1), { kind: 'withdrawn', error: null })
})

t.test('a call whose browser has left while it waited gives its place away', async (t) => {
  const { store, upstream, server, release } = await busy(t)
  const waiting = browse(t, server.port, '/waiting')
  await server.sends(2)
  waiting.socket.destroy()
  t.match(await server.outcome(0), { kind: 'client_gone' })
  const third = get(t, server.port, '/third')
  await server.sends(3)
  store.state.proven = true
  await release()
  t.equal((await third).status, 200)
  t.equal(store.asked.length, 0, 'nor does one ask that has waited less than SESSION_CACHE_MS')
  t.strictSame(upstream.paths(), ['/first', '/third'])
  t.equal(upstream.sockets.length, 1, 'the connection outlives the call that was withdrawn')
})

t.test('a call that has waited for its share is not sent if the store fails', async (t) => {
  const { store, upstream, server, release } = await busy(t, { share: 1 })
  const second = get(t, server.port, '/second')
  await server.sends(2)
  await release()
  const question = await store.question(0)
  t.strictSame(upstream.paths(), ['/first'])
  const error = new Error('the store is down')
  question.reject(error)
  t.equal((await second).status, 599)
  t.strictSame(await server.outcome(1), { kind: 'withdrawn', error })
  t.strictSame(upstream.paths(), ['/first'])
})

t.test('a call whose browser leaves while it asks gives its place away', async (t) => {
  const { store, server, release } = await busy(t)
  const asking = browse(t, server.port, '/asking')
  await server.sends(2)
  await release()
  const question = await store.question(0)
  asking.socket.destroy()
  t.match(await server.outcome(1), { kind: 'client_gone' })
  store.state.proven = true
  t.equal((await get(t, server.port, '/next')).status, 200)
  question.resolve(true)
})

t.test('a call that has waited until its connection was established asks before it is sent', async (t) => {
  const store = gatedStore()
  store.state.proven = false
  const { upstream, ...server } = await start(t, OK, { connections: 1 }, store.call)
  const first = get(t, server.port, '/first')
  ;(await store.question(0)).resolve(false)
  t.equal((await first).status, 599, 'its session ended before')
  t.strictSame(upstream.paths(), [])
  // What was not sent leaves no connection behind, so the next call waits for one of its own.
  const second = get(t, server.port, '/second')
  ;(await store.question(1)).resolve(true)
  t.equal((await second).status, 200)
  t.equal((await get(t, server.port, '/third')).status, 200)
  t.equal(store.asked.length, 2, 'a connection that stands is used at once')
})

/** Forwards one request; the resource server gives the outcomes of the test, one for each call. */
function forwarded(outcomes: Outcome[], renewed: () => Promise<{ authorization: string }>) {
  const sent: string[] = []
  const observed: number[] = []
  const callers = {
    cached: () => ({ authorization: 'Bearer old' }),
    noteActivity() {},
    isProven: () => true,
    prove: async () => true,
    hasExpired: () => false,
    current: renewed,
    forceRefresh: async () => ({ authorization: 'Bearer forced' }),
  }
  const forward = createForward({
    callers: callers as unknown as ForwardOptions['callers'],
    storeWait: (_response, ask) => ask(),
    application: null,
    resourceClient: {
      send(call: Call, onOutcome: (outcome: Outcome) => void) {
        sent.push(call.authorization)
        onOutcome(outcomes.shift()!)
      },
    },
    accounts: { default: null, allowed: null },
    observe: (_operation, status) => void observed.push(status),
    log: createLog('silent'),
  })
  const reply = new Promise<unknown>((resolve) => {
    const request = { id: 'r', headers: {}, raw: {}, ip: '127.0.0.1' }
    forward(request as never, { raw: {}, send: resolve } as never, outgoing())
  })
  return { sent, observed, reply }
}

const FINISHED: Outcome = { kind: 'finished', status: 200 }
const REFUSED: Outcome = { kind: 'token_refused', namesInvalidToken: true, status: 401 }

t.test('a withdrawn call is sent with the token that its session has now, and is not counted', async (t) => {
  const withdrawn: Outcome = { kind: 'withdrawn', error: null }
  const { sent, observed } = forwarded([withdrawn, REFUSED, FINISHED], async () => ({
    authorization: 'Bearer new',
  }))
  await new Promise((resolve) => setImmediate(resolve))
  t.strictSame(sent, ['Bearer old', 'Bearer new', 'Bearer forced'])
  t.strictSame(observed, [401, 200])
})

t.test('a withdrawn call whose session has ended or cannot be read gets the problem', async (t) => {
  const ended = problem('login_required')
  const one = forwarded([{ kind: 'withdrawn', error: null }], () => Promise.reject(ended))
  t.equal(await one.reply, ended)
  const down = problem('store_unavailable')
  const other = forwarded([{ kind: 'withdrawn', error: down }], () => Promise.reject(ended))
  t.equal(await other.reply, down)
  t.strictSame([...one.sent, ...other.sent], ['Bearer old', 'Bearer old'])
})
