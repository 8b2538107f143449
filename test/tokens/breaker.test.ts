import t from 'tap'
import { type Admission, createBreaker } from '../../src/tokens/breaker.ts'

function made(random = 0) {
  let now = 0
  const changes: boolean[] = []
  const breaker = createBreaker({
    now: () => now,
    random: () => random,
    onChange: (open) => changes.push(open),
  })
  function go(): Extract<Admission, { kind: 'go' }> {
    const admission = breaker.admit()
    if (admission.kind !== 'go') throw new Error('not let through')
    return admission
  }
  return {
    breaker,
    changes,
    go,
    fail: (times: number) => {
      for (let at = 0; at < times; at += 1) go().report(false, null)
    },
    pass: (ms: number) => {
      now += ms
    },
  }
}

t.test('three consecutive failures open the breaker, and one success closes it', async (t) => {
  const { breaker, changes, fail, go, pass } = made()
  fail(2)
  t.notOk(breaker.isOpen())
  go().report(true, null)
  fail(2)
  t.notOk(breaker.isOpen(), 'not consecutive')
  fail(1)
  t.ok(breaker.isOpen())
  t.equal(breaker.failures(), 3)
  t.match(breaker.admit(), { kind: 'wait', retryInMs: 250 })
  pass(250)
  go().report(true, null)
  t.notOk(breaker.isOpen())
  t.equal(breaker.failures(), 0)
  t.strictSame(changes, [true, false])
})

t.test('an open breaker admits one request at a time', async (t) => {
  const { breaker, fail, go, pass } = made()
  fail(3)
  pass(250)
  const probe = go()
  t.equal(breaker.admit().kind, 'wait')
  pass(1_000)
  t.equal(breaker.admit().kind, 'wait')
  probe.report(false, null)
  t.equal(breaker.waitMs(), 500)
})

t.test('an outage that nobody has looked at for five seconds delays no request', async (t) => {
  const { breaker, changes, fail, go, pass } = made()
  fail(3)
  pass(4_999)
  go().release()
  t.equal(breaker.admit().kind, 'go')
  t.equal(breaker.admit().kind, 'wait', 'a probe is under way')
  pass(2_500)
  const first = go()
  t.equal(breaker.admit().kind, 'wait', 'probes leave as soon as they may')
  first.report(false, null)

  pass(5_000)
  const all = Array.from({ length: 3 }, go)
  t.ok(breaker.isOpen(), 'it is not known to be over')
  all[0]?.report(false, null)
  t.equal(breaker.admit().kind, 'wait', 'it is not')
  for (const late of all.slice(1)) late.report(false, null)
  t.equal(breaker.waitMs(), 1_000)

  pass(5_000)
  go()
  go().report(true, null)
  t.notOk(breaker.isOpen())
  t.strictSame(changes, [true, false])
})

t.test('after a long Retry-After one request goes first', async (t) => {
  const { breaker, fail, go, pass } = made()
  fail(2)
  go().report(false, 30_000)
  pass(30_000)
  go()
  t.equal(breaker.admit().kind, 'wait')
})

t.test('a probe that was not sent admits another at once', async (t) => {
  const { breaker, fail, go, pass } = made()
  fail(3)
  pass(250)
  go().release()
  t.equal(breaker.waitMs(), 0)
})

t.test('a probe that hangs delays the next one by at most 2.5 seconds, and may still succeed', async (t) => {
  const { breaker, fail, go, pass } = made()
  fail(3)
  pass(250)
  const hanging = go()
  pass(2_500)
  const next = go()
  next.release()
  hanging.report(true, null)
  t.notOk(breaker.isOpen())
})

t.test(
  'the pause with its maximum jitter is short enough to detect recovery within five seconds',
  async (t) => {
    const { breaker, fail, go, pass } = made(0.999)
    fail(3)
    for (let probe = 0; probe < 20; probe += 1) {
      t.ok(breaker.waitMs() <= 2_000)
      pass(breaker.waitMs() + 1)
      go().report(false, null)
    }
  },
)

t.test('requests from before the outage that fail late do not delay the next probe', async (t) => {
  const { breaker, go, pass } = made()
  const early = Array.from({ length: 64 }, go)
  for (const request of early.slice(0, 3)) request.report(false, null)
  pass(200)
  for (const request of early.slice(3)) request.report(false, null)
  t.equal(breaker.waitMs(), 50)
})

t.test('the breaker waits for Retry-After, and little longer', async (t) => {
  const { breaker, fail, go } = made(0.999)
  fail(2)
  go().report(false, 60_000)
  t.ok(breaker.waitMs() >= 60_000 && breaker.waitMs() <= 62_000)
})

t.test('the first two failures delay no other request', async (t) => {
  const { breaker, go } = made()
  go().report(false, 60_000)
  t.equal(breaker.admit().kind, 'go')
})
