import t from 'tap'
import { createGate, type Pass } from '../../../src/vault/refresh/gate.ts'

/** Of a gate that has room for all, unless `max` says less. */
function made({ random = 0, max = 1_000, timeoutMs = 10_000 } = {}) {
  let now = 0
  const changes: boolean[] = []
  const gate = createGate({
    max,
    timeoutMs,
    now: () => now,
    random: () => random,
    onChange: (down) => changes.push(down),
  })
  /** A request, whose caller has its answer with the report. */
  async function go(): Promise<Pass> {
    const pass = await gate.enter()
    if (pass.kind !== 'pass') throw new Error('not let through')
    const report: Pass['report'] = (works, retryAfterMs) => {
      pass.report(works, retryAfterMs)
      pass.leave()
    }
    return { ...pass, report }
  }
  /** Milliseconds that the next request would have to wait, without sending it. */
  async function waitMs(): Promise<number> {
    const pass = await gate.enter()
    if (pass.kind === 'wait') return pass.ms
    pass.leave()
    return 0
  }
  return {
    gate,
    changes,
    go,
    waitMs,
    fail: async (times: number) => {
      for (let at = 0; at < times; at += 1) (await go()).report(false, null)
    },
    pass: (ms: number) => {
      now += ms
    },
  }
}

t.test('at most `max` requests are let through at once, in the order in which they came', async (t) => {
  const { gate, go } = made({ max: 2 })
  const first = await go()
  await go()
  t.equal(gate.room(), 0)
  const order: number[] = []
  const third = go().then((pass) => {
    order.push(3)
    return pass
  })
  const fourth = go().then(() => void order.push(4))
  await new Promise(setImmediate)
  t.strictSame(order, [])
  first.leave()
  const pass = await third
  await new Promise(setImmediate)
  t.strictSame(order, [3])
  pass.leave()
  await fourth
  t.strictSame(order, [3, 4])
})

t.test('three consecutive failures open the breaker, and one success closes it', async (t) => {
  const { gate, changes, fail, go, pass } = made()
  await fail(2)
  t.notOk(gate.isDown())
  t.equal((await gate.enter()).kind, 'pass', 'they delay no other request')
  ;(await go()).report(true, null)
  await fail(2)
  t.notOk(gate.isDown(), 'not consecutive')
  await fail(1)
  t.ok(gate.isDown())
  t.equal(gate.failures(), 3)
  t.match(await gate.enter(), { kind: 'wait', ms: 250, why: 'unavailable' })
  pass(250)
  ;(await go()).report(true, null)
  t.notOk(gate.isDown())
  t.equal(gate.failures(), 0)
  t.strictSame(changes, [true, false])
})

t.test('while the token endpoint is down one request at a time is let through', async (t) => {
  const { gate, fail, go, pass, waitMs } = made()
  await fail(3)
  t.equal(gate.room(), 0)
  pass(250)
  t.equal(gate.room(), 1)
  const probe = await go()
  t.equal(gate.room(), 0)
  t.equal((await gate.enter()).kind, 'wait')
  pass(1_000)
  t.equal((await gate.enter()).kind, 'wait')
  probe.report(false, null)
  t.equal(await waitMs(), 500)
})

t.test('requests that wait for room do not leave once the token endpoint is down', async (t) => {
  const { gate } = made({ max: 3 })
  const open = (await Promise.all([gate.enter(), gate.enter(), gate.enter()])) as Pass[]
  const waiting = gate.enter()
  const last = gate.enter()
  for (const pass of open) pass.report(false, null)
  open[0]!.leave()
  t.equal((await waiting).kind, 'wait')
  t.equal((await last).kind, 'wait', 'nobody waits for ever')
  open[1]!.leave()
  open[2]!.leave()
})

t.test('an outage that nobody has looked at for five seconds delays no request', async (t) => {
  const { gate, changes, fail, go, pass, waitMs } = made()
  await fail(3)
  pass(4_999)
  ;(await go()).leave()
  t.equal((await gate.enter()).kind, 'pass')
  t.equal((await gate.enter()).kind, 'wait', 'a probe is under way')
  pass(2_500)
  const first = await go()
  t.equal((await gate.enter()).kind, 'wait', 'probes leave as soon as they may')
  first.report(false, null)

  pass(5_000)
  const all = [await go(), await go(), await go()]
  t.ok(gate.isDown(), 'it is not known to be over')
  all[0]?.report(false, null)
  t.equal((await gate.enter()).kind, 'wait', 'it is not')
  for (const late of all.slice(1)) late.report(false, null)
  t.equal(await waitMs(), 1_000)

  pass(5_000)
  await go()
  ;(await go()).report(true, null)
  t.notOk(gate.isDown())
  t.strictSame(changes, [true, false])
})

t.test(
  'a probe that shows nothing admits another at once, and one that hangs after 2.5 seconds',
  async (t) => {
    const { gate, fail, go, pass } = made()
    await fail(3)
    pass(250)
    ;(await go()).leave()
    const hanging = await go()
    pass(2_500)
    ;(await go()).leave()
    hanging.report(true, null)
    t.notOk(gate.isDown(), 'and may still succeed')
  },
)

t.test(
  'the pause with its maximum jitter is short enough to detect recovery within five seconds',
  async (t) => {
    const { gate, fail, go, pass } = made({ random: 0.999 })
    await fail(3)
    for (let probe = 0; probe < 20; probe += 1) {
      const entered = await gate.enter()
      t.ok(entered.kind === 'wait' && entered.ms <= 2_000)
      pass(2_001)
      ;(await go()).report(false, null)
    }
  },
)

t.test('requests from before the outage that fail late do not delay the next probe', async (t) => {
  const { go, pass, waitMs } = made()
  const early = await Promise.all(Array.from({ length: 8 }, go))
  for (const request of early.slice(0, 3)) request.report(false, null)
  pass(200)
  for (const request of early.slice(3)) request.report(false, null)
  t.equal(await waitMs(), 50)
})

t.test('the gate waits for Retry-After, and little longer, and one request goes first', async (t) => {
  const { gate, fail, go, pass, waitMs } = made({ random: 0.999 })
  await fail(2)
  ;(await go()).report(false, 60_000)
  const ms = await waitMs()
  t.ok(ms >= 60_000 && ms <= 62_000)
  pass(ms)
  await go()
  t.equal((await gate.enter()).kind, 'wait')
})
